"""Execute the bodies of steps, with their attempts, on the host loop or in a thread."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from outlast.codec.cost import NAMES_MAX, Cost
from outlast.codec.exceptions import CANCELLED, encode_error
from outlast.errors import Draining, Evicted, LimitExceeded, StepFailed, StepTimeout, Unrecordable
from outlast.execution.call_site import CallSite
from outlast.execution.effect_log import UNDO
from outlast.execution.state import EndReason
from outlast.execution.unit_scope import UNIT
from outlast.telemetry.error_text import cut, format_error, format_recorded

if TYPE_CHECKING:
    from outlast.execution.definitions import StepDefinition
    from outlast.execution.progress import Progress
    from outlast.execution.run_execution import RunExecution

BODY: ContextVar[StepExecution | None] = ContextVar("outlast_body", default=None)
"""The step execution that the current code belongs to."""

log = logging.getLogger("outlast.replay")
_spending = threading.Lock()
"""Guards sums of costs: steps report them from any thread. It is held for one addition."""
_jitter = random.Random()  # noqa: S311 - no secret; leaves the program's seeded one alone


class StepExecution:
    """One step in flight.

    `calls` numbers the steps that this step calls. `results` holds their results, and those of
    steps nested deeper, as long as the outermost step is in flight.
    """

    __slots__ = (
        "_outer",
        "abandoned",
        "attempt",
        "aware",
        "begun",
        "calls",
        "cost",
        "cut",
        "due",
        "error_text",
        "execution",
        "how",
        "idle",
        "is_effect",
        "key",
        "leaving",
        "listeners",
        "name",
        "nudge",
        "orphan_threads",
        "progress",
        "results",
        "shielded",
        "since",
        "started",
        "task",
        "threads",
    )  # fmt: skip

    def __init__(
        self,
        execution: RunExecution,
        key: str,
        name: str,
        results: dict[str, str],
        outer: StepExecution | None = None,
    ) -> None:
        self.execution, self.key, self.name = execution, key, name
        # Not `self`: a reference cycle would wait for the garbage collector.
        self._outer = None if outer is None else outer.outer
        self.attempt = 1
        self.abandoned = False
        """True if the step's thread continues without it."""
        self.since = execution.host.time()
        """When the attempt began, on the loop's clock."""
        self.idle = False
        """True while the step waits for its next attempt and nothing of it executes."""
        self.threads = 0
        """The number of threads that execute this step or steps within it."""
        self.leaving: str | None = None
        """Why a drain asked the step to stop. What the step returns after that may be cut short."""
        self.cut = False
        """True if the step was cancelled for that reason."""
        self.aware = False
        """True if the step has checked whether it must stop."""
        self.progress: list[Progress[Any]] = []
        """The open progress blocks of this step and of the steps within it."""
        self.listeners: list[tuple[StepExecution, Callable[[str], object]]] = []
        """Callbacks to notify of a drain, each with the step that registered it: this step or
        one within it."""
        self.is_effect = self.shielded = False
        """`shielded`: an effect is acting. Only its own time-out interrupts it."""
        self.due: float | None = None
        """Until when an effect waits. Its run may be released in the meantime."""
        self.orphan_threads: tuple[asyncio.Future[Any], ...] = ()
        """Threads that an effect started with `asyncio.to_thread`. They continue when its
        time-out interrupts the effect."""
        self.nudge: asyncio.Event | None = None
        """Set when the workflow cancels an effect."""
        self.calls: dict[str, int] = {}
        self.results = results
        self.cost: Cost | None = None
        """The cost that the step has reported and that is not yet part of an entry."""
        self.how: str | None = None
        """How the step ended. `error_text` is the recorded error of the step or of its last
        attempt."""
        self.error_text: str | None = None
        self.begun, self.started = False, perf_counter()
        self.task: asyncio.Task[None] | None = None
        """None for a step within a step, which is part of the outer step's task."""

    @property
    def outer(self) -> StepExecution:
        """Return the step of the workflow that this step is part of."""
        return self._outer or self

    def part(self, key: str) -> StepExecution:
        """Create a part of this step that numbers its own calls."""
        return SubExecution(self, key)

    def spend(self, cost: Cost, *, checked: bool = True) -> None:
        """Add to the step's cost. Safe to call from any thread.

        Raise Unrecordable and add nothing if the sum exceeds what one step may record. With
        `checked=False`, drop the names beyond the limit instead.
        """
        with _spending:
            if self.cost is None:
                self.cost = cost
            else:
                self.cost = (
                    self.cost.plus(cost).checked() if checked else self.cost.plus(cost, NAMES_MAX)
                )

    def take_cost(self) -> str | None:
        """Return the cost since the last entry in its recorded form, or None, and reset it."""
        if self.cost is None:
            return None
        with _spending:
            cost, self.cost = self.cost, None
        return cost.text() if cost else None

    def _hand_over_cost(self, to: StepExecution) -> None:
        """Add the cost that no entry has recorded to the calling step."""
        if self.cost is not None:
            to.spend(self.cost, checked=False)

    @property
    def is_cut(self) -> bool:
        """Return whether the step's result may be cut short by a drain.

        A thread cannot be cancelled, so its result is complete unless the step checked whether it
        must stop.
        """
        return self.leaving is not None and (self.aware or self.cut)

    @property
    def can_save(self) -> bool:
        """Return whether the step saves progress, and so loses little when asked to stop."""
        return bool(self.outer.progress)

    def tell(self, why: str) -> None:
        """Call every listener once, and log the listeners that fail."""
        listeners, self.listeners = self.listeners, []
        for _, listener in listeners:
            try:
                listener(why)
            except Exception as error:
                facts, redacted = (
                    self.execution.log_fields(self.key, self.attempt),
                    self.execution.engine.redact_exception(error),
                )
                log.error("on_drain of step %s failed", self.key, exc_info=redacted, extra=facts)

    def forget_listeners(self) -> None:
        """Remove this step's listeners at the end of an attempt.

        The outermost step removes all of them.
        """
        outer = self.outer
        if outer.listeners:
            outer.listeners = [
                one for one in outer.listeners if one[0] is not self and outer is not self
            ]

    def leave(self, why: str) -> None:
        """Ask the step to stop because of a drain. Cancel it as soon as no thread executes it."""
        self.leaving = why
        for progress in list(self.progress):
            progress.flush()
        self.tell(why)
        self.cancel()

    def cancel(self) -> None:
        if self.task is not None and not self.threads and not self.shielded:
            self.cut = True
            self.task.cancel(self.leaving)

    @property
    def kind(self) -> str:
        return "effect" if self.is_effect else "step" if self._outer is None else "inner"

    @property
    def is_compensation(self) -> bool:
        return self.is_effect and self.key.startswith(UNDO)

    def ended(self, end: str, seconds: float | None = None, error: str | None = None) -> None:
        """Set how the step or one of its attempts ended, and update metrics.

        `seconds` is the duration of a success, `error` the recorded error of a failure.
        """
        self.how, self.error_text = (None, None) if end == "retried" else (end, error)
        self.execution.engine.meters.step(
            self.execution.workflow.name, self.name, self.kind, end, seconds
        )

    def again(self, error: str, delay: float | None) -> None:
        """Log a failed attempt.

        `delay` is None if it is not certain that another attempt follows.
        """
        self.ended("retried")
        # The key of a step within a step contains its arguments.
        key = self.outer.key
        step = f"{self.kind} {key}" if self.outer is self else f"step {self.name} in {key}"
        then = "" if delay is None else f"; the next in {delay:.3g} s"
        saying, facts = (
            "attempt %d of %s of run %s failed: %s%s",
            self.execution.log_fields(key, self.attempt),
        )
        log.info(saying, self.attempt, step, self.execution.id, error, then, extra=facts)

    def failed(self, error: BaseException, delay: float) -> None:
        """Log and record a failed attempt that another one follows.

        Attempts of a step within a step are only logged: they are part of the outer attempt.
        """
        self.again(format_error(error, self.execution.engine.log_values), delay)
        if self.task is not None:
            text = self.error_text = encode_error(
                error, self.execution.engine.settings.error_text_max
            )
            due, seconds = (
                str(self.execution.now() + delay),
                self.execution.host.time() - self.since,
            )
            self.execution.record(
                "attempt", self.key, value=due, error=text, seconds=seconds, attempt=self.attempt,
                cost=self.take_cost(),
            )  # fmt: skip


class SubExecution(StepExecution):
    """A part of a step that numbers its own calls, like an item of a `map`.

    Its cost is added to the step's.
    """

    __slots__ = ("_whole",)

    def __init__(self, whole: StepExecution, key: str) -> None:
        super().__init__(whole.execution, f"{whole.key}[{key}]", whole.name, whole.results, whole)
        self._whole = whole

    def spend(self, cost: Cost, *, checked: bool = True) -> None:
        self._whole.spend(cost, checked=checked)


def launch(
    execution: RunExecution, call_site: CallSite, step: StepDefinition, args: Any, kwargs: Any
) -> None:
    """Start a step's body on the host loop. Called on the run loop."""
    body = StepExecution(execution, call_site.key, step.name, {})
    # A task copies the context it is created in, so the body can set itself as the current one.
    work = (
        _perform(body, call_site, step, args, kwargs)
        if execution.span is None
        else execution.span.around(body, partial(_perform, body, call_site, step, args, kwargs))
    )
    task = body.task = asyncio.Task(work, loop=execution.host, name=call_site.key)
    call_site.stop = partial(_stop, body, call_site)
    execution.step_executions[task] = body


def _stop(body: StepExecution, call_site: CallSite) -> None:
    """Cancel a step on behalf of the workflow.

    A task that is cancelled before its first turn never executes, so the cancellation is recorded
    here.
    """
    task = body.task
    if task is not None:
        task.cancel()
        if not body.begun:
            body.execution.step_executions.pop(task, None)
            body.task = None
            body.execution.record(
                "step", call_site.key, call_site.args, error=CANCELLED, asked=True
            )
            body.ended("cancelled")


async def _perform(
    body: StepExecution, call_site: CallSite, step: StepDefinition, args: Any, kwargs: Any
) -> None:
    BODY.set(body)
    execution, body.begun, body.started = body.execution, True, perf_counter()
    text_max = execution.engine.settings.error_text_max
    if execution.engine.observe is not None:
        execution.engine.observe(execution.id, call_site.key)
    text = error = None
    try:
        earlier = execution.journal.attempts.pop(call_site.key, None)
        if earlier is not None:
            body.attempt = earlier.count + 1
            await _pause(body, earlier.due - execution.now())
        text, call_site.value = await attempt(body, step, args, kwargs)
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if call_site.asked:
            error = CANCELLED
        elif body.leaving is not None:
            return
        elif task is not None and task.cancelling():
            why = "its step was cancelled from outside, as at the end of the program"
            execution.stop(EndReason.released(why))
            return
        else:
            # The body raised a CancelledError that nothing had requested.
            error = encode_error(StepFailed("asyncio.CancelledError", str(cancelled)), text_max)
    except Evicted:
        return
    except Draining as refused:
        if execution.engine.shutdown.begun:
            # A draining process refused the call. The next execution makes it.
            return
        error = encode_error(refused, text_max)
    except (SystemExit, KeyboardInterrupt):
        # The program ends. The next execution repeats the step.
        execution.stop(EndReason.released("its program ended in the middle of a step"))
        raise
    except BaseException as raised:
        error = encode_error(raised, text_max)
    finally:
        # Nothing is awaited from here on. A done callback would cost each step a turn of the host
        # loop.
        execution.step_executions.pop(body.task, None)  # type: ignore[arg-type]
        # The task's context holds this body.
        body.task = None
        execution.settled()
    if body.is_cut and not call_site.asked:
        # Do not record a result that was cut short.
        return
    _record(body, call_site, step, text, error)


def _record(
    body: StepExecution,
    call_site: CallSite,
    step: StepDefinition,
    text: str | None,
    error: str | None,
) -> None:
    """Record the step's outcome and update metrics."""
    execution = body.execution
    if execution.engine.log_values:
        say_values(body, call_site.args or "", text, error)
    seconds = perf_counter() - body.started
    cost = None if body.cost is None else body.take_cost()
    recorded = execution.record(
        "step",
        call_site.key,
        call_site.args,
        text,
        error,
        seconds,
        body.attempt,
        call_site.asked,
        cost=cost,
    )
    if error is None:
        took = execution.host.time() - body.since
        if step.is_measured:
            execution.engine.durations.add(execution.workflow.name, body.name, took)
        if recorded:
            body.ended("done", took)
    elif recorded:
        body.ended("cancelled" if error == CANCELLED else "failed", error=error)


async def attempt(
    body: StepExecution, step: StepDefinition, args: Any, kwargs: Any
) -> tuple[str, Any]:
    """Make attempts until one succeeds or none is left.

    Return the result as recorded text and as the value that every execution decodes from it. Raise
    the last error if no attempt succeeds. The body owns the arguments.
    """
    codec, engine, given = step.signature.returns(), body.execution.engine, (args, kwargs)
    while True:
        thread: list[asyncio.Future[Any]] = []
        if body.attempt <= step.retries:
            # The attempt may change its arguments, and another attempt may follow.
            args, kwargs = step.signature.copied(*given)
        else:
            args, kwargs = given
        before = step.signature.fingerprint(args, kwargs) if step.watched else ""
        body.since = body.execution.host.time()
        try:
            if step.is_async and step.timeout is None:
                value = await engine.step_overrides.get(step, step.fn)(*args, **kwargs)
            else:
                value = await _bounded(body, step, args, kwargs, thread)
            text, value = codec.round_trip(value)
            if len(text) > engine.settings.value_size_max:
                engine.check_size(text, f"the result of step {step.name}")
        except Unrecordable as error:
            raise Unrecordable(f"step {step.name}: {error}") from error.__cause__
        except LimitExceeded:
            raise
        except Exception as error:
            if body.attempt > step.retries or not isinstance(error, step.retry_on):
                raise
            if body.outer.is_cut or (engine.shutdown.begun and isinstance(error, Draining)):
                # The drain caused the error. It does not use up an attempt.
                raise
            delay = delay_before(step, body.attempt)
            body.failed(error, delay)
            body.forget_listeners()
            if thread:
                # No attempt starts while the thread of the last one is alive.
                await asyncio.wait(thread)
            await _pause(body, delay)
            body.attempt += 1
            body.error_text = None
            body.calls.clear()
        else:
            if step.watched:
                _say_if_changed(body, step, before, args, kwargs)
            return text, value


def _say_if_changed(
    body: StepExecution, step: StepDefinition, before: str, args: Any, kwargs: Any
) -> None:
    """Warn, once per step and process, if a step changes its arguments.

    They are copies. The workflow never sees the change.
    """
    step.watched -= 1
    if step.signature.changed(before, args, kwargs):
        step.watched = 0
        saying = (
            "step %s changes its arguments. They are copies: the workflow does not see that. "
            "Let it return what the workflow is to know."
        )
        log.warning(
            saying, step.name, extra=body.execution.log_fields(body.outer.key, body.attempt)
        )


async def _pause(body: StepExecution, seconds: float) -> None:
    """Wait until the next attempt.

    During a drain, another execution makes that attempt, unless a unit must end first.
    """
    engine = body.execution.engine
    until = engine.loop.time() + seconds
    body.idle = True
    if body.outer is body:
        body.execution.settled()
        await asyncio.sleep(seconds)
        if not body.execution.may_start(UNIT.get()):
            # The wait is cancelled when the run is released.
            await engine.loop.create_future()
    elif seconds > 0:
        await asyncio.wait([engine.shutdown.announced], timeout=seconds)
        engine.shutdown.check_nested(UNIT.get())
        await asyncio.sleep(until - engine.loop.time())
    body.idle = False


async def _bounded(
    body: StepExecution,
    step: StepDefinition,
    args: Any,
    kwargs: Any,
    thread: list[asyncio.Future[Any]],
) -> Any:
    """Make one attempt within the step's time-out, in a thread if the step is sync.

    Raise StepTimeout if it takes longer.
    """
    fn = body.execution.engine.step_overrides.get(step, step.fn)
    try:
        async with asyncio.timeout(step.timeout) as limit:
            if step.is_async:
                return await fn(*args, **kwargs)
            future = body.execution.engine.pool.run(
                asyncio.get_running_loop(), copy_context(), fn, *args, **kwargs
            )
            thread.append(future)
            body.execution.watch_thread(future)
            body.outer.threads += 1
            future.add_done_callback(partial(_thread_ended, body))
            try:
                return await asyncio.shield(future)
            finally:
                body.abandoned = not future.done()
    except TimeoutError as error:
        if limit.expired():
            raise StepTimeout(
                f"step {step.name} took longer than its timeout of {step.timeout} s."
            ) from error
        raise


def _thread_ended(body: StepExecution, _: asyncio.Future[Any]) -> None:
    body.outer.threads -= 1
    if body.outer is not body and body.outer.leaving is not None and body.abandoned:
        body.outer.cancel()


def say_values(body: StepExecution, args: str, text: str | None, error: str | None) -> None:
    """Log a step's arguments and its outcome, cut to the length that the settings allow."""
    execution, characters = body.execution, body.execution.engine.log_values
    came = (
        f"raised {format_recorded(error, characters)}"
        if error is not None
        else cut(text or "null", characters)
    )
    saying = "%s %s(%s) of run %s: %s"
    log.debug(
        saying, body.kind, body.key, cut(args, characters), execution.id, came,
        extra=execution.log_fields(body.key, body.attempt),
    )  # fmt: skip


def delay_before(step: StepDefinition, attempt: int) -> float:
    """Return the delay after a failed attempt, in seconds.

    It doubles from `backoff` up to `backoff_max`, with up to 50 % jitter so that retries spread
    out.
    """
    full: float = min(step.backoff_max, step.backoff * 2.0 ** min(attempt - 1, 60))
    return full * (0.5 + _jitter.random() / 2)


async def inner(body: StepExecution, step: StepDefinition, args: Any, kwargs: Any) -> Any:
    """Execute a step that another step's body calls.

    Its result is recorded by name and arguments under the outer step, and is reused when the outer
    step is repeated. Failures are not recorded: they are part of the outer attempt.
    """
    execution = body.execution
    if execution.end_reason is not None:
        raise execution.end_reason.error
    execution.engine.shutdown.check_nested(UNIT.get(), stopping=body.outer.leaving is not None)
    fingerprint = step.signature.fingerprint(args, kwargs)
    call = f"{step.name}({fingerprint})"
    body.calls[call] = body.calls.get(call, 0) + 1
    key = f"{body.key}/{call}#{body.calls[call]}"
    recorded = execution.journal.inner.get(key)
    known = body.results.get(key) or (recorded.value if recorded is not None else None)
    if known is not None:
        execution.engine.meters.replayed(execution.workflow.name)
        return step.signature.returns().decode(known)
    args, kwargs = step.signature.copied(args, kwargs)
    within = StepExecution(execution, key, step.name, body.results, body)
    token = BODY.set(within)
    execution.inner += 1
    try:
        if execution.span is None:
            text, value = await attempt(within, step, args, kwargs)
        else:
            text, value = await execution.span.around(
                within, partial(attempt, within, step, args, kwargs)
            )
        seconds = perf_counter() - within.started
        await execution.record_and_wait(
            "inner", key, args=fingerprint, value=text, seconds=seconds, attempt=within.attempt,
            cost=within.take_cost(),
        )  # fmt: skip
        body.results[key] = text
        within.ended("done", execution.host.time() - within.since)
    except Exception as error:
        if not isinstance(error, (Evicted, Draining)):
            within.ended("failed")
        raise
    finally:
        execution.inner -= 1
        BODY.reset(token)
        within.forget_listeners()
        within._hand_over_cost(body)
        if body.outer.leaving is not None and not body.outer.cut:
            body.outer.cancel()
    return value
