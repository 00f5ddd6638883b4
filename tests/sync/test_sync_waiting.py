"""Sync workflows sleep, receive messages, are cancelled and are resumed."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from outlast.sync import (
    Outlast,
    RunCancelled,
    current,
    now,
    random,
    receive,
    sleep,
    step,
    uuid,
    workflow,
)
from support.waiting import WAIT_SECONDS, wait_until


@dataclass
class Note:
    topic: str
    pages: int = 1


@step
def double(number: int) -> int:
    return number * 2


def kinds(app, id):
    return [entry.kind for entry in app.journal(id)]


def test_sleep_is_durable_and_moves_the_runs_clock(app):
    @workflow
    def sleeper() -> float:
        before = now()
        sleep(0.05)
        return (now() - before).total_seconds()

    assert app.start(sleeper(), id="s-1").result() >= 0.05
    assert kinds(app, "s-1") == ["fired"]


def test_random_values_and_clock_are_the_same_after_a_retry(store, app):
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


def test_receive_takes_a_message_that_another_thread_sends(app):
    @workflow
    def waiter() -> Note:
        return receive("note", Note)

    run = app.start(waiter(), id="w-1")
    wait_until(lambda: run.info().waiting_for == ("note",))
    with ThreadPoolExecutor(1) as threads:
        threads.submit(app.send, "w-1", "note", Note("tides", 3)).result()
    assert run.result() == Note("tides", 3)


def test_receive_returns_earlier_messages_oldest_first(app):
    gate = threading.Event()

    @step
    def opened() -> None:
        gate.wait(WAIT_SECONDS)

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


def test_cancellation_is_raised_in_the_waiting_call_and_runs_finally(app):
    cleaned = threading.Event()

    @workflow
    def endless() -> None:
        try:
            receive("never")
        finally:
            cleaned.set()

    run = app.start(endless(), id="e-1")
    wait_until(lambda: run.info().waiting_for == ("never",))
    app.cancel("e-1", "enough")
    with pytest.raises(RunCancelled, match="enough"):
        run.result()
    assert cleaned.is_set()
    assert run.info().status == "cancelled"


def test_cancellation_is_raised_at_the_next_call_of_a_computing_run(app):
    computing, go, done = threading.Event(), threading.Event(), []

    @workflow
    def busy() -> None:
        computing.set()
        go.wait(WAIT_SECONDS)
        done.append(double(1))

    run = app.start(busy(), id="b-1")
    assert computing.wait(WAIT_SECONDS)
    app.cancel("b-1", "enough")
    go.set()
    with pytest.raises(RunCancelled):
        run.result()
    assert done == []


def test_next_app_resumes_a_sync_run_interrupted_by_close(tmp_path):
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
        wait_until(lambda: run.info().waiting_for == ("number",))
    with Outlast(store) as app:
        run = app.start(halting(), id="h-1")
        app.send("h-1", "number", 2)
        assert run.result() == 3
    assert done == ["one"], "what is recorded is not done again"
