"""Effects, as a life performs them: intent, act, confirm.

Every act is preceded by an intent that this life has recorded under its fence. As long as an intent is open, nothing else is done at its
place but to find out whether it happened (`replay/resolve.py`).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from outlast.errors import Diverged, Evicted, LimitExceeded, StepFailed, StepTimeout, Unrecordable
from outlast.replay import leaving, resolve
from outlast.replay.bodies import BODY, Body, delay_before, say_values
from outlast.replay.dealings import UNDO, Dealing
from outlast.replay.errand import DID_NOT, NOT_DONE, Errand, Outcome, check_known
from outlast.replay.unit import UNIT, join, units_around
from outlast.telemetry.values import told_of
from outlast.values.exceptions import CANCELLED, encode_error

if TYPE_CHECKING:
    from outlast.replay.life import Life
    from outlast.replay.place import Place

log = logging.getLogger("outlast.replay")

INTENTS_MAX = 5
"""How many intents in a row may be slow to become durable: the wait after a death counts from the last."""
SLOW_SECONDS = 0.1
"""What is slow, at least."""


def call(life: Life, errand: Errand) -> Coroutine[Any, Any, Any]:
    """Take the effect's place now; what is returned performs it when awaited."""
    effect = errand.effect
    check_known(effect)
    life.house.check_size(errand.arguments, f"the arguments of effect {effect.name}")
    units = units_around(effect)
    place = life.take("step", effect.name, errand.fingerprint)
    join(units, place)
    return attend(life, place, errand)


def attend(life: Life, place: Place, errand: Errand) -> Coroutine[Any, Any, Any]:
    """Have an errand done at a place that was taken for it."""
    place.errand, place.codec = errand, errand.effect.signature.returns
    return life.calling(place, launch)


def launch(life: Life, place: Place) -> None:
    """Start an effect's body. Called on the run loop; the body executes on the host's."""
    assert place.errand is not None
    body = Body(life, place.key, place.errand.effect.name, {})
    body.is_effect, body.nudge = True, asyncio.Event()
    work = (
        _perform(body, place, place.errand)
        if life.span is None
        else life.span.around(body, partial(_perform, body, place, place.errand))
    )
    task = body.task = asyncio.Task(work, loop=life.host, name=place.key)
    place.stop = body.nudge.set  # it looks at `place.cancelled` where it can stop
    life.bodies[task] = body


async def _perform(body: Body, place: Place, errand: Errand) -> None:
    BODY.set(body)
    life = body.life
    body.started, body.idle = perf_counter(), True
    outcome: Outcome | None = None
    try:
        outcome = await Dealer(body, place, errand).deal()
    except asyncio.CancelledError:
        if life.over is None and body.leaving is None:
            life.evict(Evicted("its effect was cancelled from outside, as at the end of the program"))
    except (SystemExit, KeyboardInterrupt):
        life.evict(Evicted("its program ended in the middle of an effect"))
        raise
    except (Evicted, Diverged):
        log.debug("effect %s of run %s is another life's", place.key, life.id, extra=life.facts(place.key))
    finally:
        life.bodies.pop(body.task, None)  # type: ignore[arg-type]
        body.task = None
        if life.house.draining and not life.host.is_closed():
            life.house.drain.look(life)
    if outcome is None:
        return
    place.value = outcome.value
    if life.house.log_values:
        say_values(body, place.args or "", outcome.text, outcome.error)
    recorded = life.record(
        "step", place.key, place.args, outcome.text, outcome.error, perf_counter() - body.started, body.attempt,
        place.cancelled or None, cost=body.take_cost(), late=True,
    )  # fmt: skip
    if not recorded:
        say_lost(life, place.key, outcome.error)
        return
    if outcome.error is not None:
        body.ended("cancelled" if outcome.error == CANCELLED else "failed", error=outcome.error)
    else:
        if outcome.seconds is not None:
            life.house.durations.add(life.workflow.name, body.name, outcome.seconds)
        body.ended("done", outcome.seconds)
    if outcome.text is not None:  # it happened
        if place.key.startswith(UNDO):
            life.house.meters.compensation("done")
        elif errand.effect.compensation is not None:
            life.house.meters.compensation("registered")


def say_lost(life: Life, key: str, error: str | None) -> None:
    """What came of an effect cannot be recorded."""
    came = "returned" if error is None else f"raised {told_of(error, life.house.log_values)}"
    saying = "effect %s of run %s %s after this worker had lost the run: it may have been done twice"
    log.error(saying, key, life.id, came, extra=life.facts(key))


class Dealer:
    """One effect under way at one place."""

    def __init__(self, body: Body, place: Place, errand: Errand) -> None:
        self.body, self.place, self.errand, self.effect = body, place, errand, errand.effect
        self.life, self.house = body.life, body.life.house
        self.is_compensation = place.key.startswith(UNDO)
        self.acted_at: float | None = None
        """When the last intent of this life was recorded, on the loop's clock."""
        self.over_at = 0.0
        """When what it began can no longer be under way, on the same clock."""
        self.may_repeat = False
        """Its intent is open, and it may be done again all the same: it is idempotent."""

    @property
    def dealing(self) -> Dealing | None:
        return self.life.journal.dealings.get(self.place.key)

    @property
    def unwanted(self) -> bool:
        """Nobody wants it any more: the workflow has cancelled it, or the run or its unit is being undone."""
        return self.place.cancelled or self.errand.resolve_only

    async def deal(self) -> Outcome:
        """Until it is known what happened."""
        while True:
            try:
                outcome = await self._look() or await self._act_if_wanted()
            except Exception as fault:  # nothing of the act's own gets here
                return await self._at_fault(fault)
            if outcome is not None:
                return outcome

    async def _look(self) -> Outcome | None:
        """What the journal has to say of this place. None: it is to be done."""
        dealing = self.dealing
        if dealing is None or not dealing.intent:
            return None
        if dealing.happened:
            return self._kept(dealing)
        if dealing.decision is not None and dealing.decision.what == "happened":
            return await resolve.decided(self, dealing.decision)
        if dealing.open and not self.may_repeat:
            return await resolve.resolve(self, dealing)
        if self.is_compensation and dealing.raised > self.effect.retries:
            return await self.unknown(resolve.failures(dealing))
        if dealing.decision is not None:
            await resolve.until_over(self, dealing)
        await self.until(dealing.retry_at, may_stop=True)
        return None

    def _kept(self, dealing: Dealing) -> Outcome | None:
        """It happened, and a retry made the entry void that says so. With other arguments it is another effect."""
        assert dealing.closed is not None
        if dealing.args != self.place.args:
            dealing.reset()
            return None
        # A plain result is kept aside by the journal, and does not get here; the fold may have forgotten it.
        assert dealing.closed.error is not None or dealing.compensation is not None
        return Outcome(dealing.value, None, dealing.closed.error)

    async def _at_fault(self, fault: Exception) -> Outcome:
        """Something is wrong with the code around the act. Where something may have happened, or must be undone, a person looks."""
        text = encode_error(fault, self.house.settings.error_text_max)
        if self.life.is_open(self.place.key) or self.is_compensation:
            self.body.error_text = text
            key, veil = self.place.key, self.house.veiled(fault)
            log.error("effect %s of run %s", key, self.life.id, exc_info=veil, extra=self.life.facts(key))
            return await self.unknown(f"something is wrong with it: {fault!r}.")
        return Outcome(error=text)

    # -- acting

    async def _act_if_wanted(self) -> Outcome | None:
        """Intent, act. None: it is open, or to be done again."""
        dealing = self.dealing
        in_doubt = dealing is not None and dealing.open
        if self.unwanted and not in_doubt:
            return NOT_DONE
        has_time = self._has_time()
        if not self.life.may_start(UNIT.get()) or not has_time:
            if not has_time:
                self.life.units = 0  # a unit cannot end here either
            self.house.drain.look(self.life)
            await self.life.host.create_future()  # it is cancelled when its run is given back
        self.body.attempt = 1 + (dealing.raised if dealing is not None else 0)
        self.body.idle, self.body.since = False, self.life.host.time()
        last_intent = dealing.intent if dealing is not None else 0
        try:
            try:
                key = await self._intend()
                if self.life.over is not None:
                    raise self.life.over
            except (asyncio.CancelledError, Evicted, Diverged):
                if self.dealing is not None and self.dealing.intent > last_intent:
                    self._record_attempt(None, did_not=True)  # nobody need ask what came of it
                raise
            if self.unwanted and not in_doubt:
                return NOT_DONE
            if not self._has_time():  # a drain has begun since
                self._record_attempt(None, did_not=True)
                return None
            return await self._act(key)
        finally:
            self.body.shielded, self.body.idle = False, True

    def _has_time(self) -> bool:
        """In a drain nothing is begun that only a person could sort out if it were cut."""
        sortable = self.effect.idempotent or self.effect.verifier is not None
        return sortable or (self.effect.timeout or 0.0) < self.house.drain.seconds_before_exit

    async def _intend(self) -> str:
        """Have the intent recorded: it is durable when this returns. The key under which to act."""
        life, effect, dealing = self.life, self.effect, self.dealing
        generation = dealing.generation if dealing is not None else 0
        if dealing is not None and dealing.intent:
            key = dealing.key
        else:
            key = self.errand.make_key(life.row.seed, self.place.key, generation)
        said: dict[str, Any] = {
            "key": key, "effect": effect.name, "code": effect.code, "arguments": self.errand.arguments,
            "compensation": effect.compensation.name if effect.compensation is not None else None,
            "timeout": effect.timeout, "threaded": not effect.is_async, "generation": generation,
        }  # fmt: skip
        if self.place.units:
            said["units"] = self.place.units
        slow = max(SLOW_SECONDS, self.house.settings.effect_margin / 2)
        for _ in range(INTENTS_MAX):
            self.may_repeat, self.acted_at = False, life.host.time()
            began, store_began = self.acted_at, life.now()
            await life.record_and_wait(
                "intent", self.place.key, args=self.place.args, value=json.dumps(said), attempt=self.body.attempt
            )  # fmt: skip
            if max(life.host.time() - began, life.now() - store_began) <= slow or life.over is not None:
                return key
            said["again"] = True  # nothing was done after this one
        life.evict(Evicted("the store takes too long to record an intent"))
        return key

    async def _act(self, key: str) -> Outcome | None:
        life = self.life
        if self.house.observe is not None:
            self.house.observe(life.id, self.place.key)
        self.body.shielded, self.body.since, self.body.error_text = True, life.host.time(), None
        try:
            value = await self._timed(self._call(key))
        except asyncio.CancelledError as leaked:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return self._raised(StepFailed("asyncio.CancelledError", str(leaked)), did_not=False)
        except (Evicted, Diverged, SystemExit, KeyboardInterrupt):
            raise
        except _TooLate as late:
            return self._raised(StepTimeout(str(late)), did_not=False)
        except BaseException as error:
            did_not = isinstance(error, self.effect.failed_on) or self.effect in self.house.stand_ins
            return self._raised(error, did_not=did_not)
        return self.result(value)._replace(seconds=life.host.time() - self.body.since)

    async def _timed(self, act: Coroutine[Any, Any, Any]) -> Any:
        """Know when what it began can no longer be under way. One that took longer than it may was held up, perhaps before it sent anything: its
        time-out begins anew where it ended."""
        try:
            return await act
        finally:
            assert self.acted_at is not None
            timeout, margin = self.effect.timeout or 0.0, self.house.settings.effect_margin
            now = self.life.host.time()
            held_up = now - self.acted_at > timeout + max(SLOW_SECONDS, margin / 2)
            self.over_at = max(self.acted_at + timeout, now + (timeout if held_up else 0.0)) + margin

    async def _call(self, key: str) -> Any:
        """The function itself, under its time-out. A thread cannot be stopped: what comes of it late is what came of it."""
        effect, args, kwargs = self.effect, self.errand.args, self.errand.kwargs
        if effect.key_name is not None:
            args, kwargs = effect.signature.having(args, kwargs, effect.key_name, key)
        fn = self.house.stand_ins.get(effect, effect.fn)
        assert effect.timeout is not None
        too_late = _TooLate(f"effect {effect.name} took longer than its timeout of {effect.timeout} s.")
        if effect.is_async:
            try:
                async with asyncio.timeout(effect.timeout) as limit:
                    return await fn(*args, **kwargs)
            except TimeoutError as error:
                if limit.expired():
                    raise too_late from error
                raise
        thread = self.in_thread(fn, *args, **kwargs)
        self.life.watch_thread(thread)
        saying = "%s It is sync and cannot be stopped: run %s waits for it."
        facts = self.life.facts(self.place.key, self.body.attempt)
        warn = partial(log.warning, saying, too_late, self.life.id, extra=facts)
        late = self.life.host.call_later(effect.timeout, warn)
        try:
            return await asyncio.shield(thread)
        finally:
            late.cancel()

    def in_thread(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        return self.house.pool.run(self.life.host, copy_context(), fn, *args, **kwargs)

    def result(self, value: Any) -> Outcome:
        """It happened."""
        try:
            text, value = self.effect.signature.returns().carry(value)
            self.house.check_size(text, f"the result of effect {self.effect.name}")
        except (Unrecordable, LimitExceeded) as unfit:
            error = Unrecordable(
                f"effect {self.effect.name} happened, but its result cannot be recorded: {unfit}"
            )
            return Outcome("null", None, encode_error(error, self.house.settings.error_text_max))
        return Outcome(text, value)

    def _raised(self, error: BaseException, *, did_not: bool) -> Outcome | None:
        """The act has raised: an error that means that it did not happen, or one that leaves that open."""
        dealing = self.dealing
        doubtful = dealing is not None and dealing.doubtful  # an earlier act may have happened all the same
        text = encode_error(error, self.house.settings.error_text_max)
        if did_not and not doubtful and not self.is_compensation and self.body.attempt > self.effect.retries:
            return Outcome(error=text)
        self._record_attempt(text, did_not=did_not)
        if self.life.over is not None:
            raise self.life.over
        return None

    def _record_attempt(self, error: str | None, *, did_not: bool) -> None:
        """An act that came to nothing, or to nothing certain. Without an error there was none: it counts as no attempt."""
        body, life = self.body, self.life
        delay = 0.0
        if error is not None:
            delay = delay_before(self.effect, body.attempt)
            body.again(told_of(error, self.house.log_values), delay if did_not else None)
            body.error_text = error
        due = life.now() + delay
        life.record(
            "attempt", self.place.key, args=DID_NOT if did_not else None, value=str(due), error=error,
            seconds=life.host.time() - body.since, attempt=body.attempt - (error is None), cost=body.take_cost(), late=True,
        )  # fmt: skip

    # -- waiting

    async def unknown(self, why: str) -> Outcome:
        """Only a person can say. It does not return: the run is parked."""
        leaving.cannot_tell(self.life, self.place.key, why)
        await self.life.host.create_future()
        raise AssertionError

    async def until(self, due: float, *, may_stop: bool = False) -> None:
        """Until the store's clock says so; or, if it may stop, it is not wanted any more. A run that waits for nothing else is given
        back meanwhile."""
        body, life = self.body, self.life
        assert body.nudge is not None
        while (left := due - life.now()) > 0 and not (may_stop and self.unwanted):
            body.due = due
            if self.house.draining:
                self.house.drain.look(life)
            try:
                async with asyncio.timeout(min(left, 3600.0)):
                    await body.nudge.wait() if may_stop else await life.host.create_future()
            except TimeoutError:
                continue
            finally:
                body.due = None


class _TooLate(TimeoutError):
    """Its own time-out has cut the act."""
