"""Give executions what they need of an engine, and find the engine of an execution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outlast.execution.services import ExecutionServices

if TYPE_CHECKING:
    from outlast.engine.active_scopes import ActiveScopes
    from outlast.engine.engine import Engine
    from outlast.execution.run_execution import RunExecution


@dataclass(slots=True, eq=False, kw_only=True)
class EngineServices(ExecutionServices):
    """The services of one engine. Only the layers above `execution` see the engine in them."""

    engine: Engine
    scopes: ActiveScopes


def engine_of(execution: RunExecution) -> Engine:
    """Return the engine that executes a run."""
    assert isinstance(execution.services, EngineServices)
    return execution.services.engine
