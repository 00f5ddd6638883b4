"""Define the workload of `outlast chaos`, which its workers execute when given no module.

The ledger records everything the workload does outside. A run's number determines how long each of
its parts takes and what goes wrong, the same in every execution. `endings` lists how each run must
end.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from outlast import (
    KEY,
    Abandoned,
    Happened,
    Item,
    Outlast,
    current,
    effect,
    receive,
    sleep,
    step,
    unit,
    workflow,
)
from outlast.tools.chaos.ledger_client import NotDone, ask, ask_from_thread

ITEMS = os.environ.get("CHAOS_ITEMS", "chaos-items")
"""The queue of the items. Each experiment has its own."""
TIMEOUT = 2.5
"""Longer than the ledger's longest delay, even on a busy machine."""
PATIENT: dict[str, Any] = {"retries": 200, "backoff": 0.05, "backoff_max": 0.5}
SURE: dict[str, Any] = {**PATIENT, "failed_on": (NotDone,)}


# Steps


@step
async def work(number: int, part: int) -> int:
    """Take between no time and as long as a drain allows."""
    here = current()
    await ask("began", str(here.step), attempt=here.attempt)
    await asyncio.sleep(_dice(number, f"work {part}").choice([0.0, 0.01, 0.05, 0.2, 0.6, 1.5]))
    # Return at once, so that a process stopped in the sleep tries to record this as soon as it
    # resumes.
    return part


@step
def work_in_a_thread(number: int, part: int) -> int:
    """Block in a thread that cannot be stopped."""
    here = current()
    ask_from_thread("began", str(here.step), attempt=here.attempt)
    time.sleep(_dice(number, f"thread {part}").choice([0.01, 0.1, 0.4]))
    return part


# Effects, one of each kind that needs no person


@effect(timeout=TIMEOUT, **SURE)
async def reserve(number: int, what: str, key: str = KEY) -> int | None:
    """Reserve once per request: the ledger counts each one.

    `verify` asks it whether this happened.
    """
    return await ask("act", key, **_befalls(number, what))


@reserve.verify
async def was_reserved(key: str = KEY) -> Happened[int | None] | None:
    found = await ask("asked", key)
    return None if found is None else Happened(found)


@reserve.compensate(idempotent=False, **SURE)
async def release(
    n: int | None, number: int, what: str, effect_key: str, key: str = KEY
) -> int | None:
    return await ask("undo", key, undoes=effect_key, of=n, **_befalls(number, f"release {what}"))


@release.verify
async def was_released(key: str = KEY) -> Happened[int | None] | None:
    return await was_reserved(key)


@effect(timeout=TIMEOUT, idempotent=True, **SURE)
async def charge(number: int, what: str, key: str = KEY) -> int | None:
    """Charge once per key: the ledger answers a repeat with the first result."""
    return await ask("once", key, **_befalls(number, what))


@charge.compensate(**SURE)
async def refund(
    n: int | None, number: int, what: str, effect_key: str, key: str = KEY
) -> int | None:
    return await ask(
        "undo_once", key, undoes=effect_key, of=n, **_befalls(number, f"refund {what}")
    )


@effect(timeout=TIMEOUT, **SURE)
def ship(number: int, what: str, key: str = KEY) -> int | None:
    """Ship from a thread that cannot be stopped.

    A process that resumes after it was overtaken still sends the request, and the ledger must
    refuse it.
    """
    time.sleep(0.3)
    return ask_from_thread("act", key, **_befalls(number, what))


@ship.verify
def was_shipped(key: str = KEY) -> Happened[int | None] | None:
    found = ask_from_thread("asked", key)
    return None if found is None else Happened(found)


@ship.compensate(**SURE)
def call_back(n: int | None, effect_key: str, key: str = KEY) -> int | None:
    return ask_from_thread("undo_once", key, undoes=effect_key, of=n)


@effect(timeout=TIMEOUT, **SURE)
async def mail(number: int, what: str, key: str = KEY) -> int | None:
    """Send a letter whose outcome only the ledger knows.

    If the outcome is unclear, a person has to decide. The load generator plays that person.
    """
    fault = _dice(number, "lost answer").choice(["", "", "cut"])
    return await ask("act", key, **{**_befalls(number, what), "fault": fault})


@mail.compensate(**SURE)
async def apologise(
    n: int | None, number: int, what: str, effect_key: str, key: str = KEY
) -> int | None:
    return await ask(
        "undo_once", key, undoes=effect_key, of=n, **_befalls(number, f"apologise {what}")
    )


# Workflows


class OutOfStock(Exception):
    pass


@workflow
async def order(number: int) -> int:
    """Run steps and effects in sequence and in parallel."""
    await work(number, 1)
    await reserve(number, "reserve")
    await asyncio.gather(charge(number, "charge"), ship.aio(number, "ship"), work(number, 2))
    await work_in_a_thread.aio(number, 3)
    return number


@workflow
async def agent(number: int) -> int:
    """Run step after step, like an agent's loop."""
    done = 0
    for part in range(_parts(number)):
        done += await work(number, part)
    await charge(number, "charge")
    return done


@workflow
async def sleeper(number: int) -> int:
    """Sleep while no worker holds the run. Any worker may wake it."""
    await work(number, 1)
    await sleep(_dice(number, "sleeper").uniform(0.3, 3.0))
    return await work(number, 2)


@workflow
async def failing(number: int) -> int:
    """Fail after everything is done, so that all of it is compensated."""
    await charge(number, "charge")
    await work(number, 1)
    await asyncio.gather(reserve(number, "reserve"), ship.aio(number, "ship"))
    raise OutOfStock(number)


@workflow
async def endless(number: int) -> int:
    """Wait forever, until the load generator cancels the run."""
    await reserve(number, "reserve")
    await ship.aio(number, "ship")
    await charge(number, "charge")
    await receive("never")
    return number


@workflow
async def units(number: int) -> int:
    """Roll back the first unit, then continue."""
    await reserve(number, "reserve")
    with suppress(OutOfStock):
        async with unit("first"):
            await charge(number, "charge rolled back")
            await ship.aio(number, "ship rolled back")
            raise OutOfStock(number)
    async with unit("second"):
        await charge(number, "charge")
        await work(number, 1)
    return number


@workflow
async def letter(number: int) -> int:
    """Send a letter. A kill at the wrong moment parks the run until a person has decided."""
    await work(number, 1)
    await mail(number, "mail")
    await work(number, 2)
    if number % 3 == 0:
        raise OutOfStock(number)
    return number


@workflow(abandon_after=0.1)
async def fickle(number: int) -> int:
    """Abandon and compensate the run unless a worker takes it over soon enough."""
    await charge(number, "charge")
    await work(number, 1)
    await reserve(number, "reserve")
    return await work(number, 2)


@workflow
async def part(number: int) -> int:
    await work(number, 1)
    await charge(number, "charge of the part")
    return number


@workflow
async def parent(number: int) -> int:
    """Fail after the child is done."""
    await reserve(number, "reserve")
    await part(number)
    await work(number, 1)
    raise OutOfStock(number)


@workflow
async def family(number: int) -> int:
    """Run children in parallel."""
    return sum(await asyncio.gather(part(number), part(number)))


FLOWS = (
    order,
    agent,
    sleeper,
    failing,
    letter,
    endless,
    agent,
    units,
    parent,
    family,
    order,
    fickle,
)
"""Submitted in this order, repeatedly."""


class Ending(NamedTuple):
    """One way a run may end: its status, its result, and the type name of its error."""

    status: str
    value: int | None = None
    error: str | None = None


def endings(flow: str, number: int) -> tuple[Ending, ...]:
    """Return every way in which a run of that workflow may end.

    Return an empty tuple for a workflow that is not submitted on its own.
    """
    values = {
        "order": number,
        "agent": sum(range(_parts(number))),
        "sleeper": 2,
        "units": number,
        "letter": number,
        "family": 2 * number,
        "fickle": 2,
    }
    if flow == "endless":
        return (Ending("cancelled"),)
    if flow in ("failing", "parent") or (flow == "letter" and number % 3 == 0):
        return (Ending("failed", error=OutOfStock.__name__),)
    given_up = (Ending("failed", error=Abandoned.__name__),) if flow == "fickle" else ()
    return (Ending("done", values[flow]), *given_up) if flow in values else ()


# Items


async def handle(item: Item) -> None:
    """Handle an item at least once, under the item's own key."""
    run = f"{item.queue}/{item.id}"
    await ask("once", f"item {run}", run=run, fence=item.fence, delay=float(item.payload))


@asynccontextmanager
async def living(app: Outlast) -> AsyncIterator[None]:
    consumer = asyncio.create_task(app.queue(ITEMS).consume(handle, concurrency=4))
    try:
        yield
    finally:
        consumer.cancel()
        await asyncio.gather(consumer, return_exceptions=True)


app = Outlast(lifespan=living)


# What happens to each call


def _parts(number: int) -> int:
    return _dice(number, "agent").randrange(4, 12)


def _dice(number: int, what: str) -> random.Random:
    return random.Random(f"{number} {what}")  # noqa: S311 - the same in every execution


def _befalls(number: int, what: str) -> dict[str, Any]:
    """Return the delay of a call, and for some calls a fault at the first request."""
    dice = _dice(number, what)
    delay = dice.choice([0.0, 0.0, 0.02, 0.1, 0.3, 0.8])
    fault = dice.choice(["", "", "", "", "", "cut", "refuse"])
    return {"delay": delay, "fault": fault}
