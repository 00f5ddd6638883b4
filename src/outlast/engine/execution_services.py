"""Give executions what they need of an engine, and the layers above what they need of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outlast.execution.services import ExecutionServices

if TYPE_CHECKING:
    from outlast.engine.active_scopes import ActiveScopes
    from outlast.engine.batch_run import Batches
    from outlast.engine.budgets import Budgets
    from outlast.engine.limiters import Limiters
    from outlast.execution.run_execution import RunExecution


@dataclass(slots=True, eq=False, kw_only=True)
class EngineServices(ExecutionServices):
    """The services of one engine, with what code in a step uses of the engine."""

    scopes: ActiveScopes
    batches: Batches
    """Builds the runs of `each` and `map`."""
    find_limiters: Callable[[], Limiters]
    """Returns the limiters that this process uses. Few programs load them."""
    find_budgets: Callable[[], Budgets]
    """Returns the budgets that this process uses."""


def services_of(execution: RunExecution) -> EngineServices:
    """Return the services of the engine that executes a run."""
    assert isinstance(execution.services, EngineServices)
    return execution.services
