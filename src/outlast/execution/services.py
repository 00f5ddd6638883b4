"""Name what an execution receives from the engine that starts it.

An execution never sees the engine. It gets one `ExecutionServices`, which the engine builds once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from outlast.codec.cost import NOTHING, UNITS_MAX, Cost
from outlast.errors import LimitExceeded
from outlast.execution.durations import Durations
from outlast.telemetry.error_text import redact

if TYPE_CHECKING:
    from outlast.execution.call_site import CallSite
    from outlast.execution.definitions import WorkflowCall
    from outlast.execution.execution_state import RunOutcome
    from outlast.execution.run_execution import RunExecution
    from outlast.execution.run_loop import RunLoop
    from outlast.execution.shutdown_state import ShutdownState
    from outlast.execution.store_access import StoreAccess
    from outlast.execution.threads import Pool
    from outlast.execution.tracing import Spans
    from outlast.settings import Settings
    from outlast.store.rows import RunRow
    from outlast.telemetry.meters import Meters

T = TypeVar("T")


@dataclass(slots=True)
class StepBodies:
    """How the bodies of steps are executed."""

    host: asyncio.AbstractEventLoop
    pool: Pool
    durations: Durations = field(default_factory=Durations)
    overrides: Mapping[Any, Callable[..., Any]] = field(default_factory=dict)
    """The functions to execute instead of the steps' own, by definition. For tests."""
    on_start: Callable[[str, str], None] | None = None
    """Called with the run and the key of every step that starts. For tests."""

    def in_thread(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> asyncio.Future[T]:
        """Call a function in a thread of the pool, in a copy of the current context."""
        return self.pool.run(self.host, copy_context(), fn, *args, **kwargs)


class ChildRuns(Protocol):
    """Start, follow and compensate the runs that a run has started."""

    def start(self, execution: RunExecution, site: CallSite, call: WorkflowCall) -> None:
        """Start a child, or find the one that exists, and record its end at the call site."""

    def compensate(self, execution: RunExecution, site: CallSite, place: str | None) -> None:
        """Compensate the child that was called at `of`.

        None: end all children that have not ended, and compensate those whose end is not recorded.
        """

    async def has_unfinished(self, run_id: str) -> bool:
        """Return whether a child of a failed or cancelled run has not ended or has effects."""


class ExecutionObserver(Protocol):
    """Receives what an execution reports. Each is a plain call on the event loop."""

    def became_idle(self, execution: RunExecution) -> None:
        """Note that nothing of a run is in flight. Called only after a shutdown has begun."""

    def made_progress(self, execution: RunExecution) -> None:
        """Note that a suspect run has recorded something. Called once."""

    def waits_for_messages(self, execution: RunExecution) -> None:
        """Look for messages that the run waits for."""

    def message_taken(self, execution: RunExecution) -> None:
        """Note that a receive of the run has ended."""

    def nothing_executes(self, execution: RunExecution) -> None:
        """Free the run's slot. Called before its last command is submitted."""

    def ended(self, execution: RunExecution, outcome: RunOutcome) -> None:
        """Note that the execution has ended, and what became of its run."""

    def hung(self, execution: RunExecution) -> None:
        """Keep the run: the app closed while its code still executes."""

    def finished_late(self, execution: RunExecution) -> None:
        """Note that the code of a hung run has ended."""


class Background(Protocol):
    """Keep tasks alive, and log those that fail."""

    def track_task(self, task: asyncio.Task[T]) -> asyncio.Task[T]: ...

    def spawn_detached(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Execute a coroutine in a task that the end of the loop does not find."""

    def run_after_close(self, work: Coroutine[Any, Any, None]) -> None:
        """Execute work after the engine has closed, if the program continues."""


class ScopeRegistry(Protocol):
    """Track scopes outside of workflows that a drain waits for. Safe from any thread."""

    def enter(self, kind: str, name: str) -> object: ...

    def leave(self, token: object) -> None: ...


class RunTotals:
    """Count what this process has saved and which units have ended in it."""

    __slots__ = ("_lock", "committed", "rolled_back", "saved")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.committed = 0
        """The number of units that were left without an exception."""
        self.rolled_back = 0
        """The number of units that an exception left."""
        self.saved: Cost = NOTHING
        """The cost that was not spent again after deaths and interruptions."""

    def add_saved(self, cost: Cost) -> None:
        self.saved = self.saved.plus(cost, UNITS_MAX)

    def unit_ended(self, *, committed: bool) -> None:
        """Count a unit that has ended. Safe to call from any thread."""
        with self._lock:
            if committed:
                self.committed += 1
            else:
                self.rolled_back += 1


@dataclass(slots=True, eq=False)
class ExecutionServices:
    """What every execution of one engine shares."""

    store: StoreAccess
    steps: StepBodies
    shutdown: ShutdownState
    children: ChildRuns
    observer: ExecutionObserver
    background: Background
    scopes: ScopeRegistry
    settings: Settings
    metrics: Meters
    spans: Spans
    host: asyncio.AbstractEventLoop
    running: Collection[str]
    """The ids of the runs that execute in this process."""
    host_thread: int = field(default_factory=threading.get_ident)
    """The id of the event loop's thread."""
    totals: RunTotals = field(default_factory=RunTotals)
    unfinished_loops: list[RunLoop] = field(default_factory=list)
    """Run loops with tasks that did not end. They are kept, so that no finalizer executes them."""

    @property
    def log_values(self) -> int:
        """Return how many characters of a value may be logged."""
        return self.settings.log_values

    def check_size(self, text: str, what: str) -> None:
        """Raise LimitExceeded if a recorded text is too long."""
        if len(text) > self.settings.value_size_max:
            raise LimitExceeded("value_size_max", self.settings.value_size_max, len(text), what)

    def redact(self, error: BaseException | None) -> BaseException | None:
        """Return an error that may be logged. Remove its message unless values may be logged."""
        return redact(error, self.settings.log_values)


def log_fields(row: RunRow, step: str | None = None, attempt: int | None = None) -> dict[str, Any]:
    """Return the structured fields of a log line about a run, or about one of its steps."""
    return {
        "run": row.id, "workflow": row.workflow, "queue": row.queue, "fence": abs(row.fence),
        "worker": row.worker, "step": step, "attempt": attempt,
    }  # fmt: skip
