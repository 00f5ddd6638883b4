"""Sync workflows with sync steps, end to end."""

import asyncio
import threading
from dataclasses import dataclass

import pytest

from outlast.sync import (
    SettingsError,
    StepTimeout,
    current,
    run,
    step,
    workflow,
)
from support.waiting import WAIT_SECONDS


@dataclass
class Note:
    topic: str
    pages: int = 1


@step
def write(topic: str) -> Note:
    return Note(topic, len(topic))


@step
def double(number: int) -> int:
    return number * 2


@step
async def async_double(number: int) -> int:
    await asyncio.sleep(0)
    return number * 2


@workflow
def notes(topics: list[str]) -> list[Note]:
    return [write(topic) for topic in topics]


def kinds(app, id):
    return [entry.kind for entry in app.journal(id)]


# -- results


def test_a_sync_workflow_returns_what_its_steps_return(app):
    run = app.start(notes(["tides", "moon"]), id="n-1")
    assert run.result() == [Note("tides", 5), Note("moon", 4)]
    assert run.info().status == "done"
    assert kinds(app, "n-1") == ["step", "step"]


def test_run_executes_a_workflow_in_one_call(store):
    assert run(notes(["tides"]), id="n-1", store=store) == [Note("tides", 5)]


def test_steps_execute_in_other_threads_than_the_workflow_and_the_caller(app):
    @step
    def where() -> int:
        return threading.get_ident()

    @workflow
    def places() -> list[int]:
        return [threading.get_ident(), where()]

    own, its = app.start(places()).result()
    assert len({own, its, threading.get_ident()}) == 3


def test_sync_runs_execute_concurrently(app):
    barrier = threading.Barrier(5, timeout=WAIT_SECONDS)

    @step
    def meet(number: int) -> int:
        barrier.wait()
        return number

    @workflow
    def one(number: int) -> int:
        return meet(number)

    runs = [app.start(one(number)) for number in range(5)]
    assert [run.result() for run in runs] == list(range(5))


# -- failures


def test_step_is_retried_as_often_as_declared(app):
    attempts = []

    @step(retries=2, backoff=0.001)
    def flaky() -> int:
        attempts.append(current().attempt)
        if len(attempts) < 3:
            raise OSError("not yet")
        return len(attempts)

    @workflow
    def patient() -> int:
        return flaky()

    assert app.start(patient(), id="p-1").result() == 3
    assert attempts == [1, 2, 3]
    assert kinds(app, "p-1") == ["attempt", "attempt", "step"]


def test_a_step_that_takes_too_long_is_a_step_timeout(app):
    go = threading.Event()

    @step(timeout=0.05)
    def slow() -> None:
        go.wait(WAIT_SECONDS)

    @workflow
    def hurried() -> str:
        try:
            slow()
        except StepTimeout as timeout:
            return type(timeout).__name__
        return "no timeout"

    try:
        assert app.start(hurried()).result() == "StepTimeout"
    finally:
        go.set()


def test_an_exception_can_be_caught_and_the_run_goes_on(app):
    @step
    def fails() -> None:
        raise ValueError("no such topic")

    @workflow
    def careful() -> str:
        try:
            fails()
        except ValueError as error:
            return f"{error}, {double(2)}"
        return ""

    assert app.start(careful()).result() == "no such topic, 4"


def test_an_exception_that_is_not_caught_fails_the_run_and_reaches_the_waiter(app):
    @workflow
    def careless() -> None:
        double(2)
        raise KeyError("topic")

    run = app.start(careless(), id="c-1")
    with pytest.raises(KeyError, match="topic"):
        run.result()
    info = run.info()
    assert info.status == "failed"
    assert "KeyError" in (info.error or "")


def test_a_retry_executes_only_what_failed(app):
    done, broken = [], [True]

    @step
    def first() -> int:
        done.append("first")
        return 1

    @step
    def second() -> int:
        done.append("second")
        if broken:
            raise OSError("broken")
        return 2

    @workflow
    def both() -> int:
        return first() + second()

    with pytest.raises(OSError, match="broken"):
        app.start(both(), id="b-1").result()
    broken.clear()
    app.retry("b-1")
    assert app.start(both(), id="b-1").result() == 3
    assert done == ["first", "second", "second"]


# -- children


@workflow
def child(number: int) -> int:
    return double(number)


@workflow
async def async_child(number: int) -> int:
    return await async_double(number) + await double.aio(number)


@workflow
def parent() -> list[int]:
    return [run(child(1)), run(child(2)), run(async_child(3))]


def test_run_inside_a_run_is_a_child_run(app):
    started = app.start(parent(), id="p")
    assert started.result() == [2, 4, 12]
    assert kinds(app, "p") == ["child", "child", "child"]
    assert sorted(info.workflow for info in app.runs(parent="p")) == [
        "async_child",
        "child",
        "child",
    ]


def test_a_child_that_fails_raises_in_its_parent(app):
    @workflow
    def failing() -> None:
        raise ValueError("child")

    @workflow
    def guardian() -> str:
        try:
            run(failing())
        except ValueError as error:
            return f"caught {error}"
        return ""

    assert app.start(guardian()).result() == "caught child"


def test_a_child_run_takes_no_id_and_no_store(app):
    @workflow
    def mistaken() -> None:
        run(child(1), id="mine")

    with pytest.raises(SettingsError, match="from its parent"):
        app.start(mistaken()).result()


def test_an_async_workflow_can_have_sync_children_and_sync_steps(app):
    @workflow
    async def mixed() -> list[int]:
        one, two = await asyncio.gather(child(1), double.aio(5))
        return [one, two, await async_double(6)]

    assert app.start(mixed()).result() == [2, 10, 12]
