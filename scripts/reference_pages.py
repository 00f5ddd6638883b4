"""List the pages of the reference, and the names on each in the order of the page."""

from __future__ import annotations

from typing import NamedTuple


class Section(NamedTuple):
    """Names under one heading. A name with dots gives its own module."""

    title: str
    names: tuple[str, ...]
    intro: str = ""


class Page(NamedTuple):
    """A page of the reference: a module, or what belongs to it, in sections."""

    module: str
    intro: str
    sections: list[Section]
    title: str = ""
    """The heading. The default is the module."""
    async_module: str = ""
    """The module with the async forms of these names. Only the differences are described."""


def _section(title: str, names: str, intro: str = "") -> Section:
    return Section(title, tuple(names.split()), intro)


_CAUSES = "[Errors](errors.md) gives the cause of each and what to do about it."
_SERVERS = "outlast.testing.servers"
_SUITE = "outlast.testing.conformance"

PAGES = {
    "outlast": Page(
        "outlast",
        "The decorators, and the errors. Import every name with `from outlast import …`. "
        "[Writing workflows](workflows.md) shows them in use.\n\n"
        "Other pages describe what you call [in workflows](reference-in-workflows.md) and "
        "[in steps](reference-in-steps.md), the [app](reference-app.md), "
        "[runs, queues and schedules](reference-queues.md), "
        "[sessions](reference-sessions.md) and [checkpoints](reference-checkpoints.md), the "
        "[decorated functions](reference-objects.md), the "
        "[objects in a run](reference-objects-in-runs.md), the "
        "[snapshots of a store](reference-snapshots.md) and the "
        "[events of a stream](reference-watch.md).",
        [
            _section(
                "Define",
                "workflow step effect resource limiter budget KEY Happened Unrecorded Unchecked "
                "ErrorCodec",
            ),
            _section(
                "Errors",
                "OutlastError NotInRun NotInStep BadName BadCursor LimitExceeded Unrecordable "
                "SettingsError UnknownRun UnknownEffect UnknownSchedule DuplicateName Backpressure "
                "BudgetExhausted "
                "Draining LeaseLost Conflict AlreadySubmitted VersionConflict NotOwner WrongStatus "
                "StaleFence StepFailed StepTimeout StreamStalled CannotResume RunError RunFailed "
                "RunTimeout "
                "Abandoned RunCancelled RunParked RunDead StoreError StoreUnavailable StoreBroken "
                "StoreTooNew Evicted Diverged",
                _CAUSES,
            ),
            _section("Version", "__version__"),
        ],
    ),
    "in-workflows": Page(
        "outlast",
        "What you call in a workflow. Import every name with `from outlast import …`. "
        "[Writing workflows](workflows.md) shows them in use.",
        [
            _section("Time and chance", "current now random uuid sleep"),
            _section("Messages", "receive"),
            _section("Work", "each map unit scope compensate_with"),
            _section("State", "session update_sessions checkpoint"),
        ],
        "Calls in a workflow",
    ),
    "in-steps": Page(
        "outlast",
        "What you call in a step. Import every name with `from outlast import …`. "
        "[Steps](steps.md) and [tokens to a browser](publish.md) show them in use.",
        [
            _section("What a step keeps", "progress Progress started_before"),
            _section("Streams", "resume_stream publish Output"),
        ],
        "Calls in a step",
    ),
    "app": Page(
        "outlast",
        "What your program uses to start runs, submit them and look at them. Import every name "
        "with `from outlast import …`. [Writing workflows](workflows.md#runs-and-ids) and "
        "[queues and workers](queues.md) show them in use.",
        [_section("Execute", "run Outlast")],
        "The app",
    ),
    "queues": Page(
        "outlast",
        "Runs, the queues they wait in, and the schedules that submit them. Import every name "
        "with `from outlast import …`. [Queues and workers](queues.md) and "
        "[schedules](schedules.md) show them in use.",
        [
            _section("Runs", "Run Call"),
            _section("Queues and schedules", "Queue Item Schedule"),
        ],
        "Runs, queues and schedules",
    ),
    "sessions": Page(
        "outlast",
        "State that outlives a process. Import every name with `from outlast import …`. "
        "[Sessions and checkpoints](sessions.md) shows them in use.",
        [_section("Names", "Session SessionChange SessionInfo")],
        "Sessions",
    ),
    "checkpoints": Page(
        "outlast",
        "The saved position of a script that has no workflow. Import it with "
        "`from outlast import Checkpoint`. [Sessions and checkpoints](sessions.md) shows it in "
        "use.",
        [_section("Names", "Checkpoint")],
        "Checkpoints",
    ),
    "objects": Page(
        "outlast",
        "What decorators return. A program rarely imports these names, except for annotations.",
        [_section("Names", "Workflow Step SyncStep Effect SyncEffect Resource SyncResource")],
        "Decorated functions",
    ),
    "objects-in-runs": Page(
        "outlast",
        "What calls in a [workflow](reference-in-workflows.md) or a [step](reference-in-steps.md) "
        "return. A program rarely imports these names, except for annotations.",
        [
            _section(
                "Names",
                "Current Limiter LimiterUse Budget BudgetUse outlast.streams.ResumableStream",
            )
        ],
        "Objects in a workflow or a step",
    ),
    "snapshots": Page(
        "outlast",
        "What the methods of the [app](reference-app.md) return about runs, effects, queues, "
        "schedules, limiters and workers. A program rarely imports these names, except for "
        "annotations.",
        [
            _section("Runs", "RunInfo BulkReport EffectInfo outlast.store.rows.Entry"),
            _section(
                "Queues and schedules",
                "QueueInfo ScheduleInfo LimiterInfo LimitInfo BudgetInfo PausedWorkflow",
            ),
            _section("Workers", "WorkerInfo DrainReport"),
        ],
        "Snapshots of a store",
    ),
    "watch": Page(
        "outlast",
        "The events of a stream of a run. [Tokens to a browser](publish.md) shows them in use.",
        [_section("Names", "Watch DataEvent ResetEvent EndEvent")],
        "Streams of a run",
    ),
    "sync": Page(
        "outlast.sync",
        "These names block where those of [outlast](reference-outlast.md) are awaited. Every other "
        "name of `outlast` is also in `outlast.sync`, and is the same object.",
        [
            _section("Execute", "run Outlast Run Queue Item Watch"),
        ],
        async_module="outlast",
    ),
    "sync-calls": Page(
        "outlast.sync",
        "These names block where those of [outlast](reference-outlast.md) are awaited. Import them "
        "with `from outlast.sync import …`.",
        [
            _section(
                "In a workflow or a step",
                "sleep receive each map compensate_with session update_sessions checkpoint "
                "started_before resume_stream publish Output",
            ),
            _section("State", "Session SessionChange Checkpoint"),
        ],
        "Sync calls in a workflow or a step",
        async_module="outlast",
    ),
    "effects": Page(
        "outlast.effects",
        "Ready-made effects for HTTP calls and files. [Effect recipes](effects-recipes.md) shows "
        "them in use.",
        [
            _section("HTTP", "http_call http_effect HTTPEffect HTTPAnswer"),
            _section("Files", "write_file file_effect FileEffect FileWritten"),
            _section(
                "Errors",
                "HTTPFailure HTTPNotSent HTTPRefused HTTPUnclear FileNotWritten FileNotRestored",
                _CAUSES,
            ),
        ],
    ),
    "fencing": Page(
        "outlast.fencing",
        "Guards with which another system rejects a stale writer. "
        "[Fencing other systems](fencing.md) shows them in use.",
        [
            _section(
                "SQL",
                "guard_sql guard_sql_async sql_guard SQLGuard create_table create_table_async "
                "SQL_TABLE",
            ),
            _section("Redis", "guard_redis guard_redis_async"),
            _section(
                "HTTP", "fence_headers read_headers FenceGate FENCE_HEADER RUN_HEADER FENCE_MAX"
            ),
        ],
    ),
    "http": Page(
        "outlast.http",
        "The HTTP API and the web UI of a store, and a worker's HTTP endpoints, for your own web "
        "server. [HTTP API](http-api.md), [Web UI](ui.md) and "
        "[Shutdown in your own program](shutdown-programs.md) show them in use.",
        [
            _section("HTTP API and web UI", "api ui Caller Role"),
            _section("Endpoints", "lifespan routes Server StatusProvider HasStatusProvider Sample"),
        ],
    ),
    "client": Page(
        "outlast.client",
        "The runs of a store that a program cannot open, over the HTTP API. "
        "[Use Outlast from a program without the store](remote-client.md) shows it in use.",
        [
            _section("Connect", "Client call NamedCall"),
            _section("Errors", "ServerUnavailable ApiError"),
        ],
    ),
    "client-objects": Page(
        "outlast.client",
        "What the methods of [Client](reference-client.md) return.",
        [_section("Names", "Run Queue Watch Session Checkpoint")],
        "Objects of the client",
    ),
    "client-sync": Page(
        "outlast.client.sync",
        "These names block where those of [outlast.client](reference-client.md) are awaited. "
        "Its `Run`, `Watch`, `Session` and `Checkpoint` are also in "
        "[outlast.sync](reference-sync.md).",
        [_section("Names", "Client Queue")],
        async_module="outlast.client",
    ),
    "logs": Page(
        "outlast.logs",
        "The log format of `outlast worker`, for your own program. [Telemetry](telemetry.md#logs) "
        "shows it in use.",
        [_section("Names", "configure JSONFormatter TextFormatter")],
    ),
    "pydantic-ai": Page(
        "outlast.integrations.pydantic_ai",
        "The adapter for Pydantic AI. "
        "[Make your Pydantic AI agent durable](pydantic-ai.md) shows it in use.",
        [_section("Names", "OutlastDurability StepOptions ToolEffect effect_key")],
    ),
    "ai-sdk": Page(
        "outlast.integrations.ai_sdk",
        "Streams of a run for the Vercel AI SDK. "
        "[Show a run in a web page](frontends.md#the-ai-sdk) shows them in use.",
        [_section("Names", "encode HEADERS")],
    ),
    "ag-ui": Page(
        "outlast.integrations.ag_ui",
        "Streams of a run for AG-UI. "
        "[Show a run in a web page](frontends.md#ag-ui) shows them in use.",
        [_section("Names", "encode")],
    ),
    "langgraph": Page(
        "outlast.integrations.langgraph",
        "The adapter for LangGraph. "
        "[Make your LangGraph graph durable](langgraph.md) shows it in use.",
        [
            _section(
                "Names",
                "durable_graph DurableGraph GraphEvent effect_tool workflow_tool OutlastSaver",
            )
        ],
    ),
    "openai-agents": Page(
        "outlast.integrations.openai_agents",
        "The adapter for the OpenAI Agents SDK. "
        "[Make your OpenAI agent durable](openai-agents.md) shows it in use.",
        [_section("Names", "durable effect_tool workflow_tool run_with_approvals OutlastSession")],
    ),
    "claude-agent": Page(
        "outlast.integrations.claude_agent",
        "The adapter for the Claude Agent SDK. "
        "[Make your Claude agent durable](claude-agent.md) shows it in use.",
        [
            _section(
                "Names", "run_turn durable_server effect_tool workflow_tool OutlastSessionStore"
            )
        ],
    ),
    "settings": Page(
        "outlast.settings",
        "Every setting is a field of `Settings`. [Settings](settings.md) says where the values "
        "come from.",
        [_section("Names", "Settings")],
    ),
    "testing": Page(
        "outlast.testing",
        "Helpers for tests of your own workflows. [Testing](testing.md) shows them in use.",
        [
            _section(
                "Workflows",
                "App crash_everywhere crash_processes CrashReport Broke VirtualClock VirtualLoop",
            ),
            _section(
                "Servers",
                f"{_SERVERS}.postgres_server {_SERVERS}.redis_server {_SERVERS}.Server",
                f"Import these from `{_SERVERS}`.",
            ),
        ],
    ),
    "conformance": Page(
        _SUITE,
        "The promises of a store as a pytest suite, for a store that you write. "
        "[The store](architecture-store.md) explains each command.",
        [
            _section(
                "Names",
                "StoreConformance DurableStoreConformance StoreDriver MakeStore ManualClock",
            )
        ],
    ),
}
"""The pages by the end of their file name: `docs/reference-NAME.md`."""

CONSTRUCTED = {
    "Outlast", "Happened", "Unrecorded", "App", "VirtualClock", "FenceGate", "Server",
    "JSONFormatter", "TextFormatter", "ManualClock", "Sample",
}  # fmt: skip
"""Classes that a program calls. The others come from a function or a method."""

SUITES = {"StoreConformance", "DurableStoreConformance"}
"""Test suites. Their methods are tests and fixtures, which nobody calls."""
