"""An open intent: an effect was about to act, and nobody knows whether it did. First until it can no longer be under way; then what `verify`
says, or, if it is idempotent, once more; else a person must decide."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any

from outlast.errors import Unrecordable
from outlast.replay.dealings import Dealing, Decision
from outlast.replay.errand import DID_NOT, NOT_DONE, NOT_KNOWN, Happened, Outcome
from outlast.telemetry.values import told
from outlast.values.exceptions import describe_error, encode_error
from outlast.values.sentences import stopped

if TYPE_CHECKING:
    from outlast.replay.effects import Dealer

log = logging.getLogger("outlast.replay")

ACTS_AGAIN = 3
"""How often, at least, an effect acts again whose act raised and turned out not to have happened, or that is idempotent."""
BACKOFF, BACKOFF_MAX = 1.0, 60.0
"""Seconds between two askings of a verify that cannot tell."""


async def resolve(dealer: Dealer, dealing: Dealing) -> Outcome | None:
    """Find out whether it happened. None: it did not, or it may be done again."""
    effect = dealer.effect
    await until_over(dealer, dealing)
    if dealer.body.strays:  # threads that the act has started: one may still be at it
        await asyncio.wait(dealer.body.strays)
    if effect.verifier is not None:
        return await _verify(dealer, dealing)
    if not effect.idempotent:
        why = f" It raised {stopped(describe_error(dealing.error))}" if dealing.error else ""
        return await dealer.unknown(f"nobody can tell whether it happened.{why}")
    # A workflow that only gave up waiting goes on, and may do the same under another key.
    ends = dealer.errand.resolve_only or (dealer.unwanted and dealer.life.cancelling is not None)
    if ends and dealing.compensation is None:
        return NOT_KNOWN
    if is_exhausted(dealer, dealing):
        return await dealer.unknown(failures(dealing))
    dealer.may_repeat = True
    return None


async def until_over(dealer: Dealer, dealing: Dealing) -> None:
    """Until the act can no longer be under way, however the worker died. In the life that acted, an idempotent effect only backs off."""
    span = dealing.timeout + dealer.house.settings.effect_margin
    if dealer.acted_at is None:
        # A thread went on until its process died, whatever its time-out was.
        since = max(dealing.at, dealing.ended) if dealing.threaded else dealing.at
        _say_wait(dealer, dealing, since + span - dealer.life.now())
        await dealer.until(since + span)
    elif dealer.effect.idempotent and dealer.effect.verifier is None:
        await dealer.until(dealing.retry_at)
    else:  # by the clock that does not jump, too
        left = dealer.over_at - dealer.life.host.time()
        await dealer.until(max(dealing.at + span, dealer.life.now() + left))


def _say_wait(dealer: Dealer, dealing: Dealing, seconds: float) -> None:
    """A program that only waits looks as if it hung."""
    if seconds > 0:
        raised = dealing.retry_at > dealing.at  # and so was not cut
        log.warning(
            "effect %s of run %s %s: in %.0f s it cannot be %sany more, then it is found out whether it happened",
            dealer.place.key, dealer.life.id, "raised, and may have happened" if raised else "was under way when its process ended",
            seconds, "under way " if raised else "", extra=dealer.life.facts(dealer.place.key),
        )  # fmt: skip


async def decided(dealer: Dealer, decision: Decision) -> Outcome:
    """What a person has said. Who said it need not have had the code that knows what a result of it is."""
    text = decision.value or "null"
    try:
        return Outcome(text, dealer.effect.signature.returns().decode(text))
    except Unrecordable as unfit:
        said = text != "null" or not dealer.errand.resolve_only
        if said and not dealer.is_compensation:
            return await dealer.unknown(
                f"it was decided that it happened, but {text[:80]} is no result of it: {stopped(str(unfit))}"
            )
        why = f"what was decided of effect {dealer.effect.name} is no result of it: {unfit}"
        if text == "null" and not dealer.is_compensation:  # --compensate, without one
            why = f"nobody said with which result effect {dealer.effect.name} happened, only that it is to be undone."
        error = Unrecordable(why)
        return Outcome(text, None, encode_error(error, dealer.house.settings.error_text_max))


async def _verify(dealer: Dealer, dealing: Dealing) -> Outcome | None:
    while True:
        if dealing.asked >= dealer.house.settings.verify_attempts:
            doubt = describe_error(dealing.doubt) if dealing.doubt else "it does not say why"
            return await dealer.unknown(f"verify could not tell: {stopped(doubt)}")
        await dealer.until(dealing.ask_at)
        try:
            answer = await _ask(dealer, dealing)
        except Exception as error:
            await _could_not_tell(dealer, dealing, error)
            continue
        if answer is not None:
            return dealer.result(answer.result)
        if dealer.unwanted:
            return NOT_DONE
        if is_exhausted(dealer, dealing) and dealing.error is not None:
            if dealer.is_compensation:
                return await dealer.unknown(failures(dealing))
            return Outcome(error=dealing.error)
        await dealer.life.record_and_wait("verify", dealer.place.key, args=DID_NOT)
        return None


async def _ask(dealer: Dealer, dealing: Dealing) -> Happened[Any] | None:
    """What verify says, under the effect's own time-out. A thread that takes longer changes nothing: nobody waits for it."""
    effect, body = dealer.effect, dealer.body
    assert effect.verifier is not None
    if effect in dealer.house.stand_ins:
        return None  # what stands in for it, in a test, has touched nothing
    wanted = dealer.errand.for_verify(dealing.key)
    body.idle, body.since = False, dealer.life.host.time()
    try:
        async with asyncio.timeout(effect.timeout):
            if inspect.iscoroutinefunction(effect.verifier):
                answer = await effect.verifier(**wanted)
            else:
                answer = await asyncio.shield(dealer.in_thread(effect.verifier, **wanted))
    finally:
        body.idle = True
    if answer is not None and not isinstance(answer, Happened):
        raise TypeError(f"verify of effect {effect.name} answers Happened(result) or None, not {answer!r}")
    return answer


async def _could_not_tell(dealer: Dealer, dealing: Dealing, error: Exception) -> None:
    life, key, asked = dealer.life, dealer.place.key, dealing.asked + 1
    said = told(error, dealer.house.log_values)
    log.warning(
        "verify of effect %s of run %s could not tell: %s", key, life.id, said, extra=life.facts(key, asked)
    )
    pause = min(BACKOFF_MAX, BACKOFF * 2.0 ** (asked - 1))
    text = encode_error(error, dealer.house.settings.error_text_max)
    dealer.body.error_text = dealer.body.error_text or text
    await life.record_and_wait("verify", key, value=str(life.now() + pause), error=text, attempt=asked)


def is_exhausted(dealer: Dealer, dealing: Dealing) -> bool:
    """A compensation has as many retries as it says: they have a default that is meant for it."""
    floor = 0 if dealer.is_compensation else ACTS_AGAIN
    return dealing.raised > max(dealer.effect.retries, floor)


def failures(dealing: Dealing) -> str:
    last = describe_error(dealing.error) if dealing.error else "something that is not on record"
    return f"it has failed {dealing.raised} times, at last by {stopped(last)}"
