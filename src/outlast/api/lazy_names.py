"""Load public names that few programs use when they are first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

SHARED = {
    "Budget": "outlast.api.budget",
    "BudgetInfo": "outlast.engine.budgets",
    "BudgetUse": "outlast.api.budget",
    "BulkReport": "outlast.engine.bulk",
    "DataEvent": "outlast.engine.watching.events",
    "DrainReport": "outlast.shutdown.report",
    "EffectInfo": "outlast.engine.inspection",
    "EndEvent": "outlast.engine.watching.events",
    "LimitInfo": "outlast.engine.limiters",
    "Limiter": "outlast.api.limiter",
    "LimiterInfo": "outlast.engine.limiters",
    "LimiterUse": "outlast.api.limiter",
    "PausedWorkflow": "outlast.store.pauses",
    "QueueInfo": "outlast.engine.inspection",
    "ResetEvent": "outlast.engine.watching.events",
    "RunInfo": "outlast.engine.inspection",
    "Schedule": "outlast.api.schedule",
    "ScheduleInfo": "outlast.api.schedule",
    "WorkerInfo": "outlast.engine.inspection",
    "budget": "outlast.api.budget",
    "limiter": "outlast.api.limiter",
}
"""The names that `outlast` and `outlast.sync` share, each with the module that defines it."""


def lazy_names(namespace: dict[str, Any], modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__`, which loads each name from the module given for it."""

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        namespace[name] = loaded = getattr(import_module(modules[name]), name)
        return loaded

    return load
