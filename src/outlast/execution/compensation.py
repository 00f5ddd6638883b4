"""Compensate the effects of a run, or of a unit that an exception leaves.

A run that failed, was cancelled or was abandoned executes this instead of its workflow. Effects are
handled newest first, one at a time: open ones are resolved, and those that happened are
compensated.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from outlast.errors import Unrecordable
from outlast.errors.sentences import stopped
from outlast.execution import effect_launch, recording, release
from outlast.execution.call_site import EffectSite
from outlast.execution.calls import make_awaitable, until_delivered, wait_for_outcome
from outlast.execution.effect_call import EffectCall, check_known, find
from outlast.execution.effects_from_journal import UNDO, EffectRecord
from outlast.execution.unit_scope import join, units_around

if TYPE_CHECKING:
    from outlast.execution.call_site import CallSite
    from outlast.execution.definitions import EffectDefinition
    from outlast.execution.run_execution import RunExecution

CHILDREN = f"{UNDO}(children)"
UNKNOWN_SECONDS = 600.0
"""How long compensation waits for a worker with the effect's code before a person is asked."""
BACK_SECONDS = 5.0
"""How long a run is left to other workers if this worker's code does not define its effect."""


def register(execution: RunExecution, effect_call: EffectCall) -> Coroutine[Any, Any, None]:
    """Return a coroutine that registers a compensation for the run.

    Its call site is reserved now.
    """
    effect = effect_call.effect
    check_known(effect)
    fields: dict[str, Any] = {
        "effect": effect.name,
        "code": effect.code,
        "arguments": effect_call.arguments,
    }
    execution.services.check_size(json.dumps(fields), f"the arguments of {effect.name}")
    units = units_around(effect, needs_compensation=False)
    call_site = execution.calls.reserve(
        "compensation",
        f"compensate:{effect.key_part}",
        effect_call.fingerprint,
        while_cancelling=True,
    )
    names = join(units, call_site)
    call_site.effect = EffectSite(effect_call, names)
    if names:
        fields["units"] = names
    return make_awaitable(execution, call_site, partial(_record, value=json.dumps(fields)))


def _record(execution: RunExecution, call_site: CallSite, value: str) -> None:
    if recording.record(execution, "compensation", call_site.key, args=call_site.args, value=value):
        execution.services.metrics.compensation("registered")


async def undo(execution: RunExecution) -> None:
    """Compensate the run, as its main task.

    The journal as it was when compensation began is the input. Later entries are replayed.
    """
    assert execution.row.undoing is not None
    compensating = json.loads(execution.row.undoing)["status"] != "done"
    effect_log = execution.journal.effect_log
    undoing = effect_log.undoing
    assert undoing is not None
    if compensating:
        await _end_children(execution)
    for effect_record in list(effect_log):
        if effect_record.kind == "intent" and _was_open(effect_record, undoing):
            await _resolve(execution, effect_record)
        begun = effect_log.get(UNDO + effect_record.place)
        # A unit began it.
        begun_before = begun is not None and begun.intent > 0 and begun.first < undoing
        done_before = effect_record.undone is not None and effect_record.undone < undoing
        to_undo = effect_record.happened and not done_before and not effect_record.by_hand
        if to_undo and (compensating or begun_before):
            await _compensate(execution, effect_record)


def compensate_children(
    execution: RunExecution, call_site: CallSite, place: str | None = None
) -> None:
    """Compensate the child called at `place`, or all children that have not ended."""
    execution.services.children.compensate(execution, call_site, place)


async def _end_children(execution: RunExecution) -> None:
    """End the children that have not ended, and compensate those whose end is not in the journal.

    They come first because they are the newest.
    """
    call_site = execution.calls.reserve_at("child", CHILDREN, None)
    await _outcome(execution, wait_for_outcome(execution, call_site, compensate_children))


def _was_open(effect_record: EffectRecord, undoing: int) -> bool:
    """Return whether the effect was open when compensation began.

    It may have been resolved since.
    """
    closed_since = effect_record.closed is not None and effect_record.closed.seq > undoing
    return effect_record.open or closed_since or effect_record.intent > undoing


async def _is_on_record(execution: RunExecution, effect_record: EffectRecord | None) -> bool:
    """Replay an effect whose outcome was recorded since compensation began.

    Return False if there is none. A worker that continues a compensation does not need the code of
    the recorded effects.
    """
    if (
        effect_record is None
        or effect_record.closed is None
        or effect_record.place not in execution.journal.placed
    ):
        return False
    call_site = execution.calls.reserve_at("step", effect_record.place, effect_record.closed.args)
    call_site.effect = EffectSite(EffectCall.answered(effect_record))
    await _outcome(execution, wait_for_outcome(execution, call_site, effect_launch.launch))
    return True


async def _resolve(execution: RunExecution, effect_record: EffectRecord) -> None:
    if await _is_on_record(execution, effect_record):
        return
    effect = await _known(execution, effect_record.effect, effect_record.code)
    call_site = execution.calls.reserve_at("step", effect_record.place, effect_record.args)
    effect_call = EffectCall.recorded(effect, effect_record, resolve_only=True)
    await _outcome(
        execution,
        effect_launch.attend(execution, call_site, effect_call, effect_record.units),
    )


async def _compensate(execution: RunExecution, effect_record: EffectRecord) -> None:
    if effect_record.kind == "child":
        call_site = execution.calls.reserve_at("child", UNDO + effect_record.place, None)
        launch = partial(compensate_children, place=effect_record.place)
        await _outcome(execution, wait_for_outcome(execution, call_site, launch))
        return
    begun = execution.journal.effect_log.get(UNDO + effect_record.place)
    needless = effect_record.kind == "intent" and effect_record.compensation is None
    if needless or await _is_on_record(execution, begun):
        return
    effect = await _known(execution, effect_record.effect, effect_record.code)
    effect_call = EffectCall.recorded(effect, effect_record, resolve_only=False)
    if effect_record.kind == "intent":
        compensation = effect.compensation
        if compensation is None or compensation.name != effect_record.compensation:
            compensation = await _known(
                execution, effect_record.compensation or "", effect_record.code
            )
        if begun is not None and begun.intent:
            # The recorded arguments count, even if the code takes other arguments by now.
            effect_call = EffectCall.recorded(compensation, begun, resolve_only=False)
        else:
            assert effect_record.closed is not None
            result = effect_record.value if effect_record.closed.error is None else None
            effect_call = await _undoing(
                execution, effect_record, effect_call, compensation, result
            )
    call_site = execution.calls.reserve_at(
        "step", UNDO + effect_record.place, effect_call.fingerprint
    )
    await _outcome(execution, effect_launch.attend(execution, call_site, effect_call))


async def _undoing(
    execution: RunExecution,
    effect_record: EffectRecord,
    effect_call: EffectCall,
    compensation: EffectDefinition,
    result: str | None,
) -> EffectCall:
    """Build the call of a compensation.

    If that is impossible, leave the effect to a person and never return: no valid arguments are
    known.
    """
    try:
        return effect_call.undo(compensation, effect_record.key, result)
    except Unrecordable as unfit:
        why = (
            f"its compensation {compensation.name} cannot be called: {stopped(str(unfit))} "
            "Undo it by hand, then decide that it happened."
        )
        release.mark_unknown(execution, UNDO + effect_record.place, why)
        await asyncio.Future(loop=execution.loop)
        raise


async def _outcome(execution: RunExecution, coro: Coroutine[Any, Any, Any]) -> None:
    """Await an outcome and ignore its exception, which only means that the effect did not happen.

    Raise it if the execution has ended. An effect that cannot be compensated never gets here.
    """
    try:
        await coro
    except asyncio.CancelledError:
        if execution.end_reason is not None:
            raise
    except Exception:
        if execution.end_reason is not None:
            raise


async def _known(execution: RunExecution, name: str, module: str) -> EffectDefinition:
    effect = find(name, module)
    if effect is None and execution.clock.now() - execution.journal.effect_log.at > UNKNOWN_SECONDS:
        raise LookupError(
            f"no worker has had the code of effect {name} for {UNKNOWN_SECONDS:.0f} s"
        )
    if effect is None:
        release.release(
            execution, f"effect {name} is not known to this worker's code", BACK_SECONDS
        )
        await asyncio.Future(loop=execution.loop)
    assert effect is not None
    return effect


async def undo_members(execution: RunExecution, members: Sequence[CallSite]) -> None:
    """Compensate a unit's effects, newest first, once all their outcomes are known."""
    for call_site in members:
        if call_site.effect is not None and call_site.kind == "step":
            # An effect that has not acted yet must not act.
            call_site.effect.call.resolve_only = True
            if call_site.stop is not None:
                # Nor does the unit wait for its next attempt.
                call_site.stop()
    for call_site in members:
        if call_site.coro is None and call_site.effect is not None:
            # The workflow has awaited the call.
            await until_delivered(execution, call_site, call_site.effect)
    for call_site in reversed(members):
        site = call_site.effect
        effect_record = execution.journal.effect_log.get(call_site.key)
        if site is None or site.text is None or site.undone or effect_record is None:
            continue
        effect_call = site.call
        if call_site.kind == "compensation":
            undoing = effect_call
        elif effect_call.effect.compensation is not None:
            result = None if call_site.error is not None else site.text
            undoing = await _undoing(
                execution, effect_record, effect_call, effect_call.effect.compensation, result
            )
        else:
            continue
        where = execution.calls.reserve_at("step", UNDO + call_site.key, undoing.fingerprint)
        await _outcome(execution, effect_launch.attend(execution, where, undoing))
        site.undone = True
