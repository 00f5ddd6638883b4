"""Call effects: reserve the call site, start the executor, and record the outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from outlast.codec.exceptions import CANCELLED
from outlast.errors import Diverged, Evicted
from outlast.execution import recording
from outlast.execution.call_site import EffectSite
from outlast.execution.calls import make_awaitable
from outlast.execution.effect_call import EffectCall, Outcome, check_known
from outlast.execution.effect_executor import EffectExecutor
from outlast.execution.effects_from_journal import UNDO
from outlast.execution.execution_state import EndReason
from outlast.execution.step_attachments import EffectState
from outlast.execution.step_attempts import log_call
from outlast.execution.step_execution import BODY, StepExecution
from outlast.execution.unit_scope import join, units_around

if TYPE_CHECKING:
    from outlast.execution.call_site import CallSite
    from outlast.execution.run_execution import RunExecution

log = logging.getLogger("outlast.replay")


def call(
    execution: RunExecution, effect_call: EffectCall, key: str | None = None
) -> Coroutine[Any, Any, Any]:
    """Return a coroutine that executes the effect when awaited.

    The effect's call site is reserved now, under the explicit `key` if there is one. Raise
    DuplicateName or LimitExceeded if the effect cannot be called.
    """
    effect = effect_call.effect
    check_known(effect)
    execution.services.check_size(effect_call.arguments, f"the arguments of effect {effect.name}")
    units = units_around(effect)
    call_site = execution.calls.reserve("step", effect.key_part, effect_call.fingerprint, key=key)
    return attend(execution, call_site, effect_call, join(units, call_site))


def attend(
    execution: RunExecution,
    call_site: CallSite,
    effect_call: EffectCall,
    units: tuple[str, ...] = (),
) -> Coroutine[Any, Any, Any]:
    """Return a coroutine that executes an effect call at its reserved call site.

    `units` are the names of the units around it, outermost first.
    """
    call_site.effect = EffectSite(effect_call, units)
    call_site.codec = effect_call.effect.signature.returns
    return make_awaitable(execution, call_site, launch)


def launch(execution: RunExecution, call_site: CallSite) -> None:
    """Start an effect's body on the host loop. Called on the run loop."""
    assert call_site.effect is not None
    effect_call = call_site.effect.call
    span = execution.trace.span
    state = EffectState()
    body = StepExecution(execution, call_site.key, effect_call.effect.name, {}, effect=state)
    work = (
        _perform(body, call_site, effect_call)
        if span is None
        else span.around(body, partial(_perform, body, call_site, effect_call))
    )
    body.start(work)
    # The executor checks `call_site.cancelled` where it can stop.
    call_site.stop = state.nudge.set


async def _perform(body: StepExecution, call_site: CallSite, effect_call: EffectCall) -> None:
    BODY.set(body)
    execution = body.execution
    body.begin()
    outcome: Outcome | None = None
    try:
        outcome = await EffectExecutor(body, call_site, effect_call).execute()
    except asyncio.CancelledError:
        if execution.end_reason is None and body.leaving is None:
            why = "its effect was cancelled from outside, as at the end of the program"
            execution.stop(EndReason.released(why))
    except (SystemExit, KeyboardInterrupt):
        execution.stop(EndReason.released("its program ended in the middle of an effect"))
        raise
    except (Evicted, Diverged):
        log.debug(
            "Effect %s of run %s is left to the next execution.",
            call_site.key,
            execution.id,
            extra=execution.log_fields(call_site.key),
        )
    finally:
        body.end()
        if not execution.host.is_closed():
            execution.settled()
    if outcome is None:
        return
    call_site.value = outcome.value
    if execution.services.log_values:
        log_call(body, call_site.args or "", outcome.text, outcome.error)
    recorded = recording.record(
        execution, "step", call_site.key, call_site.args, outcome.text, outcome.error,
        perf_counter() - body.started, body.attempt, call_site.cancelled or None,
        cost=body.take_cost(), late=True,
    )  # fmt: skip
    if not recorded:
        recording.log_lost_outcome(execution, call_site.key, outcome.error)
        return
    if outcome.error is not None:
        body.ended("cancelled" if outcome.error == CANCELLED else "failed", error=outcome.error)
    else:
        if outcome.seconds is not None:
            execution.services.steps.durations.add(
                execution.workflow.name, body.name, outcome.seconds
            )
        body.ended("done", outcome.seconds)
    if outcome.text is not None:
        # The effect happened.
        if call_site.key.startswith(UNDO):
            execution.services.metrics.compensation("done")
        elif effect_call.effect.compensation is not None:
            execution.services.metrics.compensation("registered")
