"""A crash before and after a write, and in an act, on every store that is not SQLite's: whatever a workflow does, its end is that of the undisturbed
life, and each effect happens once. The same programs as in `tests/property` and `tests/effects`, and some more.

By default at a sample of the points; OUTLAST_TEST_KILLS takes all of them.
"""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from crash_places import STORES, new_places

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "effects"), str(TESTS / "property"), str(TESTS / "sessions")]

from conversation import TURNS, conversation
from teller import bank, hold, pay, work
from test_crash_effects import check, count, fails, family, orders, pays, pays_at_once, sync_orders
from test_crash_everywhere import ends_badly, everything, loops, parents, talks, world_talks

from outlast import Outlast, each, map, receive, session, sleep, step, sync, workflow
from outlast.testing import crash_everywhere

LONG = "OUTLAST_TEST_KILLS" in os.environ


@pytest.fixture(scope="module", params=STORES)
def places(request):
    """Of all stories on one store."""
    with new_places(request, request.param) as new_place:
        yield new_place


# -- what is not among the programs of the other folders


@workflow
async def batches() -> list:
    async def rows():
        for row in ("a", "b", "c"):
            yield row

    handled = [await work(row) async for row in each(rows())]
    return [handled, await map(double, [1, 2, 3], concurrency=2), await count(4)]


async def double(n: int) -> int:
    await asyncio.sleep(n)
    return 2 * n


@workflow
async def waits_for_a_job() -> list[str]:
    return await receive("done", list[str])


async def job(app: Outlast) -> None:
    """`each` and `map` of a program outside: every life asks for the same, and what was done stays done."""
    seen = [
        item async for item in app.each(["a", "b", "c"], id="each") if await asyncio.sleep(1, result=True)
    ]
    doubled = await app.map(double, [1, 2], id="map")
    await app.send("crash", "done", [*doubled], message_id="1")
    assert set(seen) <= {"a", "b", "c"}


@step
async def remember(label: str) -> int:
    return await session("steps").append("labels", label)


@workflow
async def one_of_many(n: int) -> int:
    await sleep(n)
    return await session("s").append("l", n)


@workflow
async def share_a_session() -> list[int]:
    await asyncio.gather(*(one_of_many(n) for n in range(3)), hold("h"))
    return sorted(await session("s").last("l", 10))


@workflow
async def is_cancelled() -> None:
    try:
        await pay("a")
        await asyncio.gather(family_member("b"), sleep(1000))
    finally:
        await work("cleanup")


@workflow
async def family_member(who: str) -> None:
    await hold(who)
    await sleep(1000)


async def cancels(app: Outlast) -> None:
    await asyncio.sleep(100)
    await app.cancel("crash", "enough")


@sync.workflow
def sync_mixture() -> list:
    s = sync.session("s")
    s.append("turns", "hi")
    sync.sleep(60)
    return [sync_work("x"), s.last("turns"), sync.receive("word", str)]


@sync.step
def sync_work(label: str) -> str:
    return label.upper()


async def says_a_word(app: Outlast) -> None:
    await app.send("crash", "word", "word", message_id="1")


@dataclass
class Case:
    call: Any
    result: Any = None
    error: str | None = None
    look: Callable[[], None] | None = None
    outside: Any = None
    writes: int = 30
    """About how many there are to crash at."""
    settings: dict = field(default_factory=dict)


CASES = {
    "loops": Case(loops(4)),
    "everything": Case(everything()),
    "children": Case(parents()),
    "ends_badly": Case(ends_badly()),
    "messages": Case(talks(), outside=world_talks),
    "batches": Case(batches()),
    "job": Case(waits_for_a_job(), outside=job),
    "conversation": Case(conversation("hi")),
    "shared session": Case(share_a_session()),
    "sync": Case(sync_mixture(), outside=says_a_word),
    "effects": Case(pays(), look=check("a", "b", "c")),
    "effects at once": Case(pays_at_once(), look=check("a", "b", "c", "d")),
    "undone": Case(fails(), look=check("a", "l", "b", "c", undone=True, order=("-c", "-b", "-l", "-a"))),
    "family": Case(family(fails=True), look=check("a", "c", "c2", "d", "d2", "b", undone=True)),
    "cancelled": Case(is_cancelled(), outside=cancels, look=check("a", "b", undone=True)),
    "units": Case(orders()),
    "sync effects": Case(sync_orders(fails=True), look=check("before", "a", "b", "c", "c-too", undone=True)),
}
import time


@pytest.mark.parametrize("name", CASES)
def test_x(places, name):
    case = CASES[name]
    t = time.monotonic()
    r = crash_everywhere(case.call, store=places, outside=case.outside, fresh=bank.__init__, check=case.look)
    print(name, r.writes, r.acts, r.lives, r.result, r.error, time.monotonic() - t)
