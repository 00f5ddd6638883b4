"""Mistakes in sync workflows fail with an error that says what to write instead."""

import asyncio
import contextvars
import threading

import pytest

import outlast
from outlast.effects import http_effect
from outlast.sync import (
    NotInRun,
    NotInStep,
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
from support.waiting import WAIT_SECONDS


@step
def double(number: int) -> int:
    return number * 2


@step
async def async_double(number: int) -> int:
    await asyncio.sleep(0)
    return number * 2


def kinds(app, id):
    return [entry.kind for entry in app.journal(id)]


@workflow
def child(number: int) -> int:
    return double(number)


def test_sync_step_in_an_async_run_names_the_aio_call(app):
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
        (
            lambda: acted(1),
            "effect acted is async and this workflow is sync: make it a plain function",
        ),
        (
            lambda: http("GET", "http://127.0.0.1:1/"),
            "effect http is async and this workflow is sync",
        ),
        (lambda: double.aio(1), r"this workflow is sync: use `double\(\.\.\.\)`"),
    ],
    ids=["step", "effect", "http_effect", "aio"],
)
def test_awaitable_calls_in_a_sync_run_are_refused_with_a_hint(app, what, says):
    @workflow
    def mistaken() -> int:
        return what()

    with pytest.raises(NotInRun, match=says):
        app.start(mistaken()).result()


def test_sync_calls_in_an_async_run_name_the_async_call(app):
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
    "what",
    [lambda: double(1), lambda: sleep(1), lambda: receive("x")],
    ids=["step", "sleep", "receive"],
)
def test_thread_started_by_a_sync_workflow_cannot_call_steps(app, what, with_context):
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
        thread.join(WAIT_SECONDS)
        return double(2)

    if (
        with_context
    ):  # its calls are known to be the run's, which must not end as if nothing had been
        with pytest.raises(NotInRun, match="its own thread"):
            app.start(spawning()).result()
    else:
        assert app.start(spawning()).result() == 4
    assert len(told) == 1


def test_sync_functions_outside_a_run_raise_not_in_run():
    for mistake in (
        lambda: sleep(1),
        lambda: receive("note"),
        now,
        uuid,
        random,
        current,
        lambda: double(1),
    ):
        with pytest.raises(NotInRun):
            mistake()


def test_sync_sleep_inside_a_step_is_refused(app):
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


@pytest.mark.parametrize("what", ["each", "map"])
def test_sync_code_of_a_workflow_cannot_iterate_with_the_app(app, what):
    use = {
        "each": lambda: list(app.each([1, 2], id="each", key=str)),
        "map": lambda: app.map(double.fn, [1, 2], id="map", key=str),
    }[what]

    @workflow
    def mistaken() -> None:
        use()

    with pytest.raises(NotInStep, match=f"outlast.{what}"):
        app.start(mistaken()).result()


def test_the_app_can_iterate_in_a_steps_body(app):
    @step
    def elsewhere() -> list[int]:
        return [item * 2 for item in app.each([1, 2], id="each", key=str)]

    @workflow
    def delegating() -> list[int]:
        return elsewhere()

    assert app.start(delegating()).result() == [2, 4]


def test_the_app_can_be_used_in_a_steps_body(app):
    @step
    def elsewhere() -> int:
        return app.start(child(21), id="elsewhere").result()

    @workflow
    def delegating() -> int:
        return elsewhere()

    assert app.start(delegating()).result() == 42
    assert kinds(app, "elsewhere") == ["step"]
