"""How a life ends: the workflow is woken so that its `finally` blocks execute, bodies are stopped, and then the run is settled,
parked or given back."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

from outlast.errors import Diverged, Evicted, LimitExceeded, RunTimeout, StoreError, Unrecordable
from outlast.replay.own import own
from outlast.store.rows import ENDED
from outlast.store.verbs import FENCE, Refused, Release, Settle, Undo, verdict
from outlast.values.exceptions import SEQ, encode_error

if TYPE_CHECKING:
    from outlast.replay.life import Life
    from outlast.replay.loop import RunTask

log = logging.getLogger("outlast.replay")

ROUNDS = 10
"""How often tasks that go on after a cancellation are cancelled again."""


class End(NamedTuple):
    """How a life ended. `status` is the run's, or "evicted" if the run goes on without us."""

    status: str
    value: str | None = None
    error: str | None = None
    reason: str | None = None


def judge(life: Life, main: RunTask) -> Settle:
    """How the run ends, now that its workflow has returned or raised."""
    if life.row.undoing is not None:
        said = json.loads(life.row.undoing)
        return Settle(life.pk, life.fence, **said)
    text_max = life.house.settings.error_text_max
    try:
        error: BaseException | None = main.exception()
    except asyncio.CancelledError as cancelled:
        error = cancelled
    if life.timed_out:
        text = encode_error(RunTimeout(life.id), text_max)
        return Settle(life.pk, life.fence, "failed", error=text, failed_at=life.cancel_seq)
    if life.cancelling is not None:
        return Settle(life.pk, life.fence, "cancelled", reason=life.cancelling, failed_at=life.cancel_seq)
    if error is None:
        try:
            text, _ = life.workflow.signature.returns().carry(main.result())
            life.house.check_size(text, f"the result of {life.workflow.name}")
        except (Unrecordable, LimitExceeded) as unfit:
            error = unfit
        else:
            return Settle(life.pk, life.fence, "done", value=text)
    text = encode_error(error, text_max)
    return Settle(life.pk, life.fence, "failed", error=text, failed_at=_origin(error))


def wind_down(life: Life) -> None:
    """Wake whatever still waits in the workflow, then stop the bodies. Once; nothing is delivered or recorded any more."""
    assert life.over is not None
    if life.winding:
        return
    life.winding = True
    life.stop_clocks()
    _end_tasks(life)
    if life.thread is not None:
        life.thread.evict(life.over)
    for task, body in life.bodies.items():
        if body is None or not body.shielded:
            task.cancel()
    for place in list(life.places.values()):
        if place.coro is not None and place.errand is not None and life.verdict is not None:
            saying = "effect %s of run %s was called and not awaited: nothing was done"
            log.error(saying, place.key, life.id, extra=life.facts(place.key))
        if place.coro is not None and (life.verdict is None or life.verdict.status != "done"):
            place.coro.close()  # called, and then something was raised before it could be awaited
        if place.kind == "child" and place.stop is not None and life.verdict is not None:
            place.stop()  # a child that nobody waits for ends with its parent
    life.house.keep(own(life.host, _conclude(life)))


def _end_tasks(life: Life) -> None:
    """First whoever waits at a place gets the reason; then what still goes on is cancelled, again and again."""
    loop = life.loop
    loop.open = True
    for place in list(life.places.values()):
        place.wake()
    loop.open = False
    loop.pump(10_000)
    for _ in range(ROUNDS):
        going_on = [task for task in loop.tasks if not task.done()]
        if not going_on:
            break
        loop.open = True
        for task in going_on:
            task.cancel(str(life.over))
        loop.open = False
        loop.pump(10_000)
    if any(not task.done() for task in loop.tasks):
        life.house.graveyard.append(loop)  # kept, so that no finaliser executes its code
    for task in loop.tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        if task.done() and not task.cancelled():
            task.exception()  # seen: it is no news that it ended so


async def _conclude(life: Life) -> None:
    """Once the bodies have stopped: settle, park or give back."""
    end = End("evicted", reason=str(life.over))
    try:
        await _stopped(life)
        if (
            life.had_children
            and life.verdict is not None
            and life.verdict.status != "done"
            and not life.undoing
        ):
            await _look_at_children(life)
        last = _last_verb(life)
        if last is None:
            life.concluded = life.id not in life.house.hung
            if not life.concluded:
                life.house.afterwards(_afterwards(life))
        else:
            life.house.free(
                life
            )  # nothing of it executes any more: what is claimed now is written after its end
            try:
                outcome = await life.house.writer.ask(last)
            except StoreError as error:
                outcome = error
            life.concluded = not isinstance(outcome, StoreError)
            if isinstance(
                outcome, (Refused, StoreError)
            ):  # it is not ours any more, or the store does not answer
                life.over, life.verdict = refusal(outcome), None
                end = End("evicted", reason=str(life.over))
            elif isinstance(last, Undo):
                life.over, life.verdict = Evicted("what it has done is being undone"), None
                life.is_to_be_undone = True
            elif isinstance(last, Settle):
                end = End(last.status, last.value, last.error, last.reason)
                if last.status == "parked":
                    life.house.hooks.tell("parked", life.id)
            elif outcome == "dead":
                life.house.hooks.tell("dead", life.id)
    finally:
        life.house.gone(life)
        if not life.end.done():
            life.end.set_result(end)


async def _look_at_children(life: Life) -> None:
    """Whether a child has not ended, or has done anything: their parent is about to fail."""
    house = life.house
    try:
        async with aclosing(house.children_of(life.id)) as children:
            async for row in children:
                ended = row.status in ENDED and row.undoing is None
                undone = row.status in ("failed", "cancelled")
                if not ended or (not undone and await house.read(house.store.has_dealt, row.id)):
                    life.children_left = True
                    return
    except StoreError as error:
        life.over, life.verdict = refusal(error), None


async def _afterwards(life: Life) -> None:
    """The house has closed while an effect acted, or a thread executed. If that ends while the program goes on, its run is given back."""
    house = life.house
    while going_on := [*life.bodies, *_threads(life)]:
        await asyncio.wait(going_on)
        life.bodies = {task: body for task, body in life.bodies.items() if not task.done()}
    last = _last_verb(life)
    try:
        if last is not None:
            await house.writer.ask(last)
    finally:  # if the store did not take it, it takes that the worker leaves
        house.room.drop(life.fence)
        house.hangs_no_more(life.id)


async def _stopped(life: Life) -> None:
    """Until nothing of the run executes any more; when the house closes, no longer than `close_timeout`.

    A run that has ended does not wait for threads of steps that were cancelled or took too long: that is on record.
    """
    house = life.house
    while True:
        # One that was cancelled before its first turn could not strike itself off.
        life.bodies = {task: body for task, body in life.bodies.items() if not task.done()}
        going_on: list[asyncio.Future[Any]] = [*life.bodies, *_threads(life)]
        if not going_on:
            return
        if house.closing:
            await asyncio.wait(going_on, timeout=house.patience())
            life.bodies = {task: body for task, body in life.bodies.items() if not task.done()}
            return
        await asyncio.wait([*going_on, house.closed_soon], return_when=asyncio.FIRST_COMPLETED)


def _threads(life: Life) -> list[asyncio.Future[Any]]:
    """What of a run that has not ended may still execute in a thread."""
    if life.verdict is not None:
        return [thread for thread in life.strays if not thread.done()] if life.journal.dealings.opened else []
    own = [life.thread.ended] if life.thread is not None and not life.thread.ended.done() else []
    return [*life.threads, *own]


def _last_verb(life: Life) -> Settle | Release | Undo | None:
    if isinstance(life.over, Evicted) and life.over.lost:
        return None
    if life.bodies or _threads(life):
        life.house.hung.add(life.id)  # still executing: the run must not be given to anybody yet
        return None
    if life.verdict is not None:
        dealings = life.journal.dealings
        to_undo = life.verdict.status != "done" and (dealings.undoable or life.children_left)
        if not life.undoing and (dealings.opened or to_undo):
            end = life.verdict
            text = verdict(end.status, end.value, end.error, end.reason, end.failed_at)
            return Undo(life.pk, life.fence, text)
        return life.verdict
    if isinstance(life.over, Diverged) or (isinstance(life.over, Evicted) and life.over.parked):
        return Settle(life.pk, life.fence, "parked", reason=str(life.over))
    if life.delay is not None:
        return Release(life.pk, life.fence, str(life.over), delay=life.delay, interrupted=False)
    if life.resting is not None:
        due, names, children, _, seen = life.resting
        reason = str(life.over)
        return Release(
            life.pk, life.fence, reason, waiting=True, due=due, waits=names, seen=seen, children=children
        )
    return Release(life.pk, life.fence, str(life.over))


def refusal(outcome: Any) -> Evicted:
    """The end of a life whose run this process no longer has: another has it, or the store does not answer."""
    if isinstance(outcome, Refused) and outcome.why == FENCE:
        return lost("another worker has the run now: this one was taken for dead")
    if isinstance(outcome, StoreError):
        return lost(f"the store did not take an entry: {outcome}", outcome)
    return lost(f"the store refused an entry: {outcome}")


def lost(reason: str, cause: StoreError | None = None) -> Evicted:
    """An eviction after which there is nothing to give back. With a cause, the run is not asked for again."""
    evicted = Evicted(reason)
    evicted.lost, evicted.cause = True, cause
    return evicted


def _origin(error: BaseException) -> int | None:
    """The entry whose exception ended the run, if it was one: a retry starts there."""
    seen: set[int] = set()
    stack: list[BaseException | None] = [error]
    found: list[int] = []
    while stack:
        one = stack.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if SEQ in one.__dict__:  # what was handled before it is no part of the end
            found.append(one.__dict__[SEQ])
            continue
        stack += [one.__cause__, None if one.__suppress_context__ else one.__context__]
        if isinstance(one, BaseExceptionGroup):
            stack += one.exceptions
    return min(found, default=None)
