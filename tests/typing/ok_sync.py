"""The same for `outlast.sync`. Never executed: `test_typing.py` hands it to mypy and pyright, both strict."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, assert_type
from uuid import UUID

from outlast import sync
from outlast.sync import (
    Outlast,
    Run,
    RunInfo,
    current,
    now,
    random,
    receive,
    resume_stream,
    run,
    sleep,
    step,
    uuid,
    workflow,
)


@step
def count(text: str) -> int:
    return len(text)


@step(retries=3)
def shorten(text: str, *, to: int = 80) -> str:
    return text[:to]


@workflow
def report(topic: str) -> str:
    return shorten(topic)


@workflow
def tally(words: list[str]) -> dict[str, int]:
    return {word: count(word) for word in words}


@workflow
async def later(topic: str) -> int:
    return await count.aio(topic)


assert_type(run(report("tides")), str)
assert_type(run(later("tides"), id="l-1", store="memory:"), int)
assert_type(sync.run(report("x")), str)


def go_on(so_far: str, prompt: str) -> Iterator[str]:
    yield so_far + prompt


@step
def streaming(prompt: str) -> str:
    with resume_stream(go_on, prompt, by="prefill") as answer:
        assert_type(list(answer), list[str])
        assert_type(answer.read(), str)
    return answer.text


def words_in(text: str) -> int:
    return len(text.split())


@workflow
def inside(topic: str) -> bool:
    assert_type(count(topic), int)
    assert_type(shorten(topic, to=3), str)
    assert_type(run(report(topic)), str)
    assert_type(run(tally([topic])), dict[str, int])
    assert_type(run(later(topic)), int)
    assert_type(list(sync.each([topic])), list[str])
    assert_type(sync.map(words_in, [topic], concurrency=2), dict[str, int])
    with sync.unit("order"):
        sleep(1.5)
    assert_type(receive("words", list[str], timeout=60), list[str])
    assert_type(receive("anything"), Any)
    assert_type(now(), datetime)
    assert_type(uuid(), UUID)
    assert_type(random(), float)
    assert_type(current().id, str)
    return receive("approval", bool)


def program() -> None:
    with Outlast(store="memory:", lease=10.0) as app:
        assert_type(app, Outlast)
        started = app.start(report("tides"), id="r-1")
        assert_type(started, Run[str])
        assert_type(started.id, str)
        assert_type(started.result(), str)
        assert_type(started.result(timeout=3), str)
        assert_type(started.info(), RunInfo)
        assert_type(app.start(later("tides")).result(), int)
        assert_type(
            app.submit(tally(["a"]), id="t-1", queue="slow", priority=1, delay=3),
            Run[dict[str, int]],
        )
        assert_type(app.submit_many([report("tides"), report("moon")]), list[Run[str]])
        assert_type(app.get(tally, "t-1"), Run[dict[str, int]])
        assert_type(app.get(later, "l-1").result(), int)
        assert_type(app.result("r-1", timeout=3), Any)
        assert_type(app.runs(status="done", limit=3), list[RunInfo])
        assert_type(app.runs()[0].id, str)
        app.send("r-1", "approval", True, message_id="m-1")
        assert_type(app.cancel("r-1", "no longer wanted"), str)
        app.retry("r-1")
        app.resume("r-1")
        assert_type(app.prune(3600), int)
        assert_type(list(app.each(["a"], id="e-1")), list[str])
        assert_type(app.map(words_in, ["a"], id="m-1"), dict[str, int])
        with app.unit("order"):
            pass
