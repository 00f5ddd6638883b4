"""Record that a step's body has started, for bodies that ask."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from outlast.execution import recording
from outlast.store.commands import SaveProgress

if TYPE_CHECKING:
    from outlast.execution.step_execution import StepExecution

PART = "(started)"


async def started_before(step: StepExecution) -> bool:
    """Return whether an earlier attempt or execution of the step has called this.

    Otherwise record this attempt and return once that is durable. Runs on the host loop.
    """
    execution = step.execution
    execution.check_active()
    key = step.key + PART
    # A step within a step starts at attempt 1 in each attempt of the outer step.
    attempt = f'"{execution.fence}:{step.outer.attempt}:{step.attempt}"'
    recorded = execution.steps.progress.take(key, step)
    if recorded is not None:
        return recorded != attempt
    written: asyncio.Future[None] = execution.host.create_future()

    def done(_: Any) -> None:
        if not written.done():
            written.set_result(None)

    execution.steps.progress.remember(key, attempt)
    command = SaveProgress(execution.pk, execution.fence, key, step.attempt, attempt)
    recording.save(execution, command, done)
    await written
    # A refused write has stopped the execution.
    execution.check_active()
    return False
