"""Child runs: what `await other_workflow(...)` inside a run starts. Each is a run of its own, under an id made of its parent's
and its place there, so that every life of the parent finds the same one."""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from outlast.errors import Conflict, Draining, RunCancelled, RunDead, StoreError
from outlast.replay.ending import End, refusal
from outlast.replay.place import Place
from outlast.store.verbs import Retry
from outlast.values.exceptions import CANCELLED, encode_error

if TYPE_CHECKING:
    from outlast.define.workflow import Call
    from outlast.replay.life import Life


def launch(life: Life, place: Place, call: Call[Any]) -> None:
    """Start a child, or find it where it is. Called on the run loop."""
    id = child_id(life.id, place.key, life.house.settings.id_length_max)
    task: asyncio.Task[None] = asyncio.Task(_follow(life, place, call, id), loop=life.host)
    place.stop = partial(_stop, life, id)
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
        life.record("child", place.key, args=place.args, error=encode_error(error, text_max))
        return
    error_text = end.error
    if end.status == "cancelled":
        cancelled = encode_error(RunCancelled(id, end.reason or ""), text_max)
        error_text = CANCELLED if place.cancelled else cancelled
    elif end.status == "dead":
        error_text = encode_error(RunDead(id, end.reason or ""), text_max)
    life.record("child", place.key, place.args, end.value, error_text, asked=place.cancelled)


async def _end(life: Life, place: Place, call: Call[Any], id: str) -> End:
    house = life.house
    if place.key in life.journal.voided:
        # Its parent is retried. Refused unless it had failed too, which is just as well.
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


def child_id(parent: str, key: str, length_max: int) -> str:
    id = f"{parent}/{key}"
    if len(id) <= length_max:
        return id
    return f"{id[: length_max - 40]}…{blake2b(id.encode(), digest_size=16).hexdigest()}"
