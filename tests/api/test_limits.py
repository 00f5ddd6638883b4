"""Every limit is a number, and exceeding it is a clear error before anything is written."""

import asyncio
import threading
from typing import Any

import pytest

from outlast import (
    LimitExceeded,
    NotInRun,
    Outlast,
    RunFailed,
    Unrecordable,
    current,
    receive,
    run,
    step,
    workflow,
)
from outlast.settings import Settings


@step
async def produce(size: int) -> str:
    return "x" * size


@workflow
async def passes(value: Any) -> Any:
    return value


@workflow
async def produces(size: int) -> str:
    try:
        return str(len(await produce(size)))
    except LimitExceeded as error:
        return error.limit


def test_arguments_that_are_too_large_are_refused_before_anything_is_written(world):
    world.restart(value_size_max=1000)
    for start in ("start", "submit"):
        with pytest.raises(LimitExceeded, match="OUTLAST_VALUE_SIZE_MAX"):
            world.do(lambda app, start=start: getattr(app, start)(passes("x" * 1000), id="run"))
    assert world.do(lambda app: app.runs()) == []


def test_a_result_of_a_step_that_is_too_large_fails_that_step(world):
    world.restart(value_size_max=1000)
    assert world.run(produces(998), id="fits") == "998"
    assert world.run(produces(999), id="does not") == "value_size_max"
    assert max(len(entry.value or "") for entry in world.journal("does not")) <= 1000


def test_value_size_is_measured_on_the_encoded_text(world):
    world.restart(value_size_max=1000)
    with pytest.raises(LimitExceeded):
        world.run(passes("日" * 200))


def test_a_result_of_a_run_that_is_too_large_fails_it(world):
    world.restart(value_size_max=1000)

    @workflow
    async def grows() -> str:
        return "x" * 2000

    with pytest.raises(LimitExceeded):
        world.run(grows())
    assert world.status() == "failed"


def test_full_journal_fails_the_run_with_a_clear_error(world):
    world.restart(journal_entries_max=10)

    @workflow
    async def endless() -> None:
        while True:
            await produce(1)

    with pytest.raises(LimitExceeded, match="journal_entries_max"):
        world.run(endless())
    assert len(world.journal()) == 10


def test_concurrent_steps_do_not_exceed_the_journal_limit(world):
    world.restart(journal_entries_max=10)

    @workflow
    async def wide() -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(100):
                group.create_task(produce(n))

    with pytest.raises(RunFailed, match="TaskGroup"):
        world.run(wide())
    assert len(world.journal()) <= 10


def test_error_texts_are_cut(world):
    world.restart(error_text_max=500)

    @step
    async def fails() -> None:
        raise ValueError("x" * 10_000)

    @workflow
    async def one() -> None:
        await fails()

    with pytest.raises(Exception, match="more characters"):
        world.run(one())
    assert len(world.journal()[0].error) < 5000
    assert len(world.row().error) < 5000


def test_a_name_that_is_too_long_is_refused_where_it_is_written():
    with pytest.raises(LimitExceeded):
        step(name="n" * 201)(lambda: None)
    with pytest.raises(LimitExceeded):
        workflow(name="n" * 201)(lambda: None)


def test_a_queue_name_is_bounded_too(world):
    with pytest.raises(LimitExceeded):
        world.do(lambda app: app.submit(passes(1), queue="q" * 201))
    assert world.do(lambda app: app.runs()) == []


def test_values_nested_too_deep_are_refused(world):
    value: list = []
    for _ in range(5000):
        value = [value]
    with pytest.raises(Unrecordable, match="deep"):
        passes(value)


def test_run_inside_an_event_loop_raises_a_clear_error(address):
    async def main() -> None:
        run(passes(1), store=address)

    with pytest.raises(NotInRun, match=r"app\.start"):
        asyncio.run(main())


def test_run_rejects_anything_but_a_call():
    with pytest.raises(TypeError, match=r"run\(report"):
        run(passes)


def test_run_returns_the_result_and_leaves_no_thread_behind(address):
    before = set(threading.enumerate())
    assert run(passes([1, 2]), id="r", store=address) == [1, 2]
    left = [
        t.name
        for t in set(threading.enumerate()) - before
        if t.is_alive() and t.name == "outlast-writer"
    ]
    assert left == []


def test_run_inside_a_step_is_refused_but_an_app_is_allowed(world):
    @step
    async def nested() -> str:
        async with Outlast("memory:") as app:
            inner = await (await app.start(passes("inner"), id="x")).result()
        return f"{inner} {current().id}"

    @workflow
    async def one() -> str:
        return await nested()

    async def main() -> str:
        async with Outlast("memory:") as app:
            return await (await app.start(one(), id="outer")).result()

    assert asyncio.run(main()) == "inner outer"


@workflow
async def listens(count: int) -> list[int]:
    return [await receive("n", int) for _ in range(count)]


def test_a_message_that_is_too_long_is_refused_before_anything_is_written(world):
    world.restart(message_size_max=100)

    async def main(app: Outlast) -> str:
        await app.submit(listens(3), id="run")
        with pytest.raises(LimitExceeded, match="OUTLAST_MESSAGE_SIZE_MAX") as refused:
            await app.send("run", "n", "x" * 99)
        await app.send("run", "n", "x" * 98)
        return str(refused.value)

    assert "message 'n': 101 is more than message_size_max=100" in world.do(main)
    assert len(world.store.messages(world.row("run").pk)) == 1


def test_by_default_all_messages_to_a_run_are_a_few_gigabytes_at_most():
    settings = Settings()
    assert settings.messages_max * settings.message_size_max <= 4_000_000_000


def test_sending_to_a_run_that_never_receives_is_bounded(world):
    world.restart(messages_max=2)

    async def main(app: Outlast) -> str:
        await app.submit(listens(3), id="run")
        for n in (1, 2):
            await app.send("run", "n", n, message_id=str(n))
        with pytest.raises(LimitExceeded, match="OUTLAST_MESSAGES_MAX") as refused:
            await app.send("run", "n", 3, message_id="3")
        await app.send("run", "n", 2, message_id="2")  # a repeat is no other message
        return str(refused.value)

    assert "messages to run 'run': 3 is more than messages_max=2" in world.do(main)
    assert len(world.store.messages(world.row("run").pk)) == 2
