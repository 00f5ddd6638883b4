"""`outlast watch`: a stream of a run, or the run itself."""

from __future__ import annotations

import asyncio
import json

import pytest

from outlast import Outlast, publish, step, workflow

log: list = []


@step(retries=1, backoff=0.001)
async def says(fails: bool) -> str:
    log.append(1)
    async with publish("answer") as out:
        await out.write("one\n")
        await out.write("tw\x1bo")
        if fails and len(log) == 1:
            await asyncio.sleep(0.3)
            raise ValueError("again")
    await publish("steps", {"done": 1})
    return "text"


@workflow
async def speak(fails: bool = False, raises: bool = False) -> str:
    text = await says(fails)
    if raises:
        raise ValueError("no luck")
    return text


def run(outlast, call, id):
    async def main() -> None:
        async with Outlast(outlast.address, signals=0) as app:
            handle = await app.start(call, id=id)
            try:
                await handle.result()
            except ValueError:
                return

    log.clear()
    asyncio.run(main())


def test_watch_prints_a_stream_and_how_the_run_ended(outlast):
    run(outlast, speak(), "r")
    answer = outlast("watch", "r", "answer")
    assert answer.code == 0
    assert answer.out == "one\ntw\\eo\n"
    assert answer.err == "outlast: the run is done.\n"
    assert outlast("watch", "r", "steps").out == '{"done":1}\n'.replace(":", ": ")


def test_watch_ends_with_the_exit_code_of_the_run(outlast):
    run(outlast, speak(raises=True), "r")
    answer = outlast("watch", "r", "answer")
    assert answer.code == 1
    assert "the run is failed: no luck" in answer.err


def test_watch_prints_events_as_json(outlast):
    run(outlast, speak(), "r")
    answer = outlast("watch", "r", "answer", "--json")
    events = [json.loads(line) for line in answer.out.splitlines()]
    assert [event["kind"] for event in events] == ["data", "data", "end"]
    assert events[-1]["result"] == "text"
    rest = outlast("watch", "r", "answer", "--json", "--after", events[0]["cursor"])
    assert [json.loads(line) for line in rest.out.splitlines()] == events[1:]


def test_watch_prints_what_happens_to_a_run(outlast):
    run(outlast, speak(True), "r")
    answer = outlast("watch", "r")
    words = [line.split(" ", 1)[1] for line in answer.out.splitlines()]
    assert words[0] == "done"
    assert words[1].startswith("execution began by ")
    assert words[2].startswith("attempt says#1")
    assert "ValueError: again" in words[2]
    assert words[3].startswith("step says#1")
    assert words[4].startswith("execution ended")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nobody", "answer"), 3, "no run has the id"),
        (("r", "answer", "--after", "x"), 2, "is not a cursor"),
        (("r", "a\nb"), 2, "stream"),
    ],
)
def test_watch_refuses(outlast, words, code, said):
    run(outlast, speak(), "r")
    answer = outlast("watch", *words)
    assert answer.code == code
    assert said in answer.err
