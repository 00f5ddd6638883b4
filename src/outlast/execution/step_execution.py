"""Step bodies: what a step really does, on the host's loop or in a thread, with its attempts."""

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
from outlast.execution.unit_scope import UNIT
from outlast.telemetry.error_text import cut, format_error, format_recorded

if TYPE_CHECKING:
    from outlast.api.step import StepBase
    from outlast.execution.progress import Progress
    from outlast.execution.run_execution import RunExecution

BODY: ContextVar[StepExecution | None] = ContextVar("outlast_body", default=None)
"""The step's body that executes now."""

log = logging.getLogger("outlast.replay")
_spending = threading.Lock()
"""Steps say what they cost from whatever thread they execute in. It is held for a sum of two."""
_jitter = random.Random()  # noqa: S311 - no secret; of its own, so that a program's seeded one is left alone


class StepExecution:
    """One step under way. `calls` numbers the steps that it calls itself; `results` has theirs, and those of the steps
    within them, for as long as the outermost step is under way."""

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
        self._outer = (
            None if outer is None else outer.outer
        )  # not itself: a cycle would wait for the collector
        self.attempt = 1
        self.abandoned = False
        """Its thread goes on without it."""
        self.since = execution.host.time()
        """When the attempt began, on the loop's clock."""
        self.idle = False
        """It waits for its next attempt: nothing of it executes."""
        self.threads = 0
        """How many threads execute it, or steps within it."""
        self.leaving: str | None = None
        """Why it was told to stop, by a drain: what it returns after that was cut short."""
        self.cut = False
        """It was cancelled for that."""
        self.aware = False
        """It has asked whether it must stop."""
        self.progress: list[Progress[Any]] = []
        """What it, and the steps within it, save of themselves."""
        self.listeners: list[tuple[StepExecution, Callable[[str], object]]] = []
        """Who wants to be told of a drain, and the step, this one or one within it, that said so."""
        self.is_effect = self.shielded = False
        """Shielded is an effect that acts: only its own time-out cuts it."""
        self.due: float | None = None
        """Until when it waits, if it is an effect that does: its run may be given back meanwhile."""
        self.orphan_threads: tuple[asyncio.Future[Any], ...] = ()
        """Threads that an effect has started (`asyncio.to_thread`): they go on when its time-out cuts it."""
        self.nudge: asyncio.Event | None = None
        """Set when the workflow cancels an effect."""
        self.calls: dict[str, int] = {}
        self.results = results
        self.cost: Cost | None = None
        """What it has said that it cost, and is not on its way to the journal yet."""
        self.how: str | None = None
        """How it ended, once it has; and, if it failed, or its last attempt did, what is recorded of that."""
        self.error_text: str | None = None
        self.begun, self.started = False, perf_counter()
        self.task: asyncio.Task[None] | None = None
        """None for a step within a step: it is part of the outer one's task."""

    @property
    def outer(self) -> StepExecution:
        """The step of the workflow that this one is part of."""
        return self._outer or self

    def part(self, key: str) -> StepExecution:
        """A part of it that numbers its calls by itself."""
        return SubExecution(self, key)

    def spend(self, cost: Cost, *, checked: bool = True) -> None:
        """It has cost so much more. From any thread. Unrecordable, and nothing is added, if that is more than one step may say;
        unchecked, names beyond those are left out."""
        with _spending:
            if self.cost is None:
                self.cost = cost
            else:
                self.cost = (
                    self.cost.plus(cost).checked() if checked else self.cost.plus(cost, NAMES_MAX)
                )

    def take_cost(self) -> str | None:
        """For the entry that is to have it: what was spent since the last one, as it is recorded."""
        if self.cost is None:
            return None
        with _spending:
            cost, self.cost = self.cost, None
        return cost.text() if cost else None

    def _hand_over_cost(self, to: StepExecution) -> None:
        """It has failed, and no entry will say so: what it spent is part of what calls it."""
        if self.cost is not None:
            to.spend(self.cost, checked=False)

    @property
    def is_cut(self) -> bool:
        """Whether what it returns may be less than it would have been. A thread cannot be cancelled: what it returns is whole,
        unless it has asked whether it must stop."""
        return self.leaving is not None and (self.aware or self.cut)

    @property
    def can_save(self) -> bool:
        """Whether it loses little when it is told to stop."""
        return bool(self.outer.progress)

    def tell(self, why: str) -> None:
        """Tell everybody who asked to be told, once."""
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
        """An attempt of this step is over: so is its interest in drains."""
        outer = self.outer
        if outer.listeners:
            outer.listeners = [
                one for one in outer.listeners if one[0] is not self and outer is not self
            ]

    def leave(self, why: str) -> None:
        """It will not end in time: it is told why, and cancelled as soon as no thread executes for it."""
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
        """It, or an attempt of it, has: how, and, where it succeeded, in how many seconds; or what it failed by."""
        self.how, self.error_text = (None, None) if end == "retried" else (end, error)
        self.execution.engine.meters.step(
            self.execution.workflow.name, self.name, self.kind, end, seconds
        )

    def again(self, error: str, delay: float | None) -> None:
        """An attempt has failed: say so, and in how many seconds the next is made, if one is for certain."""
        self.ended("retried")
        key = self.outer.key  # that of a step within a step has its arguments in it
        step = f"{self.kind} {key}" if self.outer is self else f"step {self.name} in {key}"
        then = "" if delay is None else f"; the next in {delay:.3g} s"
        saying, facts = (
            "attempt %d of %s of run %s failed: %s%s",
            self.execution.log_fields(key, self.attempt),
        )
        log.info(saying, self.attempt, step, self.execution.id, error, then, extra=facts)

    def failed(self, error: BaseException, delay: float) -> None:
        """An attempt has failed and another will be made. Inner attempts are the outer one's own affair."""
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
                "attempt", self.key, value=due, error=text, seconds=seconds, attempt=self.attempt, cost=self.take_cost()
            )  # fmt: skip


class SubExecution(StepExecution):
    """A part of a step that numbers its calls by itself, like an item of a `map`. What it costs, the step does."""

    __slots__ = ("_whole",)

    def __init__(self, whole: StepExecution, key: str) -> None:
        super().__init__(whole.execution, f"{whole.key}[{key}]", whole.name, whole.results, whole)
        self._whole = whole

    def spend(self, cost: Cost, *, checked: bool = True) -> None:
        self._whole.spend(cost, checked=checked)


def launch(
    execution: RunExecution, call_site: CallSite, step: StepBase[..., Any], args: Any, kwargs: Any
) -> None:
    """Start a step's body. Called on the run loop; the body executes on the host's."""
    body = StepExecution(execution, call_site.key, step.name, {})
    # A task copies the context it is made in: the body has one of its own, in which it is the current one.
    work = (
        _perform(body, call_site, step, args, kwargs)
        if execution.span is None
        else execution.span.around(body, partial(_perform, body, call_site, step, args, kwargs))
    )
    task = body.task = asyncio.Task(work, loop=execution.host, name=call_site.key)
    call_site.stop = partial(_stop, body, call_site)
    execution.step_executions[task] = body


def _stop(body: StepExecution, call_site: CallSite) -> None:
    """The workflow cancels the step. A task cancelled before its first turn never executes a line of its own."""
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
    body: StepExecution, call_site: CallSite, step: StepBase[..., Any], args: Any, kwargs: Any
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
            execution.evict(
                Evicted("its step was cancelled from outside, as at the end of the program")
            )
            return
        else:  # the body itself let one out that nobody had asked for
            error = encode_error(StepFailed("asyncio.CancelledError", str(cancelled)), text_max)
    except Evicted:
        return
    except Draining as refused:
        if execution.engine.draining:
            return  # it wanted something that a process on its way out does not do: the next life will
        error = encode_error(refused, text_max)
    except (SystemExit, KeyboardInterrupt):  # the program ends: what was under way is done again
        execution.evict(Evicted("its program ended in the middle of a step"))
        raise
    except BaseException as raised:
        error = encode_error(raised, text_max)
    finally:
        # Nothing is awaited from here on. A done callback would cost a turn of the host's loop for every step.
        execution.step_executions.pop(body.task, None)  # type: ignore[arg-type]
        body.task = None  # which has this body in its context
        if execution.engine.draining:
            execution.engine.drain.check_run(execution)
    if body.is_cut and not call_site.asked:
        return  # an answer cut short is not an answer
    _record(body, call_site, step, text, error)


def _record(
    body: StepExecution,
    call_site: CallSite,
    step: StepBase[..., Any],
    text: str | None,
    error: str | None,
) -> None:
    """Have it written how a step has ended, and count it."""
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
    body: StepExecution, step: StepBase[..., Any], args: Any, kwargs: Any
) -> tuple[str, Any]:
    """Attempts until one succeeds or none is left: its value as text, and as every life will get it. The arguments are the body's own."""
    codec, engine, given = step.signature.returns(), body.execution.engine, (args, kwargs)
    while True:
        thread: list[asyncio.Future[Any]] = []
        if body.attempt <= step.retries:  # it may change them, and then another attempt is made
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
            if body.outer.is_cut or (engine.draining and isinstance(error, Draining)):
                raise  # the drain's doing: no attempt is used up by that
            delay = delay_before(step, body.attempt)
            body.failed(error, delay)
            body.forget_listeners()
            if thread:  # no attempt starts while the thread of the last one lives
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
    body: StepExecution, step: StepBase[..., Any], before: str, args: Any, kwargs: Any
) -> None:
    """Once a process: whoever wrote it may count on what a workflow never sees."""
    step.watched -= 1
    if step.signature.changed(before, args, kwargs):
        step.watched = 0
        saying = "step %s changes its arguments. They are copies: the workflow does not see that. Let it return what the workflow is to know."
        log.warning(
            saying, step.name, extra=body.execution.log_fields(body.outer.key, body.attempt)
        )


async def _pause(body: StepExecution, seconds: float) -> None:
    """Until the next attempt. In a drain that is in another life, unless a unit must end first."""
    engine = body.execution.engine
    until = engine.loop.time() + seconds
    body.idle = True
    if body.outer is body:
        if engine.draining:
            engine.drain.check_run(body.execution)
        await asyncio.sleep(seconds)
        if not body.execution.may_start(UNIT.get()):
            await engine.loop.create_future()  # it is cancelled when its run is given back
    elif seconds > 0:
        await asyncio.wait([engine.drain.started], timeout=seconds)
        if engine.draining and UNIT.get() is None:
            raise Evicted(f"drain: {engine.drain.reason}")
        await asyncio.sleep(until - engine.loop.time())
    body.idle = False


async def _bounded(
    body: StepExecution,
    step: StepBase[..., Any],
    args: Any,
    kwargs: Any,
    thread: list[asyncio.Future[Any]],
) -> Any:
    """One attempt with a time limit, in a thread if the step is sync."""
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
    """What a step got, and what came of it, as far as values may be logged."""
    execution, characters = body.execution, body.execution.engine.log_values
    came = (
        f"raised {format_recorded(error, characters)}"
        if error is not None
        else cut(text or "null", characters)
    )
    saying = "%s %s(%s) of run %s: %s"
    log.debug(
        saying, body.kind, body.key, cut(args, characters), execution.id, came, extra=execution.log_fields(body.key, body.attempt)
    )  # fmt: skip


def delay_before(step: StepBase[..., Any], attempt: int) -> float:
    """Doubling from `backoff` up to `backoff_max`, half of it by chance so that many do not return at once."""
    full: float = min(step.backoff_max, step.backoff * 2.0 ** min(attempt - 1, 60))
    return full * (0.5 + _jitter.random() / 2)


async def inner(body: StepExecution, step: StepBase[..., Any], args: Any, kwargs: Any) -> Any:
    """A step called in a step's body: recorded under it, by name and arguments, for when the outer step is redone.

    Only results are: an inner failure is part of the outer attempt.
    """
    execution = body.execution
    if execution.end_reason is not None:
        raise execution.end_reason
    if execution.engine.draining and (UNIT.get() is None or body.outer.leaving is not None):
        raise Evicted(f"drain: {execution.engine.drain.reason}")
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
            "inner", key, args=fingerprint, value=text, seconds=seconds, attempt=within.attempt, cost=within.take_cost()
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
