"""`app.each`: what is handed out, what is recorded when, and how the loop is left."""

import asyncio
import gc

import pytest
from each_tools import done_keys, stream, through

from outlast import (
    BadName,
    OutlastError,
)
from outlast.testing import App


def test_every_item_is_handed_out_once_and_in_order(world):
    assert world.do(through("abcd")) == ["a", "b", "c", "d"]
    assert done_keys(world) == ["a", "b", "c", "d"]
    assert (world.status("job"), world.row("job").value) == ("done", '{"items": 4}')


def test_async_iterable_is_as_good(world):
    assert world.do(through(stream("abcd", pause=1.0))) == ["a", "b", "c", "d"]
    assert world.do(through(stream("abcde"))) == ["e"]


def test_nothing_to_do_is_done(world):
    assert world.do(through([])) == []
    assert world.row("job").value == '{"items": 0}'


def test_item_is_done_when_the_next_is_asked_for_and_not_before(world):
    async def main(app):
        async for item in app.each("ab", id="job"):
            if item == "b":
                return done_keys(world)

    assert world.do(main) == ["a"]


def test_same_call_again_goes_on_with_what_was_not_done(world):
    assert world.do(through("abcd", upto=3)) == ["a", "b", "c"]
    assert world.status("job") == "waiting"
    world.restart()
    assert world.do(through("abcd")) == ["c", "d"]
    assert world.status("job") == "done"


def test_items_that_came_later_are_done_by_a_later_call_and_only_they(world):
    world.do(through("abc"))
    assert world.do(through("xabcy")) == ["x", "y"]
    assert world.row("job").value == '{"items": 5}'
    assert world.do(through("xabcy")) == []


def test_break_gives_the_run_back_at_once_and_once(world):
    async def main(app):
        async for _ in app.each("ab", id="job"):
            break
        async for item in app.each("ab", id="job"):  # would be refused if it were still held
            return item

    assert world.do(main) == "a"
    assert world.row("job").worker is None


def test_exception_in_the_loop_gives_the_run_back_and_is_raised(world):
    async def main(app):
        async for item in app.each("ab", id="job"):
            if item == "b":
                raise ValueError(item)

    with pytest.raises(ValueError):
        world.do(main)
    assert done_keys(world) == ["a"]
    assert world.status("job") == "waiting"
    assert world.do(through("ab")) == ["b"]


def test_iterator_that_only_the_garbage_collector_finds_gives_the_run_back(world):
    async def main(app):
        loop = {"each": app.each("ab", id="job")}
        loop["itself"] = loop
        await anext(loop["each"])
        del loop
        gc.collect()
        await asyncio.sleep(1)
        return world.status("job"), app._open.in_flight.held(), list(app._open.active_scopes)

    assert world.do(main) == ("waiting", [], [])


def test_what_the_items_raise_comes_after_the_items_before_it(world):
    def items():
        yield from "ab"
        raise LookupError("no more rows")

    world.do(through("ab", upto=1))
    for broken in (items(), stream(items())):
        with pytest.raises(LookupError):
            world.do(through(broken))
    assert done_keys(world) == ["a", "b"]
    assert world.status("job") == "waiting"


def test_cancelled_wait_for_an_item_leaves_the_loop_and_the_same_call_goes_on(world):
    async def main(app):
        seen = []
        try:
            async with asyncio.timeout(25.0):
                async for item in app.each(stream("abc", pause=10.0), id="job"):
                    seen.append(item)
        except TimeoutError:
            seen += [item async for item in app.each("abc", id="job")]
        return seen

    assert world.do(main) == ["a", "b", "c"]


def test_after_its_end_it_stays_at_its_end_and_after_it_was_left_it_says_so(world):
    async def main(app):
        each = app.each("a", id="job")
        assert [item async for item in each] == ["a"]
        assert [item async for item in each] == []
        other = app.each("ab", id="other")
        await anext(other)
        await other.aclose()
        await anext(other)

    with pytest.raises(OutlastError, match="was left"):
        world.do(main)


# -- keys


def test_items_are_known_by_their_key(world):
    rows = [{"id": "x", "n": 1}, {"id": "y", "n": 2}]
    assert world.do(through(rows, key=lambda row: row["id"])) == rows
    assert done_keys(world) == ["x", "y"]


@pytest.mark.parametrize("items", [["a", "7"], [3, 7]])
def test_text_and_whole_numbers_are_their_own_keys(world, items):
    assert world.do(through(items)) == items
    assert done_keys(world) == [str(item) for item in items]


def test_number_and_its_text_would_be_one_item_and_are_refused():
    app = App()
    with pytest.raises(TypeError, match="key="):
        app.do(through([1, "1"]))


@pytest.mark.parametrize("item", [1.5, None, True, {"id": 1}])
def test_item_without_a_key_is_an_error_before_anything_is_written(item):
    app = App()
    with pytest.raises(TypeError, match="key="):
        app.do(through([item]))
    assert app.store.run("job") is None


@pytest.mark.parametrize("key", ["", "a\nb", 7])
def test_key_must_be_something_that_can_be_stored_and_shown(key):
    with pytest.raises(BadName):
        App().do(through(["item"], key=lambda _: key))


def test_items_must_be_iterable():
    with pytest.raises(TypeError, match="iterable"):
        App().do(through(7))


def test_same_key_again_is_the_same_item(world):
    assert world.do(through("abacab")) == ["a", "b", "c"]
    world.do(through("abcdefgh"))
    assert world.do(through("abcdefghzz")) == ["z"]
