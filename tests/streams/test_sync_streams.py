"""`resume_stream` in sync steps: the same promises, with `with` and `for`."""

import asyncio
import itertools
import threading
import time

import pytest
from stream_model import WORD, Screen, check_one_answer

from outlast import Evicted, Outlast, step, workflow
from outlast import sync as blocking
from outlast.errors import CannotResume, NotInRun, OutlastError
from outlast.sync import resume_stream
from support.waiting import wait_until_async

WAYS = ["restart", "prefill", "cursor"]
screen = Screen()
voices = itertools.count()
asked: list = []
closed: list = []
breaks_at: list = []


@pytest.fixture(autouse=True)
def _fresh():
    global screen, voices
    screen, voices = Screen(), itertools.count()
    asked.clear()
    closed.clear()
    breaks_at.clear()


def source(by: str, words: int = 10, pause: float = 0.0):
    def speak(start=None):
        asked.append(start)
        if by == "prefill" and start:
            found = WORD.findall(start)
            voice, first = found[0][0], len(found)
        elif by == "cursor" and start is not None:
            voice, first = start[0], start[1] + 1
        else:
            voice, first = f"q{next(voices)}", 0
        stop = breaks_at.pop(0) if breaks_at else None
        try:
            for number in range(first, words):
                if number == stop:
                    raise ConnectionError
                time.sleep(pause)
                word = f"{voice}-{number}."
                yield (word, [voice, number]) if by == "cursor" else word
        finally:
            closed.append(threading.current_thread())

    return speak


@step(retries=5, backoff=0.001)
def answer(by: str, words: int = 10, pause: float = 0.0) -> str:
    with resume_stream(source(by, words, pause), by=by) as stream:
        screen.begin(stream)
        for chunk in stream:
            screen.append(chunk)
        return stream.text


@workflow
async def ask(by: str) -> str:
    return await answer.aio(by)


@workflow
def ask_blocking(by: str) -> str:
    return answer(by)


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("call", [ask, ask_blocking])
def test_stream_resumes_after_its_connection_breaks(world, by, call):
    breaks_at[:] = [3, 7]
    check_one_answer(world.run(call(by)), 10)
    screen.check(10)
    assert [len(WORD.findall(begun[0])) for begun in screen.begun] == (
        [0, 0, 0] if by == "restart" else [0, 3, 7]
    )
    assert [begun[1] for begun in screen.begun] == [False, by == "restart", by == "restart"]
    assert len(closed) == 3


@pytest.mark.parametrize("by", WAYS)
def test_answer_that_is_whole_is_not_asked_for_again(world, by):
    attempts = itertools.count()

    @step(retries=1, backoff=0)
    def flaky() -> str:
        with resume_stream(source(by), by=by) as stream:
            text = stream.read()
            assert stream.complete
        if next(attempts) == 0:
            raise ValueError
        return text

    @workflow
    async def flow() -> str:
        return await flaky.aio()

    check_one_answer(world.run(flow()), 10)
    assert len(asked) == 1


@pytest.mark.parametrize("by", WAYS)
def test_one_that_is_no_good_is_discarded(world, by):
    @step(retries=1, backoff=0)
    def picky() -> str:
        with resume_stream(source(by), by=by) as stream:
            screen.begin(stream)
            text = stream.read()
        if text.startswith("q0"):
            stream.discard()
            raise ValueError
        return text

    @workflow
    async def flow() -> str:
        return await picky.aio()

    assert world.run(flow()).startswith("q1-0.")
    assert screen.begun == [("", False, False), ("", True, False)]


def test_provider_that_refuses_to_go_on(world):
    speak = source("prefill")

    def refusing(so_far: str):
        if so_far:
            raise CannotResume
        return speak(so_far)

    @step(retries=1, backoff=0)
    def refused() -> str:
        with resume_stream(refusing, by="prefill") as stream:
            screen.begin(stream)
            for chunk in stream:
                screen.append(chunk)
            return stream.text

    @workflow
    async def flow() -> str:
        return await refused.aio()

    breaks_at[:] = [4]
    assert world.run(flow()).startswith("q1-0.")
    screen.check(10)
    assert screen.begun == [("", False, False), ("", True, False)]


@pytest.mark.parametrize("by", WAYS)
def test_drain_stops_it_at_its_next_chunk(address, by):
    """It closes its source in its own thread, and the next life goes on from the last chunk."""

    @step
    def long() -> str:
        with resume_stream(source(by, 100_000, 0.01), by=by) as stream:
            screen.begin(stream)
            try:
                for chunk in stream:
                    screen.append(chunk)
                    assert len(screen.begun) == 1 or len(screen.shown) < 10_000
                    if len(screen.begun) == 2:
                        return stream.text
            except Evicted as stopped:
                screen.begun.append(stopped.reason)
                raise
            return stream.text

    @workflow
    async def flow() -> str:
        return await long.aio()

    # The step is asked to stop at once, and has 60 s to do so.
    reserves = {"grace": 121.0, "checkpoint_reserve": 60.0, "exit_reserve": 60.0}
    settings = {"signals": 0, "progress_interval": 1e6, **reserves}

    async def main():
        async with Outlast(address, **settings) as app:
            await app.start(flow(), id="run")
            await wait_until_async(lambda: len(screen.shown) >= 20)
            report = await app.drain("test")
            stored = app._open.store.progress(app._open.store.run("run").pk)
            return report, stored

    report, stored = asyncio.run(main())
    assert (report.checkpointed, report.left, len(closed)) == (1, [], 1)
    assert screen.begun[1].startswith("drain: test")
    assert closed[0] is not threading.main_thread()
    (text,) = stored.values()
    last = WORD.findall(screen.shown[-1])[-1]
    # The chunk with which it was told is saved and never handed on.
    assert (f"{last[0]}-{int(last[1]) + 1}." in text) == (by != "restart")


def test_sync_stream_is_refused_outside_a_step_and_outside_its_block(world):
    with pytest.raises(NotInRun):
        resume_stream(source("restart"))

    @step
    def wrong() -> str:
        stream = resume_stream(source("restart"))
        with pytest.raises(OutlastError, match="not open"):
            next(stream)
        with stream:
            next(stream)
        with pytest.raises(OutlastError, match="closed"):
            next(stream)
        return stream.text

    @workflow
    async def flow() -> str:
        return await wrong.aio()

    assert world.run(flow()) == "q0-0."
    assert len(closed) == 1


def test_stream_that_failed_does_not_pass_for_one_that_ended(world):
    @step(retries=1, backoff=0)
    def stubborn() -> str:
        with resume_stream(source("prefill"), by="prefill") as stream:
            try:
                return stream.read()
            except ConnectionError:
                return stream.read()

    @workflow
    async def flow() -> str:
        return await stubborn.aio()

    breaks_at[:] = [3]
    check_one_answer(world.run(flow()), 10)
    assert len(asked) == 2


def test_sync_program_reads_the_whole_stream():
    @blocking.step
    def short() -> str:
        with blocking.resume_stream(source("restart")) as stream:
            return stream.read()

    @blocking.workflow
    def flow() -> str:
        return short()

    with blocking.Outlast("memory:", signals=0) as app:
        check_one_answer(app.start(flow()).result(), 10)
