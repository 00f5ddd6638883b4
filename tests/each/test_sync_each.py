"""`each`, `map` and `unit` in a sync program: blocking, with the items read in the caller's thread."""

import asyncio
import threading

import pytest

from outlast.sync import Draining, Outlast, OutlastError, WrongStatus
from support.waiting import wait_until


@pytest.fixture
def app(address):
    with Outlast(address) as app:
        yield app


def given_back(app):
    """Return the runs and their statuses once none is held, as a loop that is left does not wait for that."""
    wait_until(lambda: not any(run.worker for run in app.runs()))
    return sorted((run.id, run.status) for run in app.runs())


def test_loop_continues_where_it_was_left(app):
    for item in app.each("abc", id="job"):
        if item == "c":
            break
    assert given_back(app) == [("job", "waiting")]
    assert list(app.each("abcd", id="job")) == ["c", "d"]
    assert given_back(app) == [("job", "done")]


def test_items_are_read_in_the_thread_of_the_caller(app):
    threads = set()

    def items():
        for number in range(5):
            threads.add(threading.current_thread())
            yield f"{number} of {len(app.runs())}"

    assert len(list(app.each(items(), id="job"))) == 5
    app.map(str.upper, items(), id="other")
    assert threads == {threading.current_thread()}


def test_async_iterable_is_read_on_the_event_loop(app):
    async def items():
        for item in "abc":
            await asyncio.sleep(0.01)
            yield item

    assert list(app.each(items(), id="job")) == ["a", "b", "c"]
    assert app.map(str.upper, items(), id="other") == {"a": "A", "b": "B", "c": "C"}


def test_exception_of_the_iterable_is_raised(app):
    def items():
        yield "a"
        raise LookupError

    with pytest.raises(LookupError):
        list(app.each(items(), id="job"))
    with pytest.raises(LookupError):
        app.map(str.upper, items(), id="other")
    assert given_back(app) == [("job", "waiting"), ("other", "waiting")]


def test_keyboard_interrupt_while_an_item_is_read_releases_the_run(app):
    def items():
        yield "a"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(app.each(items(), id="job"))
    with pytest.raises(KeyboardInterrupt):
        app.map(str.upper, items(), id="other")
    assert given_back(app) == [("job", "waiting"), ("other", "waiting")]
    assert list(app.each("ab", id="job")) == ["b"]


def test_map_calls_its_function_in_threads_and_keeps_the_results(app):
    calls = []

    def work(item: str) -> str:
        calls.append(item)
        assert threading.current_thread() is not threading.main_thread()
        return item.upper()

    assert app.map(work, "ab", id="job", concurrency=2) == {"a": "A", "b": "B"}
    assert app.map(work, "abc", id="job") == {"a": "A", "b": "B", "c": "C"}
    assert sorted(calls) == ["a", "b", "c"]


def test_exception_of_the_function_is_raised(app):
    def work(item: str) -> str:
        raise ValueError(item)

    with pytest.raises(ValueError):
        app.map(work, "a", id="job")
    assert given_back(app) == [("job", "waiting")]


def test_two_loops_of_one_id_in_one_process_raise_wrong_status(app):
    first = app.each("ab", id="job")
    next(first)
    with pytest.raises(WrongStatus):
        next(app.each("ab", id="job"))
    first.close()
    with pytest.raises(OutlastError):
        next(first)


def test_drain_is_raised_at_the_next_item(app):
    seen = []
    with pytest.raises(Draining):
        for item in app.each("abc", id="job"):
            seen.append(item)
            app._async._shutdown.begin("test")
    assert seen == ["a"]
    assert [entry.kind for entry in app.journal("job")] == ["items", "done"]


def test_unit_is_counted(app):
    with app.unit("order"):
        assert len(app._async._open.active_scopes) == 1
    with pytest.raises(ValueError), app.unit("order"):
        raise ValueError
    units = app._async._open.services.totals
    assert (units.committed, units.rolled_back, len(app._async._open.active_scopes)) == (1, 1, 0)
