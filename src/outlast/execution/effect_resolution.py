"""Resolve open intents: an effect was about to act, and it is unknown whether it did.

First wait until the act can no longer be in flight. Then ask `verify`, or act again if the effect
is idempotent. Otherwise a person must decide.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any

from outlast.codec.exceptions import describe_error, encode_error
from outlast.errors import Unrecordable
from outlast.errors.sentences import stopped
from outlast.execution import recording
from outlast.execution.effect_call import DID_NOT, NOT_DONE, NOT_KNOWN, Happened, Outcome
from outlast.execution.effects_from_journal import Decision, EffectRecord
from outlast.telemetry.error_text import format_error

if TYPE_CHECKING:
    from outlast.execution.definitions import EffectDefinition
    from outlast.execution.effect_executor import EffectExecutor

log = logging.getLogger("outlast.replay")

ACTS_AGAIN = 3
"""The minimum number of repeated acts for an effect whose act raised and did not happen, or that
is idempotent."""
BACKOFF = 1.0
BACKOFF_MAX = 60.0
"""The first and the longest pause in seconds before verify is asked again, if it could not tell."""


async def resolve(executor: EffectExecutor, effect_record: EffectRecord) -> Outcome | None:
    """Find out whether the effect happened. Return None if it did not, or if it may act again."""
    effect = executor.effect
    await until_over(executor, effect_record)
    if executor.state.threads:
        # The act started threads. One of them may still be acting.
        await asyncio.wait(executor.state.threads)
    if effect.verifier is not None:
        return await _verify(executor, effect_record)
    if not effect.idempotent:
        why = (
            f" It raised {stopped(describe_error(effect_record.error))}"
            if effect_record.error
            else ""
        )
        return await executor.unknown(f"Outlast cannot determine whether it happened.{why}")
    # A workflow that only stopped waiting continues, and may repeat the call under another key.
    ends = executor.effect_call.resolve_only or (
        executor.unwanted and executor.execution.cancellation.reason is not None
    )
    if ends and effect_record.compensation is None:
        return NOT_KNOWN
    if is_exhausted(executor, effect_record):
        return await executor.unknown(failures(effect_record))
    executor.may_repeat = True
    return None


async def until_over(executor: EffectExecutor, effect_record: EffectRecord) -> None:
    """Wait until the act can no longer be in flight, however the worker died.

    In the execution that acted, an idempotent effect without verify only backs off.
    """
    span = effect_record.timeout + executor.services.settings.effect_margin
    if executor.acted_at is None:
        # A thread continued until its process died, whatever its time-out was.
        since = (
            max(effect_record.at, effect_record.ended)
            if effect_record.threaded
            else effect_record.at
        )
        _log_wait(executor, effect_record, since + span - executor.execution.clock.now())
        await executor.until(since + span)
    elif executor.effect.idempotent and executor.effect.verifier is None:
        await executor.until(effect_record.retry_at)
    else:
        # Also wait by the monotonic clock, which does not jump.
        left = executor.over_at - executor.execution.host.time()
        await executor.until(max(effect_record.at + span, executor.execution.clock.now() + left))


def _log_wait(executor: EffectExecutor, effect_record: EffectRecord, seconds: float) -> None:
    """Log the wait, because a program that only waits seems to hang."""
    if seconds > 0:
        # It raised, so no death interrupted it.
        raised = effect_record.retry_at > effect_record.at
        log.warning(
            "Effect %s of run %s %s. It may still be in flight. In %.0f s Outlast %s.",
            executor.call_site.key,
            executor.execution.id,
            "raised" if raised else "was in flight when its process ended",
            seconds,
            _next_action(executor.effect, effect_record),
            extra=executor.execution.log_fields(executor.call_site.key),
        )


def _next_action(effect: EffectDefinition, effect_record: EffectRecord) -> str:
    """Describe what Outlast does with an open effect when the wait is over."""
    if effect_record.decision is None and effect.verifier is not None:
        return "checks whether it happened"
    if effect_record.decision is None and not effect.idempotent:
        return "parks the run, because it cannot determine whether it happened"
    return "calls it again with the same key"


async def decided(executor: EffectExecutor, decision: Decision) -> Outcome:
    """Return the outcome that a person decided.

    The person's command may not have had the code that checks the result, so it is decoded here. If
    it is not a valid result, park the run again or record the error.
    """
    text = decision.value or "null"
    try:
        return Outcome(text, executor.effect.signature.returns().decode(text))
    except Unrecordable as unfit:
        has_result = text != "null" or not executor.effect_call.resolve_only
        if has_result and not executor.is_compensation:
            return await executor.unknown(
                f"it was decided that it happened, but {text[:80]} is not a result of it: "
                f"{stopped(str(unfit))}"
            )
        why = f"the value decided for effect {executor.effect.name} is not a result of it: {unfit}"
        if text == "null" and not executor.is_compensation:
            # `decide --compensate` was used without a result.
            why = (
                f"the decision did not give the result of effect {executor.effect.name}, "
                "only that it is to be compensated."
            )
        error = Unrecordable(why)
        return Outcome(text, None, encode_error(error, executor.services.settings.error_text_max))


async def _verify(executor: EffectExecutor, effect_record: EffectRecord) -> Outcome | None:
    while True:
        if effect_record.asked >= executor.services.settings.verify_attempts:
            doubt = (
                describe_error(effect_record.doubt)
                if effect_record.doubt
                else "no reason was recorded"
            )
            return await executor.unknown(f"verify could not tell: {stopped(doubt)}")
        await executor.until(effect_record.ask_at)
        try:
            answer = await _ask(executor, effect_record)
        except Exception as error:
            await _record_doubt(executor, effect_record, error)
            continue
        if answer is not None:
            return executor.result(answer.result)
        if executor.unwanted:
            return NOT_DONE
        if is_exhausted(executor, effect_record) and effect_record.error is not None:
            if executor.is_compensation:
                return await executor.unknown(failures(effect_record))
            return Outcome(error=effect_record.error)
        await recording.record_and_wait(
            executor.execution, "verify", executor.call_site.key, args=DID_NOT
        )
        return None


async def _ask(executor: EffectExecutor, effect_record: EffectRecord) -> Happened[Any] | None:
    """Return verify's answer, under the effect's own time-out.

    A verify thread that takes longer is not waited for, because it changes nothing. Raise TypeError
    for an answer of another type.
    """
    effect = executor.effect
    body = executor.body
    assert effect.verifier is not None
    if effect in executor.services.steps.overrides:
        # The test's override of the effect has touched nothing.
        return None
    wanted = executor.effect_call.for_verify(effect_record.key)
    body.become_active()
    try:
        async with asyncio.timeout(effect.timeout):
            if inspect.iscoroutinefunction(effect.verifier):
                answer = await effect.verifier(**wanted)
            else:
                answer = await asyncio.shield(executor.in_thread(effect.verifier, **wanted))
    finally:
        body.become_idle()
    if answer is not None and not isinstance(answer, Happened):
        raise TypeError(
            f"verify of effect {effect.name} must return Happened(result) or None, not {answer!r}"
        )
    return answer


async def _record_doubt(
    executor: EffectExecutor, effect_record: EffectRecord, error: Exception
) -> None:
    execution = executor.execution
    key = executor.call_site.key
    asked = effect_record.asked + 1
    message = format_error(error, executor.services.log_values)
    log.warning(
        "Could not verify effect %s of run %s: %s",
        key,
        execution.id,
        message,
        extra=execution.log_fields(key, asked),
    )
    pause = min(BACKOFF_MAX, BACKOFF * 2.0 ** (asked - 1))
    text = encode_error(error, executor.services.settings.error_text_max)
    if executor.body.error_text is None:
        executor.body.note_error(text)
    await recording.record_and_wait(
        execution,
        "verify",
        key,
        value=str(execution.clock.now() + pause),
        error=text,
        attempt=asked,
    )


def is_exhausted(executor: EffectExecutor, effect_record: EffectRecord) -> bool:
    """Return whether the effect has used up its retries.

    Compensations get exactly their own `retries`, whose default suits them. Other effects get at
    least ACTS_AGAIN.
    """
    floor = 0 if executor.is_compensation else ACTS_AGAIN
    return effect_record.raised > max(executor.effect.retries, floor)


def failures(effect_record: EffectRecord) -> str:
    last = (
        describe_error(effect_record.error)
        if effect_record.error
        else "an error that was not recorded"
    )
    return f"it has failed {effect_record.raised} times, the last time with {stopped(last)}"
