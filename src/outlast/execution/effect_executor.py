"""Execute effects: record the intent, act, record the outcome.

Before every act, this execution records an intent under its fence. While an intent is open, the
executor only finds out whether the effect happened (`execution/effect_resolution.py`), and does
nothing else at its call site.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from outlast.codec.exceptions import encode_error
from outlast.errors import Diverged, Evicted, LimitExceeded, StepFailed, StepTimeout, Unrecordable
from outlast.execution import effect_resolution, recording, release
from outlast.execution.effect_call import DID_NOT, NOT_DONE, EffectCall, Outcome
from outlast.execution.effects_from_journal import UNDO, EffectRecord
from outlast.execution.execution_state import EndReason
from outlast.execution.step_attempts import attempt_failed, delay_before
from outlast.execution.step_execution import StepExecution
from outlast.execution.unit_scope import UNIT
from outlast.telemetry.error_text import format_recorded

if TYPE_CHECKING:
    from outlast.execution.call_site import CallSite

log = logging.getLogger("outlast.replay")

INTENTS_MAX = 5
"""How many consecutive intents may be slow to become durable. After a death, the wait counts
from the last intent, so an effect must follow its intent promptly."""
SLOW_SECONDS = 0.1
"""The lower bound in seconds for a write to count as slow."""


class EffectExecutor:
    """Execute one effect at one call site."""

    def __init__(self, body: StepExecution, call_site: CallSite, effect_call: EffectCall) -> None:
        assert body.effect is not None
        assert call_site.effect is not None
        self.body = body
        self.state = body.effect
        self.call_site = call_site
        self.units = call_site.effect.units
        self.effect_call = effect_call
        self.effect = effect_call.effect
        self.execution = body.execution
        self.services = body.execution.services
        self.is_compensation = call_site.key.startswith(UNDO)
        self.acted_at: float | None = None
        """When this execution recorded its last intent, on the loop's clock."""
        self.over_at = 0.0
        """When the act can no longer be in flight, on the same clock."""
        self.may_repeat = False
        """True if the effect may act again although its intent is open, because it is
        idempotent."""

    @property
    def effect_record(self) -> EffectRecord | None:
        return self.execution.journal.effect_log.get(self.call_site.key)

    @property
    def unwanted(self) -> bool:
        """Return whether the effect is no longer wanted.

        Either the workflow cancelled it, or its run or unit is being compensated.
        """
        return self.call_site.cancelled or self.effect_call.resolve_only

    async def execute(self) -> Outcome:
        """Execute the effect until its outcome is known, and return the outcome."""
        while True:
            try:
                outcome = await self._resolve_first() or await self._act_if_wanted()
            except Exception as fault:
                # Errors of the act itself do not reach this line.
                return await self._at_fault(fault)
            if outcome is not None:
                return outcome

    async def _resolve_first(self) -> Outcome | None:
        """Return the outcome that the journal or a resolution gives.

        Return None if the effect must act.
        """
        effect_record = self.effect_record
        if effect_record is None or not effect_record.intent:
            return None
        if effect_record.happened:
            return self._kept(effect_record)
        if effect_record.decision is not None and effect_record.decision.what == "happened":
            return await effect_resolution.decided(self, effect_record.decision)
        if effect_record.open and not self.may_repeat:
            return await effect_resolution.resolve(self, effect_record)
        if self.is_compensation and effect_record.raised > self.effect.retries:
            return await self.unknown(effect_resolution.failures(effect_record))
        if effect_record.decision is not None:
            await effect_resolution.until_over(self, effect_record)
        await self.until(effect_record.retry_at, may_stop=True)
        return None

    def _kept(self, effect_record: EffectRecord) -> Outcome | None:
        """Return the outcome of an effect that happened and whose entry a retry made void.

        Return None if the arguments differ: the call is then another effect.
        """
        assert effect_record.closed is not None
        if effect_record.args != self.call_site.args:
            effect_record.reset()
            return None
        # The journal salvages plain results, so they do not get here. The effect log may have
        # dropped them.
        assert effect_record.closed.error is not None or effect_record.compensation is not None
        return Outcome(effect_record.value, None, effect_record.closed.error)

    async def _at_fault(self, fault: Exception) -> Outcome:
        """Handle an error in the code around the act.

        If the effect may have happened, or is a compensation, park the run for a person. Otherwise
        return the error as the outcome.
        """
        text = encode_error(fault, self.services.settings.error_text_max)
        if self.execution.journal.effect_log.is_open(self.call_site.key) or self.is_compensation:
            self.body.note_error(text)
            key = self.call_site.key
            redacted = self.services.redact(fault)
            log.error(
                "Effect %s of run %s failed outside its act, so its outcome is unknown.",
                key,
                self.execution.id,
                exc_info=redacted,
                extra=self.execution.log_fields(key),
            )
            return await self.unknown(f"something is wrong with it: {fault!r}.")
        return Outcome(error=text)

    # -- acting

    async def _act_if_wanted(self) -> Outcome | None:
        """Record the intent and act, unless the effect is no longer wanted.

        Return None if the outcome is open or the effect must act again.
        """
        effect_record = self.effect_record
        in_doubt = effect_record is not None and effect_record.open
        if self.unwanted and not in_doubt:
            return NOT_DONE
        has_time = self._has_time()
        if not self.execution.may_start(UNIT.get()) or not has_time:
            if not has_time:
                # The unit cannot end in this process either.
                self.execution.steps.close_units()
            self.execution.settled()
            # The wait is cancelled when the run is released.
            await self.execution.host.create_future()
        self.body.prepare_act(1 + (effect_record.raised if effect_record is not None else 0))
        last_intent = effect_record.intent if effect_record is not None else 0
        try:
            try:
                key = await self._intend()
                self.execution.check_active()
            except (asyncio.CancelledError, Evicted, Diverged):
                if self.effect_record is not None and self.effect_record.intent > last_intent:
                    # The effect did not act, so its intent needs no resolution.
                    self._record_attempt(None, did_not=True)
                raise
            if self.unwanted and not in_doubt:
                return NOT_DONE
            if not self._has_time():
                # A drain has begun in the meantime.
                self._record_attempt(None, did_not=True)
                return None
            return await self._act(key)
        finally:
            self.body.end_act()

    def _has_time(self) -> bool:
        """Return whether the effect may act before the process exits.

        During a drain, an effect that is neither idempotent nor verifiable acts only if its
        time-out fits. If the exit interrupted it, a person would have to decide its outcome.
        """
        sortable = self.effect.idempotent or self.effect.verifier is not None
        return sortable or (self.effect.timeout or 0.0) < self.services.shutdown.seconds_before_exit

    async def _intend(self) -> str:
        """Record the intent, wait until it is durable, and return the key to act under.

        Repeat an intent that was slow to become durable. Evict the execution after INTENTS_MAX slow
        ones.
        """
        execution = self.execution
        effect = self.effect
        effect_record = self.effect_record
        generation = effect_record.generation if effect_record is not None else 0
        if effect_record is not None and effect_record.intent:
            key = effect_record.key
        else:
            key = self.effect_call.make_key(execution.row.seed, self.call_site.key, generation)
        intent: dict[str, Any] = {
            "key": key, "effect": effect.name, "code": effect.code,
            "arguments": self.effect_call.arguments,
            "compensation": effect.compensation.name if effect.compensation is not None else None,
            "timeout": effect.timeout, "threaded": not effect.is_async, "generation": generation,
        }  # fmt: skip
        if self.units:
            intent["units"] = self.units
        slow = max(SLOW_SECONDS, self.services.settings.effect_margin / 2)
        for _ in range(INTENTS_MAX):
            self.may_repeat = False
            self.acted_at = execution.host.time()
            began = self.acted_at
            store_began = execution.clock.now()
            await recording.record_and_wait(
                execution,
                "intent",
                self.call_site.key,
                args=self.call_site.args,
                value=json.dumps(intent),
                attempt=self.body.attempt,
            )
            if (
                max(execution.host.time() - began, execution.clock.now() - store_began) <= slow
                or execution.end_reason is not None
            ):
                return key
            # The effect did not act after this intent.
            intent["again"] = True
        execution.stop(EndReason.released("the store takes too long to record an intent"))
        return key

    async def _act(self, key: str) -> Outcome | None:
        execution = self.execution
        if self.services.steps.on_start is not None:
            self.services.steps.on_start(execution.id, self.call_site.key)
        self.body.begin_act(key)
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
            did_not = (
                isinstance(error, self.effect.failed_on)
                or self.effect in self.services.steps.overrides
            )
            return self._raised(error, did_not=did_not)
        return self.result(value)._replace(seconds=execution.host.time() - self.body.since)

    async def _timed(self, act: Coroutine[Any, Any, Any]) -> Any:
        """Await the act, and note when it can no longer be in flight.

        An act that took longer than its time-out was held up, perhaps before it sent anything. Its
        time-out then counts from its end.
        """
        try:
            return await act
        finally:
            assert self.acted_at is not None
            timeout = self.effect.timeout or 0.0
            margin = self.services.settings.effect_margin
            now = self.execution.host.time()
            held_up = now - self.acted_at > timeout + max(SLOW_SECONDS, margin / 2)
            self.over_at = (
                max(self.acted_at + timeout, now + (timeout if held_up else 0.0)) + margin
            )

    async def _call(self, key: str) -> Any:
        """Call the effect's function within its time-out.

        A thread cannot be stopped. A sync effect that takes longer is waited for, and its late
        outcome counts.
        """
        effect = self.effect
        args = self.effect_call.args
        kwargs = self.effect_call.kwargs
        if effect.key_name is not None:
            args, kwargs = effect.signature.having(args, kwargs, effect.key_name, key)
        fn = self.services.steps.overrides.get(effect, effect.fn)
        assert effect.timeout is not None
        too_late = _TooLate(
            f"effect {effect.name} took longer than its timeout of {effect.timeout} s."
        )
        if effect.is_async:
            try:
                async with asyncio.timeout(effect.timeout) as limit:
                    return await fn(*args, **kwargs)
            except TimeoutError as error:
                if limit.expired():
                    raise too_late from error
                raise
        thread = self.in_thread(fn, *args, **kwargs)
        self.execution.steps.watch_thread(thread, self.execution.settled)
        message = "%s It is sync and cannot be stopped: run %s waits for it."
        fields = self.execution.log_fields(self.call_site.key, self.body.attempt)
        warn = partial(log.warning, message, too_late, self.execution.id, extra=fields)
        late = self.execution.host.call_later(effect.timeout, warn)
        try:
            return await asyncio.shield(thread)
        finally:
            late.cancel()

    def in_thread(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        return self.services.steps.in_thread(fn, *args, **kwargs)

    def result(self, value: Any) -> Outcome:
        """Return the outcome of an effect that happened.

        If its result cannot be recorded, the outcome is an error, and the effect still counts as
        done.
        """
        try:
            text, value = self.effect.signature.returns().round_trip(value)
            self.services.check_size(text, f"the result of effect {self.effect.name}")
        except (Unrecordable, LimitExceeded) as unfit:
            error = Unrecordable(
                f"effect {self.effect.name} happened, but its result cannot be recorded: {unfit}"
            )
            return Outcome("null", None, encode_error(error, self.services.settings.error_text_max))
        return Outcome(text, value)

    def _raised(self, error: BaseException, *, did_not: bool) -> Outcome | None:
        """Handle an exception of the act. `did_not` states that the act certainly did not happen.

        Return the error as the outcome if so, no retry is left, no earlier act is in doubt, and the
        effect is not a compensation. Otherwise record the attempt and return None.
        """
        effect_record = self.effect_record
        # An earlier act may have happened all the same.
        doubtful = effect_record is not None and effect_record.doubtful
        text = encode_error(error, self.services.settings.error_text_max)
        if (
            did_not
            and not doubtful
            and not self.is_compensation
            and self.body.attempt > self.effect.retries
        ):
            return Outcome(error=text)
        self._record_attempt(text, did_not=did_not)
        self.execution.check_active()
        return None

    def _record_attempt(self, error: str | None, *, did_not: bool) -> None:
        """Record an act that did not happen or whose outcome is uncertain.

        Without an error, the effect did not act, and the entry does not count as an attempt.
        """
        body = self.body
        execution = self.execution
        delay = 0.0
        if error is not None:
            delay = delay_before(self.effect, body.attempt)
            said = format_recorded(error, self.services.log_values)
            attempt_failed(body, said, delay if did_not else None)
            body.note_error(error)
        due = execution.clock.now() + delay
        recording.record(
            execution,
            "attempt",
            self.call_site.key,
            args=DID_NOT if did_not else None,
            value=str(due),
            error=error,
            seconds=execution.host.time() - body.since,
            attempt=body.attempt - (error is None),
            cost=body.take_cost(),
            late=True,
        )

    # -- waiting

    async def unknown(self, why: str) -> Outcome:
        """Park the run and never return: only a person can decide the effect's outcome."""
        release.mark_unknown(self.execution, self.call_site.key, why)
        await self.execution.host.create_future()
        raise AssertionError

    async def until(self, due: float, *, may_stop: bool = False) -> None:
        """Wait until the store's clock reaches `due`.

        With `may_stop`, return early if the effect is no longer wanted. A run that waits for
        nothing else may be released in the meantime.
        """
        state = self.state
        execution = self.execution
        while (left := due - execution.clock.now()) > 0 and not (may_stop and self.unwanted):
            with self.body.waiting_until(due), suppress(TimeoutError):
                execution.settled()
                async with asyncio.timeout(min(left, 3600.0)):
                    await state.nudge.wait() if may_stop else await execution.host.create_future()


class _TooLate(TimeoutError):
    """The effect's own time-out interrupted the act."""
