"""The public names, their docstrings and the weight of their import."""

import inspect
import re
import subprocess
import sys

import pytest

import outlast
import outlast.errors
import outlast.logs
import outlast.sync
from outlast.errors.explained import Explained

NAMES = [
    "Abandoned",
    "AlreadySubmitted",
    "Backpressure",
    "BadCursor",
    "BadName",
    "Budget",
    "BudgetExhausted",
    "BudgetInfo",
    "BudgetUse",
    "BulkReport",
    "Call",
    "CannotResume",
    "Checkpoint",
    "Conflict",
    "Current",
    "DataEvent",
    "Diverged",
    "DrainReport",
    "Draining",
    "DuplicateName",
    "Effect",
    "EffectInfo",
    "EndEvent",
    "ErrorCodec",
    "Evicted",
    "Happened",
    "Item",
    "KEY",
    "LeaseLost",
    "LimitExceeded",
    "LimitInfo",
    "Limiter",
    "LimiterInfo",
    "LimiterUse",
    "NotInRun",
    "NotInStep",
    "NotOwner",
    "Outlast",
    "OutlastError",
    "Output",
    "PausedWorkflow",
    "Progress",
    "Queue",
    "QueueInfo",
    "ResetEvent",
    "Resource",
    "Run",
    "RunCancelled",
    "RunDead",
    "RunError",
    "RunFailed",
    "RunInfo",
    "RunParked",
    "RunTimeout",
    "Schedule",
    "ScheduleInfo",
    "Session",
    "SessionChange",
    "SessionInfo",
    "SettingsError",
    "StaleFence",
    "Step",
    "StepFailed",
    "StepTimeout",
    "StoreBroken",
    "StoreError",
    "StoreTooNew",
    "StoreUnavailable",
    "StreamStalled",
    "SyncEffect",
    "SyncResource",
    "SyncStep",
    "Unchecked",
    "UnknownEffect",
    "UnknownRun",
    "UnknownSchedule",
    "Unrecordable",
    "Unrecorded",
    "VersionConflict",
    "Watch",
    "WorkerInfo",
    "Workflow",
    "WrongStatus",
    "__version__",
    "budget",
    "checkpoint",
    "compensate_with",
    "current",
    "each",
    "effect",
    "limiter",
    "map",
    "now",
    "progress",
    "publish",
    "random",
    "receive",
    "resource",
    "resume_stream",
    "run",
    "scope",
    "session",
    "sleep",
    "started_before",
    "step",
    "unit",
    "update_sessions",
    "uuid",
    "workflow",
]

SYNC_ITS_OWN = [
    "Checkpoint",
    "Item",
    "Outlast",
    "Output",
    "Queue",
    "Run",
    "Session",
    "SessionChange",
    "Watch",
    "checkpoint",
    "compensate_with",
    "each",
    "map",
    "publish",
    "receive",
    "resume_stream",
    "run",
    "session",
    "sleep",
    "started_before",
    "update_sessions",
]
"""What waits, and therefore blocks there. Everything else is the same object."""

MODULES = [outlast, outlast.sync]
HEAVY = [
    "hiredis", "httpx", "opentelemetry", "prometheus_client", "psycopg", "pydantic", "redis", "rich", "sqlite3", "starlette", "typer", "uvicorn",
]  # fmt: skip


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_exported_names_are_pinned(module):
    assert sorted(module.__all__) == NAMES
    assert all(hasattr(module, name) for name in NAMES)


def test_the_sync_names_are_the_same_objects_but_for_what_waits():
    differing = [
        name for name in NAMES if getattr(outlast, name) is not getattr(outlast.sync, name)
    ]
    assert differing == SYNC_ITS_OWN


def test_the_sync_outlast_has_every_public_method_of_the_async_one():
    for name in ("Checkpoint", "Item", "Outlast", "Output", "Queue", "Run", "Session"):
        theirs, ours = getattr(outlast, name), getattr(outlast.sync, name)
        missing = {one for one in dir(theirs) if not one.startswith("_")} - set(dir(ours))
        assert not missing, f"outlast.sync.{name} lacks {missing}"


def test_the_sync_methods_take_what_the_async_ones_take():
    for name, method in vars(outlast.Outlast).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            ours = inspect.signature(getattr(outlast.sync.Outlast, name))
            assert list(ours.parameters)[1:] == list(inspect.signature(method).parameters)[1:], name


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_public_name_has_a_docstring(module):
    assert module.__doc__
    for name in NAMES:
        thing = getattr(module, name)
        if callable(thing):
            assert (thing.__doc__ or "").strip(), name
    for method in public_methods(module.Outlast) + public_methods(module.Run):
        assert (method.__doc__ or "").strip(), method


def public_methods(kind):
    return [
        method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    ]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_importing_it_is_light(module):
    code = f"import sys, {module.__name__}; print(*sorted(set(sys.modules) & set({HEAVY})))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.split() == []


def test_names_of_the_logs_module_are_pinned():
    assert sorted(outlast.logs.__all__) == ["JSONFormatter", "TextFormatter", "configure"]
    assert all((getattr(outlast.logs, name).__doc__ or "").strip() for name in outlast.logs.__all__)


def tree_in_docstring():
    """Class name to the name of its parent, as drawn."""
    drawn, above = {}, []
    for line in (outlast.errors.__doc__ or "").splitlines():
        found = re.match(r"^    ([│├└─ ]*)(\w+)", line)
        if found and (found[1] or found[2] in ("Exception", "BaseException")):
            depth = len(found[1]) // 4
            above[depth:] = [found[2]]
            if depth:
                drawn[found[2]] = above[depth - 1]
    return drawn


def parent(kind: type) -> type:
    return next(base for base in kind.__bases__ if base is not Explained)


def test_every_error_is_in_the_tree_drawn_in_errors_py():
    kinds = {
        name: kind
        for name, kind in vars(outlast.errors).items()
        if inspect.isclass(kind)
        and issubclass(kind, BaseException)
        and kind.__module__ == "outlast.errors"
    }
    drawn = tree_in_docstring()
    assert sorted(drawn) == sorted(kinds)
    assert {name: parent(kind).__name__ for name, kind in kinds.items()} == drawn


def test_every_error_is_exported():
    assert sorted(tree_in_docstring()) == sorted(
        name
        for name in NAMES
        if inspect.isclass(getattr(outlast, name))
        and issubclass(getattr(outlast, name), BaseException)
    )
