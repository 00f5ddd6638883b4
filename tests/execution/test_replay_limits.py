"""Journal limits, message counts and executions are the same after a restart."""

import asyncio

import pytest

from outlast import Conflict, LimitExceeded, RunParked, receive, step, workflow
from outlast.store.rows import Message
from outlast.testing.store_hooks import reopen

done: list[str] = []


@pytest.fixture(autouse=True)
def _fresh():
    done.clear()


@step
async def work(label: str = "") -> str:
    done.append(label)
    return label


@workflow
async def count(to: int) -> int:
    for n in range(to):
        await work(str(n))
    return to


def test_a_journal_as_long_as_the_limit_is_not_too_long_when_it_is_replayed(world):
    world.restart(journal_entries_max=10)
    assert world.run(count(10)) == 10
    world.restart(journal_entries_max=10)
    reopen(world.store, "run")
    assert world.run(count(10)) == 10
    assert world.executed == {}


def test_interruptions_do_not_use_up_the_entries_of_a_run(world):
    @step
    async def slow() -> str:
        await asyncio.sleep(100)
        return "slow"

    @workflow
    async def long() -> str:
        for n in range(5):
            await work(str(n))
        return await slow()

    async def a_while(app) -> None:
        await app.start(long(), id="run")
        await asyncio.sleep(10)

    for _ in range(4):
        world.restart(journal_entries_max=6)
        world.do(a_while)
    world.restart(journal_entries_max=6)
    assert world.run(long()) == "slow"


def test_the_entry_beyond_the_limit_is_the_same_one_in_every_life(world):
    for _ in range(2):
        world.restart(journal_entries_max=10)
        if done:
            reopen(world.store, "run")
        with pytest.raises(LimitExceeded, match="journal_entries_max"):
            world.run(count(11))
        assert len(done) == 10


looks: list[int] = []


class Seen(Message):
    """A message that counts how often it is looked at."""

    @property
    def name(self) -> str:
        looks.append(1)
        return self[Message._fields.index("name")]


@workflow
async def listens(to: int) -> list[int]:
    return [await receive("go", int) for _ in range(to)]


def test_many_messages_arrive_once_in_order_without_rescanning_the_mailbox(world, monkeypatch):
    many, store = 300, world.store
    looks.clear()
    messages = store.messages
    monkeypatch.setattr(
        store,
        "messages",
        lambda *args: [Seen(*message) for message in messages(*args)],
        raising=False,
    )

    async def main(app) -> list[int]:
        await app.submit(listens(many), id="run")
        for n in range(many):
            await app.send("run", "go", n)
        return await (await app.start(listens(many), id="run")).result(timeout=1000)

    assert world.do(main) == list(range(many))
    assert world.kinds() == ["message"] * many
    assert many <= len(looks) <= 10 * many


def test_parent_does_not_take_an_unrelated_run_as_its_child(world):
    @workflow
    async def child(n: int) -> str:
        return await work("child")

    @workflow
    async def parent() -> str:
        return await child(1)

    assert world.run(child(1), id="p/child#1") == "child"
    with pytest.raises(Conflict, match="p/child#1"):
        world.run(parent(), id="p")
    assert world.row("p/child#1").parent is None


def test_a_retry_starts_from_the_step_that_ended_the_run_not_from_one_that_was_handled(world):
    @step
    async def handled() -> None:
        done.append("handled")
        raise ValueError("handled")

    @step
    async def last() -> str:
        done.append("last")
        if done.count("last") == 1:
            raise KeyError("last")
        return "last"

    @workflow
    async def one() -> str:
        try:
            await handled()
        except ValueError:
            await work("between")
            return await last()
        return "odd"

    async def again(app) -> str:
        await app.retry("run")
        return await (await app.start(one(), id="run")).result(timeout=1000)

    with pytest.raises(KeyError, match="last"):
        world.run(one())
    assert world.do(again) == "last"
    assert done == ["handled", "between", "last", "last"]


def test_a_step_two_deep_that_is_recorded_is_not_executed_again_when_the_outermost_is_retried(
    world,
):
    @step
    async def middle() -> str:
        done.append("middle")
        label = await work("leaf")
        if done.count("middle") == 1:
            raise ValueError("not yet")
        return label

    @step(retries=1, backoff=0.01)
    async def outer() -> str:
        return await middle()

    @workflow
    async def one() -> str:
        return await outer()

    assert world.run(one()) == "leaf"
    assert done == ["middle", "leaf", "middle"]
    assert world.kinds() == ["inner", "attempt", "inner", "step"]
    assert world.replays(one()) == "leaf"


def test_workflow_stuck_beside_an_unstarted_cancelled_step_is_parked(world):
    @workflow
    async def one() -> None:
        asyncio.create_task(work()).cancel()
        await asyncio.Event().wait()

    with pytest.raises(RunParked, match="never come"):
        world.run(one())
    assert done == []


def test_workflow_code_does_not_execute_in_a_task_of_the_program(world):
    tasks = []

    @workflow
    async def one() -> None:
        for _ in range(2):
            tasks.append(asyncio.current_task(asyncio.get_running_loop().execution.host))
            await work()

    world.run(one())
    assert tasks == [None, None]
