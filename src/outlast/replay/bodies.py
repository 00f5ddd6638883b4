"""Step bodies: what a step really does, on the host's loop or in a thread, with its attempts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from time import perf_counter
from typing import TYPE_CHECKING, Any

from outlast.errors import Evicted, LimitExceeded, StepFailed, StepTimeout, Unrecordable
from outlast.replay.place import Place
from outlast.values.exceptions import CANCELLED, decode_error, encode_error

if TYPE_CHECKING:
    from outlast.define.step import StepBase
    from outlast.replay.life import Life

BODY: ContextVar[Body | None] = ContextVar("outlast_body", default=None)
"""The step's body that executes now."""

NEVER_RETRIED = (Unrecordable, LimitExceeded)
"""The same value would come again."""


class Body:
    """One step under way. `calls` numbers the steps that it calls itself, `done` has their results."""

    __slots__ = ("attempt", "calls", "done", "key", "life", "name")

    def __init__(self, life: Life, key: str, name: str) -> None:
        self.life, self.key, self.name = life, key, name
        self.attempt = 1
        self.calls: dict[str, int] = {}
        self.done: dict[str, str] = {}


def launch(life: Life, place: Place, step: StepBase[..., Any], args: Any, kwargs: Any) -> None:
    """Start a step's body. Called on the run loop; the body executes on the host's."""
    body = Body(life, place.key, step.name)
    context = copy_context()
    context.run(BODY.set, body)
    task = asyncio.Task(_perform(body, place, step, args, kwargs), loop=life.host, context=context)
    place.stop = task.cancel  # type: ignore[assignment]
    life.bodies.add(task)
    task.add_done_callback(life.bodies.discard)


async def _perform(body: Body, place: Place, step: StepBase[..., Any], args: Any, kwargs: Any) -> None:
    life, started = body.life, perf_counter()
    if life.house.observe is not None:
        life.house.observe(life.id, place.key)
    earlier = life.journal.attempts.pop(place.key, None)
    try:
        if earlier is not None:
            body.attempt = earlier.count + 1
            await asyncio.sleep(earlier.due - life.now())

        def failed(error: BaseException, delay: float) -> None:
            text = encode_error(error, life.house.settings.error_text_max)
            due, seconds = str(life.now() + delay), perf_counter() - started
            life.record("attempt", place.key, value=due, error=text, seconds=seconds, attempt=body.attempt)

        text, value = await attempt(body, step, args, kwargs, failed)
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if place.asked:
            error = CANCELLED
        elif task is not None and task.cancelling():
            life.evict(Evicted("its step was cancelled from outside, as at the end of the program"))
            return
        else:  # the body itself let one out that nobody had asked for
            error = encode_error(
                StepFailed("asyncio.CancelledError", str(cancelled)), life.house.settings.error_text_max
            )
    except Evicted:
        return
    except (SystemExit, KeyboardInterrupt):  # the program ends: what was under way is done again
        life.evict(Evicted("its program ended in the middle of a step"))
        raise
    except BaseException as raised:
        error = encode_error(raised, life.house.settings.error_text_max)
    else:
        place.value = value
        seconds = perf_counter() - started
        life.record(
            "step",
            place.key,
            args=place.args,
            value=text,
            seconds=seconds,
            attempt=body.attempt,
            asked=place.asked,
        )
        return
    seconds = perf_counter() - started
    life.record(
        "step",
        place.key,
        args=place.args,
        error=error,
        seconds=seconds,
        attempt=body.attempt,
        asked=place.asked,
    )


async def attempt(
    body: Body,
    step: StepBase[..., Any],
    args: Any,
    kwargs: Any,
    failed: Callable[[BaseException, float], None],
) -> tuple[str, Any]:
    """Attempts until one succeeds or none is left: its value as text, and as every life will get it."""
    codec = step.signature.returns()
    while True:
        thread: list[asyncio.Future[Any]] = []
        try:
            value = await _once(body, step, args, kwargs, thread)
            text, value = codec.carry(value)
            body.life.house.check_size(text, f"the result of step {step.name}")
        except NEVER_RETRIED:
            raise
        except Exception as error:
            if body.attempt > step.retries or not isinstance(error, step.retry_on):
                raise
            delay = _delay(step, body.attempt)
            failed(error, delay)
            if thread:  # no attempt starts while the thread of the last one lives
                await asyncio.wait(thread)
            await asyncio.sleep(delay)
            body.attempt += 1
            body.calls.clear()
        else:
            return text, value


async def _once(
    body: Body, step: StepBase[..., Any], args: Any, kwargs: Any, thread: list[asyncio.Future[Any]]
) -> Any:
    fn = body.life.house.stand_ins.get(step, step.fn)
    if step.timeout is None and step.is_async:
        return await fn(*args, **kwargs)
    try:
        async with asyncio.timeout(step.timeout) as limit:
            if step.is_async:
                return await fn(*args, **kwargs)
            future = body.life.house.pool.run(asyncio.get_running_loop(), copy_context(), fn, *args, **kwargs)
            thread.append(future)
            body.life.threads.add(future)
            future.add_done_callback(lambda ended: _thread_ended(body, ended))
            return await asyncio.shield(future)
    except TimeoutError as error:
        if limit.expired():
            raise StepTimeout(
                f"step {step.name} took longer than its timeout of {step.timeout} s."
            ) from error
        raise


def _thread_ended(body: Body, future: asyncio.Future[Any]) -> None:
    body.life.threads.discard(future)
    if not future.cancelled():
        future.exception()  # seen, also where nobody waits for it any more


def _delay(step: StepBase[..., Any], attempt: int) -> float:
    """Doubling from `backoff` up to `backoff_max`, half of it by chance so that many do not return at once."""
    full: float = min(step.backoff_max, step.backoff * 2.0 ** min(attempt - 1, 60))
    return full * (0.5 + random.random() / 2)  # noqa: S311 - not a secret


async def inner(body: Body, step: StepBase[..., Any], args: Any, kwargs: Any) -> Any:
    """A step called in a step's body: recorded under it, by name and arguments, for when the outer step is redone.

    Only results are: an inner failure is part of the outer attempt.
    """
    life = body.life
    if life.over is not None:
        raise life.over
    print_ = step.signature.fingerprint(args, kwargs)
    call = f"{step.name}({print_})"
    body.calls[call] = body.calls.get(call, 0) + 1
    key = f"{body.key}/{call}#{body.calls[call]}"
    recorded = life.journal.inner.get(key)
    known = body.done.get(key) or (recorded.value if recorded is not None else None)
    if known is not None:
        return step.signature.returns().decode(known)
    within, started = Body(life, key, step.name), perf_counter()
    token = BODY.set(within)
    try:
        text, value = await attempt(within, step, args, kwargs, lambda *_: None)
    finally:
        BODY.reset(token)
    seconds = perf_counter() - started
    await life.record_and_wait("inner", key, args=print_, value=text, seconds=seconds, attempt=within.attempt)
    body.done[key] = text
    return value


__all__ = ["BODY", "Body", "decode_error", "inner", "launch"]
