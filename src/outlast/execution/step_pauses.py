"""Let a step wait for its next attempt, or end and continue later without using one up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from outlast.execution import recording
from outlast.execution.call_site import CallSite
from outlast.execution.execution_state import EndReason
from outlast.execution.journal import POSTPONED
from outlast.execution.step_execution import StepExecution
from outlast.execution.step_uses import Postponement
from outlast.execution.unit_scope import UNIT

if TYPE_CHECKING:
    from outlast.execution.definitions import StepDefinition


class StepPostponed(asyncio.CancelledError):
    """Ends the body of a sync step that is postponed."""


async def pause(body: StepExecution, seconds: float) -> None:
    """Wait until the next attempt.

    During a drain, another execution makes that attempt, unless a unit must end first.
    """
    services = body.execution.services
    until = services.host.time() + seconds
    body.become_idle()
    if body.outer is body:
        body.execution.settled()
        await asyncio.sleep(seconds)
        if not body.execution.may_start(UNIT.get()):
            # The wait is cancelled when the run is released.
            await services.host.create_future()
    elif seconds > 0:
        await asyncio.wait([services.shutdown.announced], timeout=seconds)
        services.shutdown.check_nested(UNIT.get())
        await asyncio.sleep(until - services.host.time())
    body.become_active()


async def wait_until(body: StepExecution, until: float) -> None:
    """Wait on the store's clock. The run may be released in the meantime."""
    with body.waiting_until(until):
        await pause(body, until - body.execution.clock.now())


def may_postpone(body: StepExecution) -> bool:
    """Return whether a step may end now and execute again later.

    An effect may have begun to act. Ending a step within a step, an item of a `map`, or a step
    that uses several limiters at a time would cut off what else is in flight.
    """
    return (
        type(body) is StepExecution
        and body.outer is body
        and body.task is not None
        and not body.is_effect
        and len(body.uses.open) <= 1
    )


async def postpone(body: StepExecution, postponement: Postponement) -> None:
    """End the body of an async step, which continues later. Never return."""
    assert body.task is not None
    body.uses.postpone(postponement._replace(cancelled=True))
    body.task.cancel()
    if asyncio.current_task() is not body.task:
        raise StepPostponed
    await body.execution.host.create_future()


def postpone_thread(body: StepExecution, postponement: Postponement) -> StepPostponed:
    """Return the exception that ends the body of a sync step, which continues later."""
    body.outer.uses.postpone(postponement)
    return StepPostponed()


async def wait_if_postponed(
    body: StepExecution, call_site: CallSite, step: StepDefinition, args: Any, kwargs: Any
) -> bool:
    """Wait until a postponed step continues. Return False if it was not postponed.

    Also return False if it has been cancelled meanwhile, or must stop.
    """
    postponed = body.postponed
    execution = body.execution
    if postponed is None or call_site.asked or execution.end_reason is not None:
        return False
    if postponed.cancelled and (task := asyncio.current_task()) is not None:
        task.uncancel()
    body.continue_later()
    recording.record(
        execution,
        "attempt",
        body.key,
        args=POSTPONED + postponed.why,
        value=str(postponed.until),
        attempt=body.attempt - 1,
        cost=body.take_cost(),
    )
    await wait_until(body, postponed.until)
    if postponed.wait is not None:
        with body.blocked():
            await postponed.wait()
    if step.signature.fingerprint(args, kwargs) != call_site.args:
        # The next execution starts with the arguments as they were.
        execution.stop(EndReason.released("a postponed step has changed its arguments"))
        await execution.host.create_future()
    return True
