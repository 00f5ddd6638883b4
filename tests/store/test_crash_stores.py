"""A crash before and after a write, and in an act, on every store that is not SQLite's: whatever a workflow does, its end is that of the undisturbed
life, and each effect happens once. The same programs as in `tests/property` and `tests/effects`, and some more.

By default at a sample of the points; OUTLAST_TEST_KILLS takes all of them.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.crash_stores import LEASE_SECONDS, STORES, NewPlace, new_places

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "effects"), str(TESTS / "property"), str(TESTS / "sessions")]

from conversation import TURNS, conversation
from teller import bank, hold, pay, work
from test_crash_effects import check, count, fails, family, orders, pays, pays_at_once
from test_crash_effects_sync import sync_orders
from test_crash_everywhere import ends_badly, everything, loops, parents, talks, world_talks

from outlast import Outlast, each, map, receive, session, sleep, sync, workflow  # noqa: A004
from outlast.testing import CrashReport, crash_everywhere
from outlast.testing.crash import Outside

LONG = "OUTLAST_TEST_KILLS" in os.environ
STRIDE = 48
"""Of the points of a case only each so-many-th is taken; which one is first depends on the case."""


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
async def waits_for_a_job() -> list:
    return await receive("done", list)


async def job(app: Outlast) -> None:
    """`each` and `map` of a program outside: every life asks for the same, and what was done stays done."""
    async for item in app.each(["a", "b", "c"], id="each"):
        await asyncio.sleep(1)
        bank.apply(item, "")
    left = [item async for item in app.each(["a", "b", "c"], id="each")]
    await app.send("crash", "done", [left, await app.map(double, [1, 2], id="map")], message_id="1")


def every_item_was_handled() -> None:
    """One that was under way at the crash may have been handled twice."""
    assert sorted(set(bank.order)) == ["a", "b", "c"], bank.order
    assert len(bank.order) <= 4, bank.order


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


# -- all of them


@dataclass(frozen=True)
class Case:
    call: Any
    writes: int
    """About how many there are to crash at."""
    result: Any = None
    error: str | None = None
    outside: Outside | None = None
    look: Callable[[], None] | None = None
    """At the world outside, where it has effects."""


GATHERED = ["a", "b", "c at attempt 3", "Refused", "0", "1", "2"]


def units_rolled_back() -> None:
    assert bank.order == ["+before", "+a0", "+b0", "-b0", "-a0", "+a1", "+b1", "+c"], bank.log


CASES = {
    "loops": Case(loops(4), 11, ["turn 0", "turn 1", "o0+o1", "turn 3"]),
    "everything": Case(
        everything(), 27, [["turn 0", "turn 1", "o0+o1"], GATHERED, [True, 36, "after"], "cc'"]
    ),
    "children": Case(parents(), 15, ["xx'", "yy'", "zz'", "w"]),
    "a bad end": Case(ends_badly(), 8, error="Refused: b"),
    "messages": Case(
        talks(), 15, ["word 0", "word 1", "meanwhile", "timed out"], outside=world_talks
    ),
    "batches": Case(batches(), 24, [["a", "b", "c"], {"1": 2, "2": 4, "3": 6}, 4]),
    "a job outside": Case(
        waits_for_a_job(), 19, [[], {"1": 2, "2": 4}], outside=job, look=every_item_was_handled
    ),
    "a conversation": Case(conversation("hi"), 17, [TURNS, {"count": 2, "turns": TURNS}, True]),
    "a shared session": Case(share_a_session(), 19, [0, 1, 2], look=check("h")),
    "sync": Case(sync_mixture(), 11, ["X", ["hi"], "word"], outside=says_a_word),
    "effects": Case(pays(), 12, ["paid a", "between", "b", "paid c"], look=check("a", "b", "c")),
    "effects at once": Case(
        pays_at_once(), 13, ["paid a", "paid b", "paid c", "d"], look=check("a", "b", "c", "d")
    ),
    "undone": Case(
        fails(),
        26,
        error="ValueError: no",
        look=check("a", "l", "b", "c", undone=True, order=("-c", "-b", "-l", "-a")),
    ),
    "a family undone": Case(
        family(fails=True),
        50,
        error="ValueError: family",
        look=check("a", "c", "c2", "d", "d2", "b", undone=True),
    ),
    "cancelled": Case(
        is_cancelled(),
        25,
        error="RunCancelled: run 'crash' was cancelled: enough",
        outside=cancels,
        look=check("a", "b", undone=True),
    ),
    "units": Case(orders(), 23, ["paid before", "rolled back", "paid c"], look=units_rolled_back),
    "sync effects": Case(
        sync_orders(fails=True),
        27,
        error="ValueError: sync",
        look=check("before", "a", "b", "c", "c-too", undone=True),
    ),
}


def crashed(case: Case, places: NewPlace, **options: Any) -> CrashReport:
    report = crash_everywhere(
        case.call,
        store=places,
        outside=case.outside,
        fresh=bank.__init__,
        check=case.look,
        progress_interval=1.5,
        lease=LEASE_SECONDS,
        **options,
    )
    assert (report.result, report.error) == (case.result, case.error)
    return report


@pytest.mark.parametrize("name", CASES)
def test_crash_at_any_write_or_act_does_not_change_the_result(places, name):
    case, number = CASES[name], list(CASES).index(name)
    first = 1 + number % min(STRIDE, case.writes)
    some = {"writes": range(first, case.writes + 1, STRIDE), "acts": [1 + number % 6]}
    report = crashed(case, places, **({} if LONG else some))
    assert report.crashes >= max(1, 2 * len(some["writes"]) - 2)


@pytest.mark.parametrize(
    "name",
    ["everything", "a family undone", *(["messages", "a conversation", "units"] if LONG else [])],
)
def test_crash_in_every_life_does_not_change_the_result(places, name):
    """Not at the first ones: a life that never gets past its claim never gets anywhere."""
    writes = range(5, 14) if LONG else [9]
    report = crashed(
        CASES[name], places, writes=writes, acts=range(1, 4) if LONG else [], every_life=True
    )
    assert report.crashes > 2 * len(writes)
