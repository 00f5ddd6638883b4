"""What the workers execute under fire: effects of every kind on the ledger at LEDGER_URL, and files in the folder they are in.

A run's number says what befalls each of its calls. `expected` says what must be in the ledger when it has ended.
"""

import asyncio
import os
import random
import time
from typing import Any

from outlast import KEY, Happened, compensate_with, effect, receive, sleep, unit, workflow
from outlast.effects import HTTPAnswer, HTTPNotSent, HTTPRefused, file_effect, http_effect

URL = os.environ.get("LEDGER_URL", "http://127.0.0.1:9")
FOLDER = os.environ.get("LEDGER_FILES", "/nowhere")
TIMEOUT = 2.5
"""Longer than the ledger's longest delay."""
DEADLINE = {"X-Deadline": lambda: str(time.time() + TIMEOUT)}
"""The ledger applies nothing after the time-out, also on a busy machine."""
PATIENT: dict[str, Any] = {"retries": 200, "backoff": 0.05, "backoff_max": 0.5}
"""The ledger is killed too: as long as nobody answers, it did not happen, and is tried again."""
ASK = f"{URL}/happened?key={{key}}"

reserve = http_effect("reserve", timeout=TIMEOUT, verify_url=ASK, headers=DEADLINE, **PATIENT)
charge = http_effect("charge", timeout=TIMEOUT, idempotent=True, headers=DEADLINE, **PATIENT)
ship = http_effect("ship", timeout=TIMEOUT, verify_url=ASK, headers=DEADLINE, **PATIENT)
note = file_effect("note", timeout=TIMEOUT, **PATIENT)


@reserve.compensate(**PATIENT)
async def release(answer: HTTPAnswer, effect_key: str, key: str = KEY) -> None:
    """Idempotent: the ledger knows its key."""
    await reserve.request(
        "POST", f"{URL}/undo-once?delay=0.05", key=key, json={"undoes": effect_key}
    )


@charge.compensate(**PATIENT)
async def refund(answer: HTTPAnswer, effect_key: str, key: str = KEY) -> int:
    fault = random.Random(key).choice(["", "", "&fault=cut", "&fault=500"])
    url = f"{URL}/undo-once?delay=0.02{fault}"
    return int(
        (await charge.request("POST", url, key=key, json={"undoes": effect_key})).json()["n"]
    )


@ship.compensate(idempotent=False, failed_on=(HTTPNotSent, HTTPRefused), **PATIENT)
async def call_back(answer: HTTPAnswer, effect_key: str, key: str = KEY) -> int:
    """The ledger counts each of these: whether it happened is asked."""
    fault = random.Random(key).choice(["", "", "", "&fault=cut"])
    url = f"{URL}/undo?delay=0.1{fault}"
    return int((await ship.request("POST", url, key=key, json={"undoes": effect_key})).json()["n"])


@call_back.verify
async def was_called_back(key: str = KEY) -> Happened[int] | None:
    try:
        return Happened(int((await ship.request("GET", ASK.replace("{key}", key))).json()["n"]))
    except HTTPRefused as refused:
        if refused.status == 404:
            return None
        raise


@effect(timeout=TIMEOUT, failed_on=(HTTPNotSent, HTTPRefused), **PATIENT)
def stamp(url: str, what: str, key: str = KEY) -> int:
    """In a thread, which nobody can stop: a process that goes on after it was overtaken still sends it."""
    time.sleep(0.2)
    return int(asyncio.run(ship.request("POST", url, key=key, json={"what": what})).json()["n"])


@stamp.verify
def was_stamped(key: str = KEY) -> Happened[int] | None:
    return asyncio.run(was_called_back(key))


@stamp.compensate(**PATIENT)
def unstamp(n: int, effect_key: str, key: str = KEY) -> None:
    time.sleep(0.1)
    asyncio.run(ship.request("POST", f"{URL}/undo-once", key=key, json={"undoes": effect_key}))


@effect(timeout=TIMEOUT, idempotent=True, undo=None, **PATIENT)
async def clean_up(name: str, key: str = KEY) -> None:
    """Registered before what it cleans up after is made."""
    await reserve.request("POST", f"{URL}/undo-once", key=key, json={"undoes": name})


# -- what befalls each call


def query(number: int, what: str) -> str:
    """A delay, and for some a fault at the first time."""
    dice = random.Random(f"{number} {what}")
    delay = dice.choice([0, 0, 0.02, 0.1, 0.3, 0.8])
    fault = dice.choice(
        ["", "", "", "", "&fault=cut", "&fault=500", "&fault=503", "&fault=cut-before"]
    )
    return f"delay={delay}{fault}"


async def do(number: int, what: str) -> None:
    if what.startswith("stamp"):
        await stamp.aio(f"{URL}/act?{query(number, what)}", what)
        return
    kind = {"reserve": reserve, "charge": charge, "ship": ship}[what.partition("-")[0]]
    path = "once" if kind is charge else "act"
    await kind("POST", f"{URL}/{path}?{query(number, what)}", json={"what": what})


# -- workflows


class OutOfStock(Exception):
    pass


@workflow
async def order(number: int) -> int:
    """One after another and side by side."""
    await do(number, "reserve-1")
    await asyncio.gather(do(number, "charge-1"), do(number, "ship-1"))
    await sleep(0.05)
    await asyncio.gather(do(number, "charge-2"), do(number, "stamp-1"))
    await note.aio(f"{FOLDER}/order-{number}", f"order {number}\n" * 100)
    return number


@workflow
async def failing(number: int) -> int:
    """It fails when everything is done."""
    await compensate_with(clean_up, f"failing-{number}")
    await do(number, "charge-1")
    await note.aio(f"{FOLDER}/failing-{number}", "no trace of this")
    await asyncio.gather(do(number, "reserve-1"), do(number, "ship-1"), do(number, "stamp-1"))
    raise OutOfStock(number)


@workflow
async def endless(number: int) -> int:
    """It is cancelled, sooner or later."""
    await do(number, "ship-1")
    await do(number, "stamp-1")
    await do(number, "reserve-1")
    await note.aio(f"{FOLDER}/endless-{number}", "no trace of this")
    await asyncio.gather(do(number, "charge-1"), do(number, "charge-2"))
    await receive("never")
    return number


@workflow
async def in_units(number: int) -> int:
    """The first unit is rolled back, and the run goes on."""
    await do(number, "reserve-1")
    try:
        async with unit("first"):
            await do(number, "charge-rolled")
            await asyncio.gather(do(number, "ship-rolled"), do(number, "reserve-rolled"))
            raise OutOfStock(number)
    except OutOfStock:
        pass
    async with unit("second"):
        await do(number, "charge-2")
        await do(number, "ship-2")
    return number


@workflow
async def part(number: int) -> int:
    await do(number, "charge-part")
    await do(number, "ship-part")
    return number


@workflow
async def parent(number: int) -> int:
    """Its child is done when it fails."""
    await do(number, "reserve-1")
    await part(number)
    await do(number, "ship-1")
    raise OutOfStock(number)


FLOWS = {flow.name: flow for flow in (order, failing, endless, in_units, parent)}
STATUS = {
    "order": "done",
    "failing": "failed",
    "endless": "cancelled",
    "in_units": "done",
    "parent": "failed",
}
EXPECTED = {
    "order": {"reserve-1", "charge-1", "ship-1", "charge-2", "stamp-1"},
    "failing": {"charge-1", "reserve-1", "ship-1", "stamp-1"},
    "in_units": {
        "reserve-1",
        "charge-rolled",
        "ship-rolled",
        "reserve-rolled",
        "charge-2",
        "ship-2",
    },
    "parent": {"reserve-1", "charge-part", "ship-part", "ship-1"},
}
"""What must have been applied; an endless one is cancelled at any point."""
