"""`app.map`: results that are kept, how many at once, and what ends it."""

import asyncio
import functools
import threading
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import date

import pytest

from outlast import Draining, LeaseLost, Outlast, RunCancelled, SettingsError, Unrecordable
from outlast.engine.batch_run import BatchRun
from outlast.store.commands import Release
from outlast.testing import App


@dataclass
class Page:
    title: str
    day: date


async def stream(items, pause=0.0):
    for item in items:
        if pause:
            await asyncio.sleep(pause)
        yield item


def mapped(fn, items, **options):
    async def main(app):
        return await app.map(fn, items, **{"id": "job", **options})

    return main


def done_keys(world, id="job"):
    return [entry.key for entry in world.journal(id) if entry.kind == "done"]


def test_results_are_by_key_and_in_the_order_of_the_items(world):
    async def slow_first(item: str) -> str:
        await asyncio.sleep({"a": 3, "b": 2}.get(item, 1))
        return item.upper()

    assert list(world.do(mapped(slow_first, "abc")).items()) == [("a", "A"), ("b", "B"), ("c", "C")]
    assert done_keys(world) == ["c", "b", "a"]
    assert (world.status("job"), world.row("job").value) == ("done", '{"items": 3}')


def test_same_call_again_has_nothing_done_twice_and_the_same_results(world):
    calls = []

    async def page(item: str) -> Page:
        calls.append(item)
        return Page(item, date(2030, 1, 2))

    first = world.do(mapped(page, "ab"))
    world.restart()
    again = world.do(mapped(page, "cba"))
    assert calls == ["a", "b", "c"]
    assert first == {"a": Page("a", date(2030, 1, 2)), "b": Page("b", date(2030, 1, 2))}
    assert list(again) == ["c", "b", "a"]
    assert again["a"] == first["a"]


def test_plain_function_is_called_in_a_thread(world):
    threads = set()

    def work(item: str) -> str:
        threads.add(threading.current_thread())
        return item * 2

    assert world.do(mapped(work, "ab")) == {"a": "aa", "b": "bb"}
    assert threading.main_thread() not in threads


class Caller:
    async def __call__(self, item: str) -> Page:
        return Page(item, date(2030, 1, 2))


def awaitable(item: str) -> Awaitable[Page]:
    return Caller()(item)


@pytest.mark.parametrize("fn", [Caller(), awaitable, functools.partial(Caller().__call__)])
def test_any_callable_is_awaited_if_needed_and_typed_by_its_annotations(fn, world):
    for _ in range(2):
        assert world.do(mapped(fn, "a")) == {"a": Page("a", date(2030, 1, 2))}


def test_handler_without_a_return_annotation_returns_plain_json(world):
    for _ in range(2):
        assert world.do(mapped(lambda item: [item, None], "a")) == {"a": ["a", None]}


def test_unrecordable_result_raises_an_error_that_names_the_item():
    with pytest.raises(Unrecordable, match="'a'"):
        App().do(mapped(lambda item: {1, 2}, "a"))


def test_function_that_returns_nothing_is_done_too(world):
    async def nothing(item: str) -> None: ...

    for _ in range(2):
        assert world.do(mapped(nothing, "ab")) == {"a": None, "b": None}


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_than_concurrency_are_under_way_at_once(limit):
    under_way, most = set(), []

    async def work(item: int) -> int:
        under_way.add(item)
        most.append(len(under_way))
        await asyncio.sleep(1 + item % 3)
        under_way.discard(item)
        return item

    assert len(App().do(mapped(work, range(20), concurrency=limit))) == 20
    assert max(most) == limit


def test_without_a_number_the_setting_is_the_limit():
    most = []

    async def work(item: int) -> None:
        most.append(item)
        await asyncio.sleep(1000 if len(most) < 5 else 0)

    async def main(app):
        task = asyncio.create_task(app.map(work, range(20), id="job"))
        await asyncio.sleep(1)
        task.cancel()

    App(concurrency=2).do(main)
    assert len(most) == 2


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, True])
def test_limit_must_be_a_whole_number(concurrency):
    with pytest.raises(SettingsError):
        App().do(mapped(str, "a", concurrency=concurrency))


def test_same_key_twice_is_one_item_with_one_result(world):
    calls = []

    async def work(item: dict) -> int:
        calls.append(item["n"])
        await asyncio.sleep(1)
        return item["n"]

    items = [{"id": "a", "n": 1}, {"id": "a", "n": 2}, {"id": "b", "n": 3}]
    assert world.do(mapped(work, items, key=lambda item: item["id"])) == {"a": 1, "b": 3}
    assert calls == [1, 3]


def test_first_exception_is_raised_when_those_under_way_have_ended_and_nothing_new_starts(world):
    calls = []

    async def work(item: str) -> str:
        calls.append(item)
        await asyncio.sleep(1 if item == "b" else 5)
        if item == "b" and calls.count("b") == 1:
            raise ValueError(item)
        return item

    with pytest.raises(ValueError):
        world.do(mapped(work, "abcdef", concurrency=3))
    assert calls == ["a", "b", "c"]
    assert done_keys(world) == ["a", "c"]
    assert world.status("job") == "waiting"
    assert world.do(mapped(work, "abcdef", concurrency=3)) == {key: key for key in "abcdef"}
    assert calls == ["a", "b", "c", "b", "d", "e", "f"]


def test_item_that_fails_while_a_cancellation_is_looked_for_fails_the_map_and_nothing_new_starts(
    world, monkeypatch
):
    """The last items may end while the store is still asked whether the run is to be cancelled."""
    calls = []
    look = BatchRun.check_cancelled

    async def looked(self):
        await asyncio.sleep(5)
        await look(self)

    async def work(item: str) -> str:
        calls.append(item)
        await asyncio.sleep(1)
        raise ValueError(item)

    monkeypatch.setattr(BatchRun, "check_cancelled", looked)
    for items in ("a", "ab"):
        with pytest.raises(ValueError, match="a"):
            world.do(mapped(work, items, concurrency=2))
        assert (calls, done_keys(world), world.status("job")) == (["a"], [], "waiting")
        calls.clear()


def test_slow_stream_has_each_item_done_as_it_comes():
    seen = []

    async def main(app):
        async def work(item: str) -> None:
            seen.append((item, app.clock() - start))

        start = app.clock()
        await app.map(work, stream("abc", pause=10.0), id="job")

    App().do(main)
    assert seen == [("a", 10.0), ("b", 20.0), ("c", 30.0)]


def test_what_the_items_raise_is_raised_when_those_under_way_have_ended(world):
    async def broken():
        yield "a"
        raise LookupError("no more rows")

    async def work(item: str) -> str:
        await asyncio.sleep(5)
        return item

    with pytest.raises(LookupError):
        world.do(mapped(work, broken()))
    assert done_keys(world) == ["a"]


def test_no_more_items_are_asked_for_when_they_have_raised(world):
    taken = []

    def items():
        for item in ("a", 1, "b"):
            taken.append(item)
            yield item

    async def work(item: str) -> str:
        await asyncio.sleep(5)
        return item

    with pytest.raises(TypeError, match="strings and numbers occur together"):
        world.do(mapped(work, items(), concurrency=3))
    assert (taken, done_keys(world)) == (["a", 1], ["a"])


def test_cancelled_from_outside_it_stops_what_is_under_way_and_gives_the_run_back(world):
    ended = []

    async def work(item: str) -> str:
        try:
            await asyncio.sleep(1000 if item == "b" else 1)
        finally:
            ended.append(item)
        return item

    async def main(app):
        task = asyncio.create_task(app.map(work, "ab", id="job"))
        await asyncio.sleep(10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return ended, list(app._open.active_scopes)

    assert world.do(main) == (["a", "b"], [])
    assert (done_keys(world), world.status("job")) == (["a"], "waiting")


def test_thread_cannot_be_stopped_so_its_run_is_given_back_when_it_has_ended(address):
    go_on, begun = threading.Event(), threading.Event()

    def work(item: str) -> str:
        begun.set()
        go_on.wait(20)
        return item

    async def main():
        async with Outlast(address) as app:
            task = asyncio.create_task(app.map(work, "a", id="job"))
            await asyncio.to_thread(begun.wait, 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await app.runs())[0].worker is not None
            go_on.set()
            while (await app.runs())[0].worker is not None:
                await asyncio.sleep(0.01)
            assert (await app.runs())[0].status == "waiting"
            assert app._open.in_flight.hung_ids() == set()

    asyncio.run(main())


def test_map_can_be_cancelled_by_its_id(world):
    async def work(item: int) -> int:
        await asyncio.sleep(1)
        return item

    async def main(app):
        task = asyncio.create_task(app.map(work, range(1000), id="job", concurrency=1))
        await asyncio.sleep(10)
        await app.cancel("job", "enough")
        await task

    with pytest.raises(RunCancelled):
        world.do(main)
    assert world.status("job") == "cancelled"


def test_run_that_was_taken_away_is_a_lost_lease(world):
    async def main(app):
        async def work(item: str) -> str:
            row = world.row("job")
            world.store.commit([Release(row.pk, row.fence, "taken")])
            return item

        await app.map(work, "ab", id="job", concurrency=1)

    with pytest.raises(LeaseLost):
        world.do(main)
    assert done_keys(world) == []


def test_drain_starts_nothing_new_and_waits_for_what_is_under_way(world):
    calls = []

    async def work(item: str) -> str:
        calls.append(item)
        await asyncio.sleep(5)
        return item

    async def main(app):
        task = asyncio.create_task(app.map(work, "abcd", id="job", concurrency=2))
        await asyncio.sleep(1)
        report = await app.drain("test")
        with pytest.raises(Draining):
            await task
        return report.left, report.seconds

    left, seconds = world.do(main)
    assert (left, seconds) == ([], pytest.approx(4, abs=0.2))
    assert sorted(done_keys(world)) == calls == ["a", "b"]
    world.restart()
    assert world.do(mapped(work, "abcd")) == {key: key for key in "abcd"}
    assert calls == ["a", "b", "c", "d"]


def test_drain_does_not_wait_for_a_stream_that_gives_nothing(world):
    async def main(app):
        task = asyncio.create_task(app.map(str.upper, stream("ab", pause=1e5), id="job"))
        await asyncio.sleep(1.5e5)
        report = await app.drain("test")
        with pytest.raises(Draining):
            await task
        return report.left

    assert world.do(main) == []
    assert done_keys(world) == ["a"]
