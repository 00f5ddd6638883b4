"""Effects happen once, and are undone once, though processes crash at writes and in acts."""

import asyncio
from collections import Counter

import pytest
from crash_effect_tools import LONG, check, everywhere, pays
from teller import bank, fail, hold, lock, pay, unlock, work

from outlast import (
    KEY,
    Happened,
    Outlast,
    compensate_with,
    effect,
    progress,
    receive,
    sleep,
    step,
    workflow,
)
from outlast.api.unit import unit
from outlast.testing import crash_everywhere
from support.crash_points import crash_at_some

STORES = ["memory:", "sqlite"] if LONG else ["memory:"]
SEEDS = [None, 1, 2] if LONG else [1]
WAYS = {
    "one crash": ("memory:", False),
    "in every life": ("memory:", True),
    "a file": ("sqlite", False),
}
all_ways = pytest.mark.parametrize(("store", "every_life"), WAYS.values(), ids=WAYS)
ways = all_ways if LONG else pytest.mark.parametrize(("store", "every_life"), [("memory:", False)])
"""One workflow is tested in all ways; the others are in `make soak`."""


@step
async def count(to: int) -> int:
    async with progress(int) as done:
        for number in range(done.value or 0, to):
            await asyncio.sleep(1)
            done.save(number + 1)
    return to


# -- runs that are done


@ways
def test_sequential_effects_happen_once_despite_crashes(store, every_life):
    options = {"every": 2, "every_act": 1, "store": store, "every_life": every_life}
    report = everywhere(pays(), check("a", "b", "c"), **options)
    assert report.result == ["paid a", "between", "b", "paid c"]
    if store == "memory:" and not every_life:
        assert report.acts >= 3
        assert report.crashes >= report.writes - 1 + 2 * 3, (
            "before and after every second write and every act"
        )


@workflow
async def pays_at_once() -> list[str]:
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(pay(who, seconds))
            for who, seconds in (("a", 3.0), ("b", 1.0), ("c", 2.0))
        ]
        group.create_task(count(5))
        held = group.create_task(hold("d"))
    return [*(task.result() for task in tasks), held.result()]


@pytest.mark.parametrize("seed", SEEDS)
def test_concurrent_effects_happen_once_despite_crashes(seed):
    report = everywhere(pays_at_once(), check("a", "b", "c", "d"), seed=seed, progress_interval=1.5)
    assert report.result == ["paid a", "paid b", "paid c", "d"]


@workflow
async def decides() -> str:
    answer = await receive("answer", str)
    try:
        await pay("nobody")
    except LookupError:
        await sleep(60)
        await pay(answer)
    return answer


def test_failed_effects_messages_and_timers_survive_crashes():
    async def people(app: Outlast) -> None:
        await app.send("crash", "answer", "a", message_id="1")

    report = everywhere(decides(), check("a"), outside=people)
    assert report.result == "a"


def test_effect_happens_once_though_every_life_crashes():
    happened = []

    @effect(timeout=10)
    async def charge(label: str, key: str = KEY) -> str:
        await asyncio.sleep(1)
        happened.append(key)
        return f"charged {label}"

    @charge.verify
    async def charged(label: str, key: str) -> Happened[str] | None:
        return Happened(f"charged {label}") if key in happened else None

    @workflow
    async def charging() -> list[str]:
        one, two = await asyncio.gather(charge("a"), charge("b"))
        return [one, two, await charge("c")]

    report = (
        crash_everywhere(charging(), every_life=True)
        if LONG
        else crash_at_some(charging(), every=7, every_act=2, every_life=True)
    )
    assert report.result == ["charged a", "charged b", "charged c"]
    assert report.crashes > 8
    assert len(happened) == len(set(happened)), "under one key once, in whichever life"


# -- runs that fail


@workflow
async def fails() -> None:
    await pay("a")
    await lock("l")
    await compensate_with(unlock, "l")
    await hold("b")
    await work("between")
    await pay("c")
    await fail()


@all_ways
def test_run_that_fails_is_undone_in_order(store, every_life):
    look = check("a", "l", "b", "c", undone=True, order=("-c", "-b", "-l", "-a"))
    report = everywhere(fails(), look, every=2, every_act=1, store=store, every_life=every_life)
    assert report.error == "ValueError: no"
    if store == "memory:" and not every_life:
        assert report.acts >= 7, "compensations are acts too"


@workflow
async def fails_at_once() -> None:
    async def later() -> None:
        await asyncio.sleep(1.7)
        await fail()

    await pay("first")
    await asyncio.gather(pay("a", 4.0), pay("b", 1.0), hold("c"), later())


@pytest.mark.parametrize("seed", SEEDS)
def test_failing_run_with_active_effects_leaves_nothing_behind(seed):
    def look() -> None:
        """What was under way at a crash may never be done again: what was done is undone, and nothing twice."""
        counts = Counter(bank.order)
        for who in ("first", "a", "b", "c"):
            assert counts[f"+{who}"] <= 1, bank.log
            assert counts[f"+{who}"] == counts[f"-{who}"], bank.log
        assert counts["+first"] == 1

    report = everywhere(fails_at_once(), look, seed=seed)
    assert report.error == "ValueError: no"


@workflow(timeout=30)
async def too_long() -> None:
    await pay("a")
    await hold("b")
    await sleep(1000)


def test_timed_out_run_is_undone_despite_crashes():
    report = everywhere(too_long(), check("a", "b", undone=True, order=("-b", "-a")))
    assert "RunTimeout" in report.error


@workflow
async def cancellable() -> None:
    try:
        await pay("a")
        await hold("b")
        await sleep(1000)
    finally:
        bank.apply("+l", "", once=True)
        await compensate_with(unlock, "l")


def test_run_that_is_cancelled_is_undone_with_what_its_finally_registers():
    async def people(app: Outlast) -> None:
        await asyncio.sleep(100)
        await app.cancel("crash", "enough")

    report = everywhere(cancellable(), check("a", "b", "l", undone=True), outside=people)
    assert "RunCancelled" in report.error


# -- units


@workflow
async def orders() -> list[str]:
    seen = [await pay("before")]
    for turn in range(2):
        try:
            async with unit("order"):
                await pay(f"a{turn}")
                async with unit("inner"):
                    await hold(f"b{turn}")
                if turn == 0:
                    await fail()
                seen.append(await pay("c"))
        except ValueError:
            seen.append(await work("rolled back"))
    return seen


@ways
def test_units_roll_back_despite_crashes(store, every_life):
    def look() -> None:
        assert bank.order == ["+before", "+a0", "+b0", "-b0", "-a0", "+a1", "+b1", "+c"], bank.log

    report = everywhere(orders(), look, store=store, every_life=every_life)
    assert report.result == ["paid before", "rolled back", "paid c"]


@workflow
async def order_fails() -> None:
    await pay("before")
    async with unit("order"):
        await asyncio.gather(pay("a", 3.0), hold("b"))
        await fail()


@pytest.mark.parametrize("seed", [None, 3] if LONG else [3])
def test_unit_and_run_undo_nothing_twice(seed):
    report = everywhere(order_fails(), check("before", "a", "b", undone=True), seed=seed)
    assert report.error == "ValueError: no"


@workflow
async def order_in_time() -> str:
    try:
        async with asyncio.timeout(20):
            async with unit("order"):
                await pay("a")
                await hold("b")
                await sleep(1000)
    except TimeoutError:
        return await pay("sorry")
    return ""


def test_unit_left_by_a_timeout_is_undone():
    def look() -> None:
        """A crash in an act costs as long as it may be under way: then the timeout may come before `b`."""
        counts = Counter(bank.order)
        assert counts["+a"] == counts["-a"] == counts["+sorry"] == 1, bank.log
        assert counts["+b"] == counts["-b"] <= 1, bank.log

    report = everywhere(order_in_time(), look)
    assert report.result == "paid sorry"


# -- children


@workflow
async def child(who: str) -> str:
    await pay(who)
    return await hold(f"{who}2")


@workflow
async def family(*, fails: bool) -> str:
    await hold("a")
    said = await child("c")
    await asyncio.gather(child("d"), pay("b", 0.5))
    if fails:
        await fail("family")
    return said


@pytest.mark.parametrize("store", STORES)
def test_children_happen_once_despite_crashes(store):
    report = everywhere(family(fails=False), check("a", "c", "c2", "d", "d2", "b"), store=store)
    assert report.result == "c2"


@pytest.mark.parametrize("store", STORES)
def test_children_of_a_run_that_fails_are_undone(store):
    report = everywhere(
        family(fails=True), check("a", "c", "c2", "d", "d2", "b", undone=True), store=store
    )
    assert report.error == "ValueError: family"
