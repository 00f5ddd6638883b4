"""What the type checkers must infer. Never executed: `test_typing.py` hands it to mypy and pyright, both strict."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any, assert_type
from uuid import UUID

import outlast
from outlast import (
    Call,
    Outlast,
    Run,
    RunInfo,
    Unrecorded,
    current,
    each,
    now,
    random,
    receive,
    resume_stream,
    run,
    sleep,
    step,
    unit,
    uuid,
    workflow,
)
from outlast import map as each_map
from outlast.streams import ResumableStream


@dataclass
class Report:
    topic: str
    pages: int


@step
async def research(topic: str, depth: int = 1) -> str:
    return topic * depth


@step(retries=3, backoff=0.5, retry_on=(OSError, ValueError), timeout=30)
async def write(notes: str, *, pages: int) -> Report:
    return Report(notes, pages)


@step
def count(text: str) -> int:
    return len(text)


@step(name="measure", retries=1)
def measure(text: str, *, unit: str = "cm") -> float:
    return float(len(text + unit))


@step
async def fetch(client: Annotated[object, Unrecorded], url: str) -> bytes:
    return f"{client}{url}".encode()


@step
async def forget(topic: str) -> None:
    print(topic)


class Agent:
    @step
    async def think(self, about: str) -> str:
        return about

    @step(retries=2)
    async def act(self, *, plan: str) -> list[str]:
        return [plan]

    @step
    def remember(self, what: str) -> int:
        return len(what)

    @step(timeout=1)
    def forget(self, what: str) -> None:
        print(what)


@workflow
async def report(topic: str) -> str:
    return await research(topic)


@workflow(name="long_report", timeout=3600)
async def long_report(topic: str, *, pages: int = 10) -> Report:
    return Report(topic, pages)


@workflow
def tally(words: list[str]) -> dict[str, int]:
    return {word: count(word) for word in words}


@workflow(timeout=10)
def shout(word: str) -> str:
    return word.upper()


# -- calls, and the whole thing in one

assert_type(report("tides"), Call[str])
assert_type(long_report("tides", pages=3), Call[Report])
assert_type(tally(["a"]), Call[dict[str, int]])
assert_type(run(report("tides")), str)
assert_type(run(long_report("tides"), id="r-1", store="memory:"), Report)
assert_type(run(tally(["a"])), dict[str, int])
assert_type(run(shout("a")), str)


@workflow
async def inside(topic: str) -> None:
    # -- steps
    pending: Coroutine[Any, Any, str] = research(topic)
    assert_type(await pending, str)
    assert_type(await research(topic), str)
    assert_type(await research(topic, depth=2), str)
    assert_type(await write(topic, pages=2), Report)
    assert_type(await fetch(object(), "https://example.com"), bytes)
    await forget(topic)
    assert_type(await count.aio(topic), int)
    assert_type(await measure.aio(topic, unit="m"), float)

    # -- methods
    agent = Agent()
    assert_type(await agent.think(topic), str)
    assert_type(await agent.act(plan=topic), list[str])
    assert_type(await agent.remember.aio(topic), int)
    await agent.forget.aio(topic)

    # -- child runs
    assert_type(await report(topic), str)
    assert_type(await long_report(topic), Report)
    assert_type(await tally([topic]), dict[str, int])

    # -- asyncio, as written
    assert_type(
        await asyncio.gather(research(topic), count.aio(topic), report(topic)), tuple[str, int, str]
    )
    assert_type(await asyncio.gather(report(topic), long_report(topic)), tuple[str, Report])
    assert_type(
        await asyncio.gather(agent.think(topic), agent.remember.aio(topic)), tuple[str, int]
    )
    assert_type(await asyncio.gather(*[research(one) for one in topic]), list[str])
    assert_type(await asyncio.gather(*[long_report(one) for one in topic]), list[Report])
    assert_type(asyncio.create_task(research(topic)), asyncio.Task[str])
    assert_type(asyncio.create_task(long_report(topic)), asyncio.Task[Report])
    assert_type(asyncio.create_task(agent.think(topic), name="thought"), asyncio.Task[str])
    async with asyncio.TaskGroup() as group:
        assert_type(group.create_task(write(topic, pages=1)), asyncio.Task[Report])
        assert_type(group.create_task(report(topic)), asyncio.Task[str])
        assert_type(group.create_task(measure.aio(topic)), asyncio.Task[float])
    assert_type(await asyncio.wait_for(research(topic), 3), str)
    assert_type(await asyncio.wait_for(long_report(topic), 3), Report)

    # -- items
    assert_type([one async for one in each([topic])], list[str])
    assert_type(await each_map(plain_count, [topic]), dict[str, int])
    assert_type(await each_map(async_report, [1, 2], id="x", concurrency=3), dict[str, Report])
    async with unit("order"):
        await forget(topic)

    # -- what a workflow may ask for besides
    await sleep(1.5)
    assert_type(await receive("approval", Report), Report)
    assert_type(await receive("approval", bool, timeout=60), bool)
    assert_type(await receive("words", list[str]), list[str])
    assert_type(await receive("anything"), Any)
    assert_type(now(), datetime)
    assert_type(uuid(), UUID)
    assert_type(random(), float)
    assert_type(current().id, str)
    assert_type(current().fence, int)
    assert_type(current().step, str | None)


@workflow
def inside_sync(topic: str) -> None:
    agent = Agent()
    assert_type(count(topic), int)
    assert_type(measure(topic, unit="m"), float)
    assert_type(agent.remember(topic), int)
    agent.forget(topic)


def topic_of(report: Report) -> str:
    return report.topic


def plain_count(text: str) -> int:
    return len(text)


async def async_report(pages: int) -> Report:
    return Report("tides", pages)


# -- streams


async def say(prompt: str) -> AsyncIterator[str]:
    yield prompt


async def go_on(so_far: str, prompt: str, words: int) -> AsyncIterator[str]:
    yield so_far + prompt * words


async def follow(cursor: int | None, prompt: str) -> AsyncIterator[tuple[str, int]]:
    yield prompt, (cursor or 0) + 1


async def follow_some(cursor: str | None) -> AsyncIterator[tuple[bytes, str | None]]:
    yield b"", cursor


async def raw() -> AsyncIterator[bytes]:
    yield b""


@step
async def streaming(prompt: str) -> str:
    async with resume_stream(go_on, prompt, 3, by="prefill", trim=str.rstrip, stall=3) as answer:
        assert_type(answer, ResumableStream[str])
        assert_type(answer.resumed_from, str)
        assert_type(answer.restarted, bool)
        assert_type(answer.complete, bool)
        assert_type([token async for token in answer], list[str])
        assert_type(await answer.read(), str)
        answer.discard()
    assert_type(resume_stream(say, prompt), ResumableStream[str])
    assert_type(resume_stream(say, prompt, by="restart", stall=1.5), ResumableStream[str])
    assert_type(resume_stream(partial(say, prompt)), ResumableStream[str])
    assert_type(resume_stream(lambda: say(prompt)), ResumableStream[str])
    assert_type(resume_stream(follow, prompt, by="cursor"), ResumableStream[str])
    assert_type(
        resume_stream(lambda cursor: follow(cursor, prompt), by="cursor"), ResumableStream[str]
    )
    assert_type(resume_stream(follow_some, by="cursor", type=bytes), ResumableStream[bytes])
    assert_type(resume_stream(raw, type=bytes).text, bytes)
    return answer.text


# -- the plain functions

assert_type(research.name, str)
assert_type(report.name, str)


# -- a program of the user's own


async def program() -> None:
    async with Outlast(store="memory:", lease=10.0) as app:
        assert_type(app, Outlast)
        started = await app.start(report("tides"), id="r-1")
        assert_type(started, Run[str])
        assert_type(started.id, str)
        assert_type(await started.result(), str)
        assert_type(await started.result(timeout=3), str)
        assert_type(await started.info(), RunInfo)
        assert_type(await app.start(tally(["a"])), Run[dict[str, int]])
        assert_type(
            await app.submit(long_report("tides"), queue="slow", priority=1, delay=3), Run[Report]
        )
        assert_type(await app.submit_many([report("tides"), report("moon")]), list[Run[str]])
        assert_type(app.get(long_report, "r-2"), Run[Report])
        assert_type(await app.get(shout, "r-3").result(), str)
        assert_type(await app.result("r-1"), Any)
        assert_type(await app.runs(status=("done", "failed"), limit=3), list[RunInfo])
        assert_type((await app.runs())[0].ended, datetime | None)
        await app.send("r-1", "approval", Report("tides", 3), message_id="m-1")
        assert_type(await app.cancel("r-1", "no longer wanted"), str)
        await app.retry("r-1")
        await app.resume("r-1")
        assert_type(await app.prune(3600), int)
        assert_type([one async for one in app.each(["a"], id="e-1")], list[str])
        assert_type(
            [one async for one in app.each([Report("a", 1)], id="e-2", key=topic_of)], list[Report]
        )
        assert_type(await app.map(plain_count, ["a"], id="m-1"), dict[str, int])
        assert_type(
            await app.map(async_report, range(3), id="m-2", concurrency=2), dict[str, Report]
        )
        async with app.unit("order"):
            pass
        with app.unit("order"):
            pass


def wants_any_outlast_error(error: outlast.RunFailed | outlast.StepTimeout) -> outlast.OutlastError:
    return error


# -- settings, and what is done with an id that is taken


async def configured() -> None:
    app = Outlast("memory:", grace=3, lease=12.5, signals=0, chaos_mode="both", queues=["a", "b"])
    app.configure(grace=None, worker=True)
    async with app:
        await app.submit(report("tides"), id="r-1", on_conflict="join")
