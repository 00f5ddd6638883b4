"""A resumed stream continues what it published, and a viewer gets a reset if it does not."""

import asyncio
import json

import pytest
from publish_tools import Screen as Viewer
from publish_tools import text_of
from stream_work import GOING_ON, WAYS, model, opener

from outlast import publish, resume_stream, step, workflow
from outlast.errors import SettingsError
from outlast.store.rows import RunQuery
from outlast.testing import crash_everywhere
from support.crash_stores import LEASE_SECONDS, STORES, new_places


@step(retries=5, backoff=0.001)
async def answer(by: str) -> str:
    async with resume_stream(opener(by), by=by, publish="answer") as stream:
        return await stream.read()


@workflow
async def ask(by: str) -> str:
    return await answer(by)


@pytest.mark.parametrize("by", WAYS)
def test_published_text_is_the_answer(world, by):
    text = world.run(ask(by))
    assert text_of(world) == text
    assert len(model.asked) == 1


@pytest.mark.parametrize("by", GOING_ON)
def test_resumed_answer_continues_what_was_published(world, by):
    viewer = Viewer()
    for _ in range(4):
        world.die(ask(by), after=2.5)
        viewer.look(world)
    text = world.run(ask(by))
    assert viewer.look(world) == text == text_of(world)
    assert viewer.resets == 0


def test_answer_that_starts_again_resets_its_viewers(world):
    viewer = Viewer()
    world.die(ask("restart"), after=4.5)
    assert viewer.look(world).startswith("q0-0.")
    text = world.run(ask("restart"))
    assert viewer.look(world) == text == text_of(world)
    assert text.startswith("q1-0.")
    assert viewer.resets == 1


@pytest.mark.parametrize("by", WAYS)
def test_connection_that_breaks_in_one_execution(world, by):
    model.breaks_at = [3, 7]
    text = world.run(ask(by))
    assert text_of(world) == text
    assert len(model.asked) == 3


def test_complete_answer_is_published_without_asking_again(world):
    @step(retries=1, backoff=0.001)
    async def late() -> str:
        async with resume_stream(opener("prefill"), by="prefill", publish="answer") as stream:
            text = await stream.read()
        await asyncio.sleep(10)
        return text

    @workflow
    async def flow() -> str:
        return await late()

    viewer = Viewer()
    world.die(flow(), after=15)
    viewer.look(world)
    text = world.run(flow())
    assert len(model.asked) == 1
    assert viewer.look(world) == text
    assert viewer.resets == 0


def test_step_with_several_streams_resumes_the_last_one(world):
    @step(retries=3, backoff=0.001)
    async def two() -> str:
        texts = []
        for number in range(2):
            await publish("answer", f"<{number}>")
            call = resume_stream(model.prefill, by="prefill", publish="answer")
            async with call as stream:
                texts.append(await stream.read())
        return "".join(f"<{number}>{text}" for number, text in enumerate(texts))

    @workflow
    async def flow() -> str:
        return await two()

    world.die(flow(), after=14.5)
    text = world.run(flow())
    assert text_of(world) == text


def test_trimmed_text_replaces_what_was_published(world):
    @step(retries=3, backoff=0.001)
    async def trims() -> str:
        call = resume_stream(
            opener("prefill"), by="prefill", trim=lambda text: text[:5], publish="answer"
        )
        async with call as stream:
            return await stream.read()

    @workflow
    async def flow() -> str:
        return await trims()

    viewer = Viewer()
    world.die(flow(), after=4.5)
    viewer.look(world)
    text = world.run(flow())
    assert viewer.look(world) == text == text_of(world)


@pytest.fixture(params=STORES)
def places(request):
    with new_places(request, request.param) as new_place:
        yield new_place


@pytest.mark.parametrize("every_life", [False, True])
@pytest.mark.parametrize("by", WAYS)
def test_text_and_result_agree_wherever_it_crashes(places, by, every_life):
    made: list = []

    @workflow
    async def flow() -> int:
        await publish("answer", "")
        return len(await answer(by))

    def new_place():
        made.append(places())
        return made[-1]

    def check() -> None:
        store = made[-1](lambda: 1_800_000_000.0)
        store.open()
        try:
            (row,) = store.runs(RunQuery())
            (recorded,) = [e.value for e in store.journal(row.pk) if e.kind == "step"]
            stream = store.stream(row.pk, "answer")
            values = [value for chunk in stream.chunks for value in json.loads(chunk.values)]
            assert "".join(values) == json.loads(recorded)
        finally:
            store.close()

    model.voices = iter(["one", "two"] * 1000)
    settings = {"progress_interval": 1.5, "publish_interval": 0.7, "lease": LEASE_SECONDS}
    writes = range(2, 14, 5) if every_life else range(1, 30, 6)
    report = crash_everywhere(
        flow(), store=new_place, check=check, every_life=every_life, writes=writes, **settings
    )
    assert report.crashes >= 2


def test_bytes_cannot_be_published(world):
    @step
    async def binary() -> None:
        with pytest.raises(SettingsError, match="only text"):
            resume_stream(opener("prefill"), by="prefill", type=bytes, publish="answer")

    @workflow
    async def flow() -> None:
        await binary()

    world.run(flow())
