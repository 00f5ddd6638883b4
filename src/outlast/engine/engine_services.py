"""Give executions what they need of an engine, and find the engine of an execution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outlast.engine.children import Children
from outlast.engine.run_observer import RunObserver
from outlast.execution.run_execution import RunExecution
from outlast.execution.run_store import RunStore
from outlast.execution.services import ExecutionServices, StepBodies

if TYPE_CHECKING:
    from outlast.engine.engine import Engine


@dataclass(slots=True, eq=False, kw_only=True)
class EngineServices(ExecutionServices):
    """The services of one engine. Only the layers above `execution` see the engine in them."""

    engine: Engine


def build_services(engine: Engine) -> EngineServices:
    """Build what all executions of an engine share."""
    writer = engine.writer
    return EngineServices(
        store=RunStore(engine.store, engine.store.now, writer.enqueue, writer.execute, engine.read),
        steps=StepBodies(engine.loop, engine.pool),
        shutdown=engine.shutdown,
        children=Children(engine),
        observer=RunObserver(engine),
        background=engine,
        scopes=engine.active_scopes,
        settings=engine.settings,
        metrics=engine.meters,
        spans=engine.spans,
        host=engine.loop,
        running=engine.in_flight.executions,
        engine=engine,
    )


def engine_of(execution: RunExecution) -> Engine:
    """Return the engine that executes a run."""
    assert isinstance(execution.services, EngineServices)
    return execution.services.engine
