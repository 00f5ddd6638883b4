"""What a step or a workflow publishes is there for viewers, and agrees with what is recorded."""

import asyncio
import time

import pytest
from publish_tools import Screen, published, rows_of, text_of

import outlast.sync
from outlast import (
    BadName,
    Evicted,
    LimitExceeded,
    NotInRun,
    Outlast,
    Unrecordable,
    effect,
    publish,
    step,
    workflow,
)

WORDS = [f"w{n}." for n in range(10)]
log: list = []


@pytest.fixture(autouse=True)
def empty():
    log.clear()


@step(retries=3, backoff=0.001)
async def speak(lives: int = 1, words: int = 10) -> str:
    """Publish a word per second. Before the last of `lives`, fail in the middle."""
    log.append("speak")
    life = len(log)
    text = ""
    async with publish("answer") as out:
        for number in range(words):
            word = f"{life}{WORDS[number]}"
            text += word
            await out.write(word)
            await asyncio.sleep(1)
            if life < lives and number == words // 2:
                raise ValueError("again")
    return text


@workflow
async def talk(lives: int = 1) -> str:
    return await speak(lives)


def test_published_text_is_the_result(world):
    text = world.run(talk())
    assert text_of(world) == text
    assert world.kinds() == ["step"], "publishing writes no entries"
    assert rows_of(world) == 1, "the rows are joined when the step ends"


def test_viewer_sees_the_text_while_the_step_executes(world):
    world.die(talk(), after=4.5)
    assert text_of(world) == "1w0.1w1.1w2.1w3.1w4."
    assert rows_of(world) == 5


def test_values_are_written_together_at_most_once_per_interval(world):
    @step
    async def fast() -> int:
        async with publish("answer") as out:
            for number in range(1000):
                await out.write(number)
                await asyncio.sleep(0.001)
            await asyncio.sleep(1e6)
        return 1

    @workflow
    async def flow() -> int:
        return await fast()

    world.settings = {"publish_interval": 0.25}
    world.die(flow(), after=2)
    assert published(world) == list(range(1000))
    assert rows_of(world) <= 6


def test_retried_step_replaces_what_it_published(world):
    screen = Screen()
    world.die(talk(3), after=3.5)
    assert screen.look(world) == "1w0.1w1.1w2.1w3."
    text = world.run(talk(3))
    assert text_of(world) == text
    assert text.startswith("3w0."), "the second one failed, the third one has ended"
    assert screen.look(world) == text
    assert screen.resets == 1


def test_failed_step_leaves_what_it_published(world):
    @step
    async def fails() -> None:
        await publish("answer", "half")
        raise ValueError("no")

    @workflow
    async def flow() -> None:
        await fails()

    with pytest.raises(ValueError, match="no"):
        world.run(flow())
    assert published(world) == ["half"]


@pytest.mark.parametrize("dies", [False, True])
def test_attempt_that_publishes_nothing_removes_what_an_earlier_one_published(world, dies):
    @step(retries=1, backoff=0.001)
    async def once() -> str:
        log.append(1)
        if len(log) == 1:
            await publish("answer", "stale")
            await asyncio.sleep(10 if dies else 1)
            raise ValueError("again")
        return "other"

    @workflow
    async def flow() -> str:
        return await once()

    if dies:
        world.die(flow(), after=5)
        assert published(world) == ["stale"]
    assert world.run(flow()) == "other"
    assert published(world) == []


def test_several_steps_and_streams(world):
    @step
    async def says(word: str) -> None:
        await publish("answer", word)
        await publish(f"only-{word}", {"word": word})

    @workflow
    async def flow() -> None:
        await says("a")
        await publish("answer", "b")
        await says("c")

    world.run(flow())
    assert published(world) == ["a", "b", "c"]
    assert published(world, "only-a") == [{"word": "a"}]


def test_step_within_a_step_publishes_its_own_part(world):
    @step
    async def inner(word: str) -> str:
        log.append(word)
        await publish("answer", word)
        return word

    @step(retries=2, backoff=0.001)
    async def outer() -> str:
        first = await inner("a")
        if log.count("b") < 2:
            await inner("b")
            if log.count("b") < 2:
                log.append("b")
                raise ValueError("again")
        await publish("answer", "!")
        return first

    @workflow
    async def flow() -> str:
        return await outer()

    world.run(flow())
    assert published(world) == ["a", "b", "!"], "a recorded inner step is not repeated"


# -- in a workflow's own code


@workflow
async def reports() -> str:
    await publish("status", "begins")
    result = await speak()
    await publish("status", {"result": result})
    return result


def test_workflow_publishes_each_value_once(world):
    world.die(reports(), after=5)
    text = world.run(reports())
    assert published(world, "status") == ["begins", {"result": text}]
    assert [kind for kind in world.kinds() if kind != "death"] == ["publish", "step", "publish"]
    world.replays(reports())
    assert published(world, "status") == ["begins", {"result": text}]


def test_sync_workflow_and_step_publish(world):
    @outlast.sync.step
    def says() -> str:
        with outlast.sync.publish("answer") as out:
            out.write("a")
            out.write("b")
        outlast.sync.publish("answer", "c")
        return "abc"

    @outlast.sync.workflow
    def flow() -> str:
        outlast.sync.publish("status", 1)
        return says()

    assert world.run(flow()) == "abc"
    assert published(world) == ["a", "b", "c"]
    assert published(world, "status") == [1]


# -- refusals


def test_thread_that_outlived_its_timeout_publishes_nothing(address):
    raised = []

    # On a slow machine a later attempt may time out, too: it publishes the same.
    @step(timeout=0.5, retries=1000, backoff=0.001)
    def slow() -> str:
        log.append(1)
        with outlast.sync.publish("answer") as out:
            if len(log) > 1:
                out.write("second")
                return "second"
            out.write("first")
            try:
                while True:
                    out.write("more")
                    time.sleep(0.02)
            except Evicted as error:
                raised.append(error)
                raise

    @workflow
    async def flow() -> str:
        return await slow.aio()

    async def main():
        async with Outlast(address, signals=0) as app:
            run = await app.start(flow(), id="r")
            assert await run.result() == "second"
            store = app._open.client.store
            return store.stream(store.run("r").pk, "answer").chunks

    (chunk,) = asyncio.run(main())
    assert chunk.values == '["second"]'
    assert raised


@pytest.mark.parametrize("value", [object(), {1: 2}, (1, 2)])
def test_value_that_is_not_plain_json_raises_where_it_is_published(world, value):
    @step
    async def says() -> None:
        with pytest.raises(Unrecordable):
            await publish("answer", value)
        await publish("answer", "good")

    @workflow
    async def flow() -> None:
        await says()

    world.run(flow())
    assert published(world) == ["good"]


def test_step_may_not_publish_more_than_the_limit(world):
    @step
    async def says() -> None:
        async with publish("answer") as out:
            for _ in range(10):
                await out.write("x" * 20)

    @workflow
    async def flow() -> None:
        await says()

    world.settings = {"stream_size_max": 100}
    with pytest.raises(LimitExceeded, match="stream_size_max"):
        world.run(flow())
    assert len(text_of(world)) == 80


def test_effect_cannot_publish(world):
    @effect(timeout=1, undo=None)
    async def acts() -> None:
        with pytest.raises(NotInRun, match="not for effects"):
            await publish("answer", 1)

    @workflow
    async def flow() -> None:
        await acts()

    world.run(flow())
    assert published(world) is None


def test_streams_are_opened_only_in_steps(world):
    @workflow
    async def flow() -> None:
        async with publish("answer"):
            pass

    with pytest.raises(NotInRun, match="in a step's body"):
        world.run(flow())
    with pytest.raises(NotInRun):
        publish("answer", 1)


def test_name_of_a_stream_is_checked(world):
    @step
    async def says() -> None:
        with pytest.raises(BadName):
            await publish("a\nb", 1)
        with pytest.raises(LimitExceeded):
            await publish("x" * 10_000, 1)

    @workflow
    async def flow() -> None:
        await says()

    world.run(flow())
