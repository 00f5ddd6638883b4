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

from outlast.errors import Draining, Evicted, LimitExceeded, StepFailed, StepTimeout, Unrecordable
from outlast.replay.dealings import UNDO
from outlast.replay.place import Place
from outlast.replay.unit import UNIT
from outlast.telemetry.values import cut, told, told_of
from outlast.values.cost import NAMES_MAX, Cost
from outlast.values.exceptions import CANCELLED, encode_error

if TYPE_CHECKING:
    from outlast.define.step import StepBase
    from outlast.replay.life import Life
    from outlast.replay.progress import Progress

BODY: ContextVar[Body | None] = ContextVar("outlast_body", default=None)
"""The step's body that executes now."""

log = logging.getLogger("outlast.replay")
_spending = threading.Lock()
"""Steps say what they cost from whatever thread they execute in. It is held for a sum of two."""
_jitter = random.Random()  # noqa: S311 - no secret; of its own, so that a program's seeded one is left alone


class Body:
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
        "how",
        "idle",
        "is_effect",
        "key",
        "leaving",
        "life",
        "listeners",
        "name",
        "nudge",
        "progress",
        "results",
        "shielded",
        "since",
        "started",
        "strays",
        "task",
        "threads",
    )  # fmt: skip

    def __init__(
        self, life: Life, key: str, name: str, results: dict[str, str], outer: Body | None = None
    ) -> None:
        self.life, self.key, self.name = life, key, name
        self._outer = (
            None if outer is None else outer.outer
        )  # not itself: a cycle would wait for the collector
        self.attempt = 1
        self.abandoned = False
        """Its thread goes on without it."""
        self.since = life.host.time()
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
        self.listeners: list[tuple[Body, Callable[[str], object]]] = []
        """Who wants to be told of a drain, and the step, this one or one within it, that said so."""
        self.is_effect = self.shielded = False
        """Shielded is an effect that acts: only its own time-out cuts it."""
        self.due: float | None = None
        """Until when it waits, if it is an effect that does: its run may be given back meanwhile."""
        self.strays: tuple[asyncio.Future[Any], ...] = ()
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
    def outer(self) -> Body:
        """The step of the workflow that this one is part of."""
        return self._outer or self

    def part(self, key: str) -> Body:
        """A part of it that numbers its calls by itself."""
        return Part(self, key)

    def spend(self, cost: Cost, *, checked: bool = True) -> None:
        """It has cost so much more. From any thread. Unrecordable, and nothing is added, if that is more than one step may say;
        unchecked, names beyond those are left out."""
        with _spending:
            if self.cost is None:
                self.cost = cost
            else:
                self.cost = self.cost.plus(cost).checked() if checked else self.cost.plus(cost, NAMES_MAX)

    def take_cost(self) -> str | None:
        """For the entry that is to have it: what was spent since the last one, as it is recorded."""
        if self.cost is None:
            return None
        with _spending:
            cost, self.cost = self.cost, None
        return cost.text() if cost else None

    def _hand_over(self, to: Body) -> None:
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
                facts, veil = self.life.facts(self.key, self.attempt), self.life.house.veiled(error)
                log.error("on_drain of step %s failed", self.key, exc_info=veil, extra=facts)

    def forget_listeners(self) -> None:
        """An attempt of this step is over: so is its interest in drains."""
        outer = self.outer
        if outer.listeners:
            outer.listeners = [one for one in outer.listeners if one[0] is not self and outer is not self]

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
        self.life.house.meters.step(self.life.workflow.name, self.name, self.kind, end, seconds)

    def again(self, error: str, delay: float | None) -> None:
        """An attempt has failed: say so, and in how many seconds the next is made, if one is for certain."""
        self.ended("retried")
        key = self.outer.key  # that of a step within a step has its arguments in it
        step = f"{self.kind} {key}" if self.outer is self else f"step {self.name} in {key}"
        then = "" if delay is None else f"; the next in {delay:.3g} s"
        saying, facts = "attempt %d of %s of run %s failed: %s%s", self.life.facts(key, self.attempt)
        log.info(saying, self.attempt, step, self.life.id, error, then, extra=facts)

    def failed(self, error: BaseException, delay: float) -> None:
        """An attempt has failed and another will be made. Inner attempts are the outer one's own affair."""
        self.again(told(error, self.life.house.log_values), delay)
        if self.task is not None:
            text = self.error_text = encode_error(error, self.life.house.settings.error_text_max)
            due, seconds = str(self.life.now() + delay), self.life.host.time() - self.since
            self.life.record(
                "attempt", self.key, value=due, error=text, seconds=seconds, attempt=self.attempt, cost=self.take_cost()
            )  # fmt: skip


class Part(Body):
    """A part of a step that numbers its calls by itself, like an item of a `map`. What it costs, the step does."""

    __slots__ = ("_whole",)

    def __init__(self, whole: Body, key: str) -> None:
        super().__init__(whole.life, f"{whole.key}[{key}]", whole.name, whole.results, whole)
        self._whole = whole

    def spend(self, cost: Cost, *, checked: bool = True) -> None:
        self._whole.spend(cost, checked=checked)


def launch(life: Life, place: Place, step: StepBase[..., Any], args: Any, kwargs: Any) -> None:
    """Start a step's body. Called on the run loop; the body executes on the host's."""
    body = Body(life, place.key, step.name, {})
    # A task copies the context it is made in: the body has one of its own, in which it is the current one.
    work = (
        _perform(body, place, step, args, kwargs)
        if life.span is None
        else life.span.around(body, partial(_perform, body, place, step, args, kwargs))
    )
    task = body.task = asyncio.Task(work, loop=life.host, name=place.key)
    place.stop = partial(_stop, body, place)
    life.bodies[task] = body


def _stop(body: Body, place: Place) -> None:
    """The workflow cancels the step. A task cancelled before its first turn never executes a line of its own."""
    task = body.task
    if task is not None:
        task.cancel()
        if not body.begun:
            body.life.bodies.pop(task, None)
            body.task = None
            body.life.record("step", place.key, place.args, error=CANCELLED, asked=True)
            body.ended("cancelled")


async def _perform(body: Body, place: Place, step: StepBase[..., Any], args: Any, kwargs: Any) -> None:
    BODY.set(body)
    life, body.begun, body.started = body.life, True, perf_counter()
    text_max = life.house.settings.error_text_max
    if life.house.observe is not None:
        life.house.observe(life.id, place.key)
    text = error = None
    try:
        earlier = life.journal.attempts.pop(place.key, None)
        if earlier is not None:
            body.attempt = earlier.count + 1
            await _pause(body, earlier.due - life.now())
        text, place.value = await attempt(body, step, args, kwargs)
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if place.asked:
            error = CANCELLED
        elif body.leaving is not None:
            return
        elif task is not None and task.cancelling():
            life.evict(Evicted("its step was cancelled from outside, as at the end of the program"))
            return
        else:  # the body itself let one out that nobody had asked for
            error = encode_error(StepFailed("asyncio.CancelledError", str(cancelled)), text_max)
    except Evicted:
        return
    except Draining as refused:
        if life.house.draining:
            return  # it wanted something that a process on its way out does not do: the next life will
        error = encode_error(refused, text_max)
    except (SystemExit, KeyboardInterrupt):  # the program ends: what was under way is done again
        life.evict(Evicted("its program ended in the middle of a step"))
        raise
    except BaseException as raised:
        error = encode_error(raised, text_max)
    finally:
        # Nothing is awaited from here on. A done callback would cost a turn of the host's loop for every step.
        life.bodies.pop(body.task, None)  # type: ignore[arg-type]
        body.task = None  # which has this body in its context
        if life.house.draining:
            life.house.drain.look(life)
    if body.is_cut and not place.asked:
        return  # an answer cut short is not an answer
    _record(body, place, step, text, error)


def _record(body: Body, place: Place, step: StepBase[..., Any], text: str | None, error: str | None) -> None:
    """Have it written how a step has ended, and count it."""
    life = body.life
    if life.house.log_values:
        say_values(body, place.args or "", text, error)
    seconds = perf_counter() - body.started
    cost = None if body.cost is None else body.take_cost()
    recorded = life.record(
        "step", place.key, place.args, text, error, seconds, body.attempt, place.asked, cost=cost
    )
    if error is None:
        took = life.host.time() - body.since
        if step.is_measured:
            life.house.durations.add(life.workflow.name, body.name, took)
        if recorded:
            body.ended("done", took)
    elif recorded:
        body.ended("cancelled" if error == CANCELLED else "failed", error=error)


async def attempt(body: Body, step: StepBase[..., Any], args: Any, kwargs: Any) -> tuple[str, Any]:
    """Attempts until one succeeds or none is left: its value as text, and as every life will get it. The arguments are the body's own."""
    codec, house, given = step.signature.returns(), body.life.house, (args, kwargs)
    while True:
        thread: list[asyncio.Future[Any]] = []
        if body.attempt <= step.retries:  # it may change them, and then another attempt is made
            args, kwargs = step.signature.copied(*given)
        else:
            args, kwargs = given
        before = step.signature.fingerprint(args, kwargs) if step.watched else ""
        body.since = body.life.host.time()
        try:
            if step.is_async and step.timeout is None:
                value = await house.stand_ins.get(step, step.fn)(*args, **kwargs)
            else:
                value = await _bounded(body, step, args, kwargs, thread)
            text, value = codec.carry(value)
            if len(text) > house.settings.value_size_max:
                house.check_size(text, f"the result of step {step.name}")
        except Unrecordable as error:
            raise Unrecordable(f"step {step.name}: {error}") from error.__cause__
        except LimitExceeded:
            raise
        except Exception as error:
            if body.attempt > step.retries or not isinstance(error, step.retry_on):
                raise
            if body.outer.is_cut or (house.draining and isinstance(error, Draining)):
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


def _say_if_changed(body: Body, step: StepBase[..., Any], before: str, args: Any, kwargs: Any) -> None:
    """Once a process: whoever wrote it may count on what a workflow never sees."""
    step.watched -= 1
    if step.signature.changed(before, args, kwargs):
        step.watched = 0
        saying = "step %s changes its arguments. They are copies: the workflow does not see that. Let it return what the workflow is to know."
        log.warning(saying, step.name, extra=body.life.facts(body.outer.key, body.attempt))


async def _pause(body: Body, seconds: float) -> None:
    """Until the next attempt. In a drain that is in another life, unless a unit must end first."""
    house = body.life.house
    until = house.loop.time() + seconds
    body.idle = True
    if body.outer is body:
        if house.draining:
            house.drain.look(body.life)
        await asyncio.sleep(seconds)
        if not body.life.may_start(UNIT.get()):
            await house.loop.create_future()  # it is cancelled when its run is given back
    elif seconds > 0:
        await asyncio.wait([house.drain.heard], timeout=seconds)
        if house.draining and UNIT.get() is None:
            raise Evicted(f"drain: {house.drain.reason}")
        await asyncio.sleep(until - house.loop.time())
    body.idle = False


async def _bounded(
    body: Body, step: StepBase[..., Any], args: Any, kwargs: Any, thread: list[asyncio.Future[Any]]
) -> Any:
    """One attempt with a time limit, in a thread if the step is sync."""
    fn = body.life.house.stand_ins.get(step, step.fn)
    try:
        async with asyncio.timeout(step.timeout) as limit:
            if step.is_async:
                return await fn(*args, **kwargs)
            future = body.life.house.pool.run(asyncio.get_running_loop(), copy_context(), fn, *args, **kwargs)
            thread.append(future)
            body.life.watch_thread(future)
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


def _thread_ended(body: Body, _: asyncio.Future[Any]) -> None:
    body.outer.threads -= 1
    if body.outer is not body and body.outer.leaving is not None and body.abandoned:
        body.outer.cancel()


def say_values(body: Body, args: str, text: str | None, error: str | None) -> None:
    """What a step got, and what came of it, as far as values may be logged."""
    life, characters = body.life, body.life.house.log_values
    came = f"raised {told_of(error, characters)}" if error is not None else cut(text or "null", characters)
    saying = "%s %s(%s) of run %s: %s"
    log.debug(
        saying, body.kind, body.key, cut(args, characters), life.id, came, extra=life.facts(body.key, body.attempt)
    )  # fmt: skip


def delay_before(step: StepBase[..., Any], attempt: int) -> float:
    """Doubling from `backoff` up to `backoff_max`, half of it by chance so that many do not return at once."""
    full: float = min(step.backoff_max, step.backoff * 2.0 ** min(attempt - 1, 60))
    return full * (0.5 + _jitter.random() / 2)


async def inner(body: Body, step: StepBase[..., Any], args: Any, kwargs: Any) -> Any:
    """A step called in a step's body: recorded under it, by name and arguments, for when the outer step is redone.

    Only results are: an inner failure is part of the outer attempt.
    """
    life = body.life
    if life.over is not None:
        raise life.over
    if life.house.draining and (UNIT.get() is None or body.outer.leaving is not None):
        raise Evicted(f"drain: {life.house.drain.reason}")
    fingerprint = step.signature.fingerprint(args, kwargs)
    call = f"{step.name}({fingerprint})"
    body.calls[call] = body.calls.get(call, 0) + 1
    key = f"{body.key}/{call}#{body.calls[call]}"
    recorded = life.journal.inner.get(key)
    known = body.results.get(key) or (recorded.value if recorded is not None else None)
    if known is not None:
        life.house.meters.replayed(life.workflow.name)
        return step.signature.returns().decode(known)
    args, kwargs = step.signature.copied(args, kwargs)
    within = Body(life, key, step.name, body.results, body)
    token = BODY.set(within)
    life.inner += 1
    try:
        if life.span is None:
            text, value = await attempt(within, step, args, kwargs)
        else:
            text, value = await life.span.around(within, partial(attempt, within, step, args, kwargs))
        seconds = perf_counter() - within.started
        await life.record_and_wait(
            "inner", key, args=fingerprint, value=text, seconds=seconds, attempt=within.attempt, cost=within.take_cost()
        )  # fmt: skip
        body.results[key] = text
        within.ended("done", life.host.time() - within.since)
    except Exception as error:
        if not isinstance(error, (Evicted, Draining)):
            within.ended("failed")
        raise
    finally:
        life.inner -= 1
        BODY.reset(token)
        within.forget_listeners()
        within._hand_over(body)
        if body.outer.leaving is not None and not body.outer.cut:
            body.outer.cancel()
    return value
