"""List the work that a drain waits for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from outlast.engine.in_flight_registry import HeldState
from outlast.shutdown.report import Remaining

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.execution.run_execution import RunExecution
    from outlast.execution.step_execution import StepExecution

EFFECT_OPEN = "an effect is in flight and is not interrupted: its outcome is open"


def executing_steps(engine: Engine) -> Iterator[tuple[RunExecution, StepExecution]]:
    """Yield every step that executes, with its run."""
    for execution in list(engine.in_flight.executions.values()):
        for body in execution.steps.executing():
            yield execution, body


def remaining_work(engine: Engine) -> Iterator[Remaining]:
    """Yield everything that is still in flight, and why. Call it on the event loop."""
    for execution in list(engine.in_flight.executions.values()):
        yield from _of_run(execution, engine.loop.time())
    for consumer in engine.claimers.consumers:
        for id in consumer.under_way:
            yield Remaining("item", id, why="its handler has not ended")
    for row in engine.in_flight.in_state(HeldState.BY_HAND):
        yield Remaining("item", row.id, why="it was claimed and neither acked nor nacked")
    now = time.monotonic()
    for scope in engine.active_scopes:
        seconds = round(now - scope.since, 3)
        yield Remaining(scope.kind, scope.name, seconds=seconds, why="it has not ended")


def snapshot(engine: Engine) -> list[Remaining]:
    """Return what is still in flight. May be called from any thread.

    Return an empty list if the work keeps changing during three attempts.
    """
    for _ in range(3):
        try:
            return list(remaining_work(engine))
        except RuntimeError:
            # A collection changed during the iteration.
            continue
    return []


def _of_run(execution: RunExecution, now: float) -> Iterator[Remaining]:
    steps = execution.steps.executing()
    for body in steps:
        yield Remaining("run", execution.id, body.key, round(now - body.since, 3), _why(body))
    if not steps:
        in_thread = execution.steps.threads or execution.sync_thread is not None
        why = "one of its threads is still running" if in_thread else "its state is being recorded"
        yield Remaining("run", execution.id, why=why)


def _why(body: StepExecution) -> str:
    if body.is_effect:
        return EFFECT_OPEN if body.leaving else "an effect is in flight"
    why = "it was asked to stop and did not" if body.leaving else "a step is in flight"
    return f"{why}, in a thread" if body.threads else why
