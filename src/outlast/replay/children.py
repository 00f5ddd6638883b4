"""Child runs: what `await other_workflow(...)` inside a run starts. Each is a run of its own, under an id made of its parent's
and its place there, so that every life of the parent finds the same one."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any, cast

from outlast.errors import Conflict, Draining, RunCancelled, RunDead, StoreError
from outlast.replay import leaving
from outlast.replay.ending import End, refusal
from outlast.replay.place import Place, child_id
from outlast.store.rows import ENDED, RunRow
from outlast.store.verbs import Retry, UndoChild
from outlast.values.exceptions import CANCELLED, encode_error

if TYPE_CHECKING:
    from outlast.app.house import House
    from outlast.define.workflow import Call
    from outlast.replay.life import Life

log = logging.getLogger("outlast.replay")


def launch(life: Life, place: Place, call: Call[Any]) -> None:
    """Start a child, or find it where it is. Called on the run loop."""
    id = child_id(life.id, place.key, life.house.settings.id_length_max)
    _start(life, _follow(life, place, call, id))
    place.stop = partial(_stop, life, id)


def _start(life: Life, work: Coroutine[Any, Any, None]) -> None:
    """On the host's loop, as part of the life that has something to do with children."""
    task: asyncio.Task[None] = asyncio.Task(work, loop=life.host)
    life.bodies[task] = None
    task.add_done_callback(lambda task: life.bodies.pop(task, None))
    life.house.keep(task)


def _stop(life: Life, id: str) -> None:
    life.house.keep(asyncio.Task(life.house.cancel(id, "its parent cancelled it"), loop=life.host))


async def _follow(life: Life, place: Place, call: Call[Any], id: str) -> None:
    """Have the child executed, wait for its end, and record it in the parent's journal."""
    text_max = life.house.settings.error_text_max
    try:
        end = await _end(life, place, call, id)
    except asyncio.CancelledError:
        return  # this life of the parent ends; the child is a run of its own
    except Draining:
        return  # not started: the next life of the parent does
    except StoreError as error:
        life.evict(refusal(error))
        return
    except Exception as error:
        if life.record("child", place.key, args=place.args, error=encode_error(error, text_max)):
            life.house.meters.step(life.workflow.name, call.workflow.name, "child", "failed")
        return
    error_text = end.error
    if end.status == "cancelled":
        cancelled = encode_error(RunCancelled(id, end.reason or ""), text_max)
        error_text = CANCELLED if place.cancelled else cancelled
    elif end.status == "dead":
        error_text = encode_error(RunDead(id, end.reason or ""), text_max)
    if life.record("child", place.key, place.args, end.value, error_text, asked=place.cancelled):
        ended = end.status if end.status in ("done", "cancelled") else "failed"
        life.house.meters.step(life.workflow.name, call.workflow.name, "child", ended)


async def _end(life: Life, place: Place, call: Call[Any], id: str) -> End:
    house = life.house
    if await _is_to_be_retried(life, place, id):
        # Refused unless it had failed too, which is just as well.
        await house.writer.ask(Retry(id, secrets.token_hex(8)))
    while True:
        row = await house.start(call, id, parent=life.row)
        place.child = id
        if row.parent != life.id:
            raise Conflict(id, "a run of its own", f"a child of {life.id!r}")
        if place.cancelled:
            await house.cancel(id, "its parent cancelled it")
        try:
            end = await house.ended(id)
        except Draining:  # it was given back, and so will its parent be, which waits for it
            await life.host.create_future()
            raise
        if end.status != "parked":
            return end
        await house.while_parked(id)  # its parent waits with it


async def _is_to_be_retried(life: Life, place: Place, id: str) -> bool:
    """Its parent is retried: its end is void, or it was ended when its parent failed, and that is in no journal."""
    retried = life.journal.retried
    if place.key in life.journal.voided or retried is None:
        return place.key in life.journal.voided
    row = await life.house.read(life.house.store.run, id)
    return row is not None and row.ended is not None and row.ended <= retried


def launch_undo(life: Life, place: Place, of: str) -> None:
    """Have a child undone that is done. Called on the run loop."""
    id = child_id(life.id, of, life.house.settings.id_length_max)
    _launch(life, place, partial(_undo, life, place, id))


def launch_end_all(life: Life, place: Place) -> None:
    """Have all children ended that have not, and those undone that have ended without their parent's knowing."""
    _launch(life, place, partial(_end_all, life, place))


def _launch(life: Life, place: Place, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def follow() -> None:
        try:
            await work()
        except (asyncio.CancelledError, Draining):
            return
        except StoreError as error:
            life.evict(refusal(error))
            return
        except Exception as error:
            log.error(
                "children of run %s", life.id, exc_info=life.house.veiled(error), extra=life.facts(place.key)
            )
            leaving.cannot_tell(life, place.key, f"something is wrong with its children: {error!r}.")
            await life.host.create_future()
        life.record("child", place.key, place.args, value="null")

    _start(life, follow())


async def _end_all(life: Life, place: Place) -> None:
    house = life.house
    known = {child_id(life.id, one.place, house.settings.id_length_max) for one in life.journal.dealings}
    async with aclosing(house.children_of(life.id)) as children:
        async for row in children:
            if row.id not in known:
                await _undo(life, place, row.id)


async def _undo(life: Life, place: Place, id: str) -> None:
    """Until a child has ended and has nothing left to undo. One that only has to be undone may execute here: its code is not needed."""
    house = life.house
    place.child = id
    asked: RunRow | None = None
    while True:
        seen = house.changes.count
        row = await house.read(house.store.run, id)
        if row is None:
            return
        if row.undoing is None and row != asked:
            # Once as it stands: asking rings the bell that is waited for.
            await _ask(life, row)
            asked = await house.read(house.store.run, id)
            continue
        if row.undoing is None and row.status in ENDED:
            return
        if row.status in ("parked", "dead"):
            why = f"its child {id} is {row.status} and cannot be undone: `outlast retry {quote(id)}`."
            leaving.cannot_tell(life, place.key, why)
            await life.host.create_future()
        if row.undoing is not None or row.workflow in house.workflows:
            house.adoption.of(row, house.workflows.get(row.workflow) or cast("Any", Unneeded(row.workflow)))
        elif row.worker is not None:
            await house.sweeper.sweep()
        await house.changes.next(min(house.settings.poll, 10 * house.settings.heartbeat), seen)


async def _ask(life: Life, row: RunRow) -> None:
    """What can be asked of a child as it stands: to undo what it has done, or to end."""
    house, why = life.house, f"its parent {life.id} is undone"
    if row.status not in ENDED:
        await house.cancel(row.id, why)
    left_alone = _is_left_alone(house, row)
    await house.writer.ask(UndoChild(row.id, life.id, why, unheld=left_alone))


def _is_left_alone(house: House, row: RunRow) -> bool:
    """Nobody has it, and nobody will: it is a dead letter, or this is no worker and does not know its code."""
    elsewhere = house.claimer is not None or row.workflow in house.workflows
    return row.status == "dead" or (row.worker is None and row.status not in ENDED and not elsewhere)


class Unneeded:
    """In place of a workflow whose run is only undone: its code is not executed, and need not be known here."""

    is_async, timeout = True, None

    def __init__(self, name: str) -> None:
        self.name = name
