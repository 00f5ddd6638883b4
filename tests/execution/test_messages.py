"""Messages are received once, in order, and the same way on replay."""

import asyncio
from dataclasses import dataclass

import pytest

from outlast import (
    BadName,
    LimitExceeded,
    UnknownRun,
    Unrecordable,
    WrongStatus,
    receive,
    step,
    workflow,
)


@dataclass
class Order:
    item: str
    amounts: tuple[int, ...]


@step
async def work(label: str, seconds: float = 0.0) -> str:
    await asyncio.sleep(seconds)
    return label


@workflow
async def listens(count: int) -> list:
    return [await receive("word", str) for _ in range(count)]


def talk(world, call, *acts, id="run"):
    """Start the run, do the acts one second apart, wait for its result."""

    async def main(app):
        run = await app.start(call, id=id)
        for act in acts:
            await asyncio.sleep(1)
            await act(app)
        return await run.result(timeout=1e6)

    return world.do(main)


def send(value, name="word", **options):
    return lambda app: app.send("run", name, value, **options)


def test_a_message_sent_while_the_run_waits(world):
    assert talk(world, listens(1), send("hello")) == ["hello"]
    assert world.kinds() == ["message"]
    assert world.replays(listens(1)) == ["hello"]


def test_messages_sent_before_anybody_waits_are_kept_in_order(world):
    @workflow
    async def busy() -> list[str]:
        await work("x", 10)
        return [await receive("word", str) for _ in range(3)]

    assert talk(world, busy(), send("1"), send("2"), send("3")) == ["1", "2", "3"]
    assert world.replays(busy()) == ["1", "2", "3"]


def test_a_message_sent_to_a_queued_run_is_there_when_it_starts(world):
    async def main(app) -> list:
        await app.submit(listens(1), id="run")
        await app.send("run", "word", "early")
        return await (await app.start(listens(1), id="run")).result(timeout=100)

    assert world.do(main) == ["early"]


def test_received_message_survives_a_crash(world):
    @workflow
    async def one() -> str:
        word = await receive("word", str)
        await work("slow", 100)
        return word

    world.do(lambda app: app.submit(one(), id="run"))
    world.do(send("kept"))
    world.die(one(), after=50)
    assert world.run(one()) == "kept"
    assert [k for k in world.kinds() if k == "message"] == ["message"]


def test_several_waiters_get_one_message_each_in_the_order_they_waited(world):
    @workflow
    async def one() -> list[str]:
        return await asyncio.gather(*[receive("word", str) for _ in range(3)])

    assert talk(world, one(), send("1"), send("2"), send("3")) == ["1", "2", "3"]
    assert world.replays(one()) == ["1", "2", "3"]


def test_messages_of_different_names_are_separate(world):
    @workflow
    async def one() -> list[str]:
        return await asyncio.gather(receive("a", str), receive("b", str))

    assert talk(world, one(), send("for b", "b"), send("for a", "a")) == ["for a", "for b"]


def test_a_receive_that_times_out_leaves_the_message_for_the_next(world):
    @workflow
    async def one() -> list[str]:
        seen = []
        for _ in range(2):
            try:
                seen.append(await receive("word", str, timeout=10))
            except TimeoutError:
                seen.append("timed out")
        return seen

    async def late(app) -> None:
        await asyncio.sleep(14)
        await app.send("run", "word", "late")

    assert talk(world, one(), late) == ["timed out", "late"]
    assert world.replays(one()) == ["timed out", "late"]


def test_a_receive_that_is_cancelled_leaves_the_message_for_the_next(world):
    @workflow
    async def one() -> str:
        first = asyncio.create_task(receive("word", str))
        await work("x", 5)
        first.cancel()
        await work("y", 5)
        return await receive("word", str)

    async def later(app) -> None:
        await asyncio.sleep(6)
        await app.send("run", "word", "for the second")

    assert talk(world, one(), later) == "for the second"
    assert world.replays(one()) == "for the second"


@pytest.mark.parametrize("seed", range(10))
def test_the_race_of_a_message_and_a_cancellation_loses_no_message(world, seed):
    @workflow
    async def one() -> list[str]:
        first = asyncio.create_task(receive("word", str))
        await work("x", 1)
        first.cancel()
        got = await asyncio.gather(first, return_exceptions=True)
        seen = [item for item in got if isinstance(item, str)]
        while len(seen) < 2:
            seen.append(await receive("word", str))
        return seen

    world.app.seed = seed
    result = talk(world, one(), send("1"), send("2"))
    assert result == ["1", "2"]
    assert world.replays(one()) == result


def test_the_timeout_of_a_receive_survives_a_death(world):
    @workflow
    async def one() -> str:
        try:
            return await receive("word", str, timeout=100)
        except TimeoutError:
            return "timed out"

    world.die(one(), after=50, gap=20)
    assert world.run(one()) == "timed out"
    assert world.clock.elapsed == pytest.approx(100, abs=2)


def test_a_typed_message_comes_as_its_type(world):
    @workflow
    async def one() -> Order:
        return await receive("order", Order)

    assert talk(world, one(), send(Order("tea", (1, 2)), "order")) == Order("tea", (1, 2))
    assert world.replays(one()) == Order("tea", (1, 2))


def test_a_message_of_the_wrong_type_is_an_error_in_the_workflow_which_may_go_on(world):
    @workflow
    async def one() -> list:
        seen = []
        while len(seen) < 2:
            try:
                seen.append((await receive("order", Order)).item)
            except Unrecordable:
                seen.append("bad")
        return seen

    good = send(Order("tea", ()), "order")
    assert talk(world, one(), send("nonsense", "order"), good) == ["bad", "tea"]
    assert world.replays(one()) == ["bad", "tea"]


def test_repeated_message_id_is_delivered_once(world):
    same = send("once", message_id="m-1")
    assert talk(world, listens(2), same, same, send("other", message_id="m-2")) == ["once", "other"]


def test_message_without_a_value_is_received_as_none(world):
    @workflow
    async def one() -> bool:
        return await receive("go") is None

    assert talk(world, one(), send(None, "go")) is True


def test_sending_to_a_missing_or_ended_run_is_refused(world):
    talk(world, listens(0))

    async def main(app) -> None:
        with pytest.raises(WrongStatus):
            await app.send("run", "word", "late")
        with pytest.raises(UnknownRun):
            await app.send("nobody", "word", "x")

    world.do(main)


def test_a_message_that_cannot_be_recorded_or_named_or_is_too_long_is_not_sent(world):
    world.restart(value_size_max=1000)

    async def main(app) -> None:
        await app.submit(listens(1), id="run")
        with pytest.raises(Unrecordable):
            await app.send("run", "word", object())
        for name in ("", "a\x00"):
            with pytest.raises(BadName):
                await app.send("run", name, 1)
        with pytest.raises(BadName):
            await app.send("run", "word", 1, message_id="\x00")
        with pytest.raises(LimitExceeded):
            await app.send("run", "word", "x" * 2000)
        with pytest.raises(LimitExceeded):
            await app.send("run", "n" * 201, 1)

    world.do(main)
    assert world.store.messages(world.row().pk) == []


def test_waiting_message_names_can_be_queried(world):
    async def main(app) -> None:
        await app.start(listens(1), id="run")
        await asyncio.sleep(1)
        assert [run.id for run in await app.runs(waiting_for="word")] == ["run"]
        assert await app.runs(waiting_for="wor") == []
        await app.send("run", "word", "x")
        assert await app.result("run", timeout=100) == ["x"]
        assert await app.runs(waiting_for="word") == []

    world.do(main)


def test_hundreds_of_messages_arrive_in_order(world):
    @workflow
    async def one() -> list[int]:
        return [await receive("n", int) for _ in range(300)]

    async def flood(app) -> None:
        await asyncio.gather(*[app.send("run", "n", n) for n in range(300)])

    assert talk(world, one(), flood) == list(range(300))


@pytest.mark.parametrize("value", ["\x00", "\ud800", "日本", [1.5, None], {"k": "v"}])
def test_any_text_may_be_a_message(world, value):
    @workflow
    async def one() -> object:
        return await receive("any")

    assert talk(world, one(), send(value, "any")) == value
