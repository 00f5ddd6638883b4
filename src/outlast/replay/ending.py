"""How a life ends: the workflow is woken so that its `finally` blocks execute, bodies are stopped, and then the run is settled,
parked or given back."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

from outlast.errors import Diverged, Evicted, LimitExceeded, RunTimeout, StoreError, Unrecordable
from outlast.replay.lines import is_of_program, shown
from outlast.replay.own import own
from outlast.store.rows import ENDED
from outlast.store.verbs import CANCEL, FENCE, Refused, Release, Settle, Undo, verdict
from outlast.values.exceptions import SEQ, encode_error

if TYPE_CHECKING:
    from outlast.replay.life import Life
    from outlast.replay.loop import RunTask
    from outlast.replay.place import Place

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
    error: BaseException | None = life.refused
    if error is None:
        try:
            error = main.exception()
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
    _warn_of_running_tasks(life)
    _end_tasks(life)
    if life.thread is not None:
        life.thread.evict(life.over)
    for task, body in life.bodies.items():
        if body is None or not body.shielded:
            task.cancel()
    for place in list(life.places.values()):
        if not place.awaited:
            _say_not_awaited(life, place)
        if place.coro is not None:
            place.coro.close()  # called, and not awaited: Python's own warning would name our line
        if place.kind == "child" and place.stop is not None and life.verdict is not None:
            place.stop()  # a child that nobody waits for ends with its parent
    life.house.keep(own(life.host, _conclude(life)))


def _say_not_awaited(life: Life, place: Place) -> None:
    """Log a call without `await`: it did nothing, and the run ended all the same.

    Of a run that failed only effects are worth it: an exception may have come between the call and
    its `await`.
    """
    if life.verdict is None or (life.verdict.status != "done" and place.errand is None):
        return
    kind = "effect" if place.errand is not None else place.kind
    line = "" if place.line is None else f" at {shown(place.line)}"
    level = logging.ERROR if place.errand is not None else logging.WARNING
    saying = "%s %s of run %s was called%s and not awaited: nothing was done. Await it: `await %s(...)`."
    name = place.key.rpartition("/")[2].partition("#")[0]
    log.log(level, saying, kind, place.key, life.id, line, name, extra=life.facts(place.key))


def _warn_of_running_tasks(life: Life) -> None:
    """Log once which tasks of the program still run when a run is done: the workflow did not wait for them.

    A task that the workflow has cancelled is not one of them, nor one that a library created for itself.
    """
    if life.verdict is None or life.verdict.status != "done" or life.undoing:
        return
    module = life.workflow.fn.__module__
    running = [
        (task, task.line)
        for task in life.loop.tasks
        if not (task is life.main or task.done() or task.cancelling())
        and task.line is not None
        and is_of_program(task.line, module)
    ]
    if running:
        task, line = running[0]
        more = f" and {len(running) - 1} more" if len(running) > 1 else ""
        log.warning(
            "run %s ended while task %s, created at %s,%s still ran: what it had not done is lost. "
            "Await the task before the workflow returns, or cancel it.",
            life.id, task.scope.path.rstrip("/"), shown(line), more, extra=life.facts(),
        )  # fmt: skip


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
                if isinstance(outcome, Refused) and outcome.why == CANCEL:
                    last = await _cancelled(life, outcome.detail)
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


async def _cancelled(life: Life, why: str) -> Settle | Undo:
    """Return how a run that cannot be replayed, and that somebody wants to end, ends.

    Its `finally` blocks cannot execute. What it has done is in its journal, and is undone from there without its code.
    """
    asked = [entry.seq for entry in life.pending if entry.kind == "cancel"]
    failed_at = life.cancel_seq if life.cancel_seq is not None else min(asked, default=None)
    life.over = Evicted("the run has ended")
    life.verdict = Settle(life.pk, life.fence, "cancelled", reason=why, failed_at=failed_at)
    if not await life.house.read(life.house.store.has_dealt, life.id):
        return life.verdict
    text = verdict("cancelled", reason=why, failed_at=failed_at)
    return Undo(life.pk, life.fence, text)


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
    """Return the threads that may still execute something of the run and must end first."""
    own = [life.thread.ended] if life.thread is not None and not life.thread.ended.done() else []
    if life.verdict is None:
        return [*life.threads, *own]
    strays = life.strays if life.journal.dealings.opened else []
    return [*(thread for thread in strays if not thread.done()), *own]


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
    if isinstance(life.over, Diverged):
        return Settle(life.pk, life.fence, "parked", reason=str(life.over), unless_cancelled=True)
    if isinstance(life.over, Evicted) and life.over.parked:
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
