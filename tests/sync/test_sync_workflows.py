"""Sync workflows with sync steps, end to end."""

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

import outlast
from outlast.effects import http_effect
from outlast.sync import (
    NotInRun,
    NotInStep,
    Outlast,
    RunCancelled,
    SettingsError,
    StepTimeout,
    current,
    effect,
    now,
    random,
    receive,
    run,
    sleep,
    step,
    uuid,
    workflow,
)


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


def test_run_is_the_whole_thing_in_one_call(store):
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


def test_many_sync_runs_execute_side_by_side(app):
    barrier = threading.Barrier(5, timeout=20)

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


def test_a_step_is_retried_as_often_as_it_says(app):
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
        go.wait(20)

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
    assert sorted(info.workflow for info in app.runs(parent="p")) == ["async_child", "child", "child"]


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


# -- time, chance, messages


def test_sleep_is_durable_and_moves_the_runs_clock(app):
    @workflow
    def sleeper() -> float:
        before = now()
        sleep(0.05)
        return (now() - before).total_seconds()

    assert app.start(sleeper(), id="s-1").result() >= 0.05
    assert kinds(app, "s-1") == ["fired"]


def test_chance_and_the_clock_are_the_same_in_every_life(store, app):
    seen, broken = [], [True]

    @step
    def gate() -> None:
        if broken:
            raise OSError("broken")

    @workflow
    def chancy() -> list[str]:
        values = [str(uuid()), str(random()), now().isoformat(), current().id]
        seen.append(values)
        gate()
        return values

    with pytest.raises(OSError, match="broken"):
        app.start(chancy(), id="c-1").result()
    broken.clear()
    app.retry("c-1")
    assert app.start(chancy(), id="c-1").result() == seen[0] == seen[1]
    assert datetime.fromisoformat(seen[0][2]).tzinfo == UTC


def test_receive_takes_a_message_that_another_thread_sends(app, until):
    @workflow
    def waiter() -> Note:
        return receive("note", Note)

    run = app.start(waiter(), id="w-1")
    until(lambda: run.info().waiting_for == ("note",))
    with ThreadPoolExecutor(1) as threads:
        threads.submit(app.send, "w-1", "note", Note("tides", 3)).result()
    assert run.result() == Note("tides", 3)


def test_receive_takes_what_was_sent_before_oldest_first(app):
    gate = threading.Event()

    @step
    def opened() -> None:
        gate.wait(20)

    @workflow
    def reader() -> list[int]:
        opened()
        return [receive("number", int), receive("number")]

    run = app.start(reader(), id="r-1")
    app.send("r-1", "number", 1)
    app.send("r-1", "number", 2)
    gate.set()
    assert run.result() == [1, 2]


def test_receive_gives_up_after_its_timeout(app):
    @workflow
    def impatient() -> str:
        try:
            receive("never", str, timeout=0.02)
        except TimeoutError:
            return "gave up"
        return "received"

    assert app.start(impatient()).result() == "gave up"


# -- cancellation


def test_a_cancelled_run_is_told_in_the_call_that_it_waits_in_and_cleans_up(app, until):
    cleaned = threading.Event()

    @workflow
    def endless() -> None:
        try:
            receive("never")
        finally:
            cleaned.set()

    run = app.start(endless(), id="e-1")
    until(lambda: run.info().waiting_for == ("never",))
    app.cancel("e-1", "enough")
    with pytest.raises(RunCancelled, match="enough"):
        run.result()
    assert cleaned.is_set()
    assert run.info().status == "cancelled"


def test_a_cancelled_run_that_computes_is_told_at_its_next_call(app, until):
    computing, go, done = threading.Event(), threading.Event(), []

    @workflow
    def busy() -> None:
        computing.set()
        go.wait(20)
        done.append(double(1))

    run = app.start(busy(), id="b-1")
    assert computing.wait(20)
    app.cancel("b-1", "enough")
    go.set()
    with pytest.raises(RunCancelled):
        run.result()
    assert done == []


# -- resumption


def test_closing_in_the_middle_loses_nothing_and_the_next_app_goes_on(tmp_path, until):
    store, done = f"sqlite:///{tmp_path}/outlast.db", []

    @step
    def one() -> int:
        done.append("one")
        return 1

    @workflow
    def halting() -> int:
        return one() + receive("number", int)

    with Outlast(store) as app:
        run = app.start(halting(), id="h-1")
        until(lambda: run.info().waiting_for == ("number",))
    with Outlast(store) as app:
        run = app.start(halting(), id="h-1")
        app.send("h-1", "number", 2)
        assert run.result() == 3
    assert done == ["one"], "what is recorded is not done again"


# -- mistakes, each with a clear error


def test_a_sync_step_called_in_an_async_run_says_what_to_write(app):
    @workflow
    async def mistaken() -> int:
        return double(1)

    with pytest.raises(NotInRun, match=r"await double\.aio"):
        app.start(mistaken()).result()


@effect(timeout=1)
async def acted(n: int) -> int:
    return n


http = http_effect("http", timeout=1)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (
            lambda: async_double(1),
            "step async_double is async and this workflow is sync: make it a plain function",
        ),
        (lambda: acted(1), "effect acted is async and this workflow is sync: make it a plain function"),
        (lambda: http("GET", "http://127.0.0.1:1/"), "effect http is async and this workflow is sync"),
        (lambda: double.aio(1), r"this workflow is sync: use `double\(\.\.\.\)`"),
    ],
    ids=["step", "effect", "http_effect", "aio"],
)
def test_what_is_to_be_awaited_says_so_in_a_sync_run(app, what, says):
    @workflow
    def mistaken() -> int:
        return what()

    with pytest.raises(NotInRun, match=says):
        app.start(mistaken()).result()


def test_sync_calls_in_an_async_run_say_what_to_write(app):
    @workflow
    async def sleeps() -> None:
        sleep(1)

    @workflow
    async def receives() -> None:
        receive("note")

    @workflow
    async def runs() -> int:
        return run(child(1))

    with pytest.raises(NotInRun, match=r"await outlast\.sleep"):
        app.start(sleeps()).result()
    with pytest.raises(NotInRun, match=r"await outlast\.receive"):
        app.start(receives()).result()
    with pytest.raises(NotInRun, match="await call"):
        app.start(runs()).result()


@pytest.mark.parametrize(
    "with_context", [False, True], ids=["bare thread", "thread with the workflow's context"]
)
@pytest.mark.parametrize(
    "what", [lambda: double(1), lambda: sleep(1), lambda: receive("x")], ids=["step", "sleep", "receive"]
)
def test_a_thread_that_a_sync_workflow_started_cannot_make_its_calls(app, what, with_context):
    told = []

    def attempt():
        try:
            what()
        except NotInRun as error:
            told.append(str(error))

    @workflow
    def spawning() -> int:
        work = contextvars.copy_context().run if with_context else lambda fn: fn()
        thread = threading.Thread(target=work, args=(attempt,))
        thread.start()
        thread.join(20)
        return double(2)

    assert app.start(spawning()).result() == 4
    assert len(told) == 1


def test_sync_names_outside_a_run_say_so():
    for mistake in (lambda: sleep(1), lambda: receive("note"), now, uuid, random, current, lambda: double(1)):
        with pytest.raises(NotInRun):
            mistake()


def test_sleep_in_a_steps_body_says_so(app):
    @step
    def sleepy() -> None:
        sleep(1)

    @workflow
    def mistaken() -> None:
        sleepy()

    with pytest.raises(NotInRun, match="a step's body"):
        app.start(mistaken()).result()


def test_the_app_cannot_be_used_in_a_workflows_own_code(app):
    @workflow
    def mistaken() -> list[outlast.RunInfo]:
        return app.runs()

    @workflow
    async def mistaken_too() -> list[outlast.RunInfo]:
        return app.runs()

    for call in (mistaken(), mistaken_too()):
        with pytest.raises(NotInStep, match="a step"):
            app.start(call).result()


def test_the_app_can_be_used_in_a_steps_body(app):
    @step
    def elsewhere() -> int:
        return app.start(child(21), id="elsewhere").result()

    @workflow
    def delegating() -> int:
        return elsewhere()

    assert app.start(delegating()).result() == 42
    assert kinds(app, "elsewhere") == ["step"]
