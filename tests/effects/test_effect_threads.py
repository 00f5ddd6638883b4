"""A hung thread of a step does not keep an effect open. In real time: a virtual clock stands still while a thread works."""

import asyncio
import threading

import pytest
from breaking_step import broken
from outside import outside

from outlast import (
    Happened,
    Outlast,
    RunParked,
    StepTimeout,
    effect,
    step,
    workflow,
)
from support.waiting import WAIT_SECONDS, wait_until_async


@pytest.fixture(autouse=True)
def _fresh():
    outside.clear()
    broken.clear()


# -- threads that hang: in real time, as a virtual clock stands still while one is at work


@pytest.fixture
def gate():
    """What a thread that hangs waits for."""
    gate = threading.Event()
    yield gate
    gate.set()


def hanging(gate):
    @step(timeout=0.2)
    def hang() -> None:
        gate.wait(WAIT_SECONDS)

    return hang


def in_real_time(call, after=None):
    async def main():
        async with Outlast("memory:", effect_margin=0.1, close_timeout=0.2) as app:
            run = await app.start(call, id="run")
            if after is not None:
                await after(app)
            return await run.result(timeout=WAIT_SECONDS)

    return asyncio.run(main())


@effect(timeout=0.3, backoff=0.1, undo=None)
async def verified() -> str:
    outside.attempts["verified"] += 1
    raise ConnectionError("cut")


@verified.verify
async def was() -> Happened[str] | None:
    return Happened("it did")


@effect(timeout=0.3, backoff=0.1, idempotent=True, undo=None)
async def repeated() -> str:
    outside.attempts["repeated"] += 1
    if outside.attempts["repeated"] == 1:
        raise ConnectionError("cut")
    return "it does"


@effect(timeout=0.3, undo=None)
async def unknown() -> str:
    outside.attempts["unknown"] += 1
    raise ConnectionError("cut")


@pytest.mark.parametrize(("which", "says"), [(verified, "it did"), (repeated, "it does")])
def test_hung_step_thread_does_not_block_resolving(gate, which, says):
    hang = hanging(gate)

    @workflow
    async def one() -> str:
        with pytest.raises(StepTimeout):
            await hang.aio()
        return await which()

    assert in_real_time(one()) == says


def test_run_is_parked_when_its_last_thread_has_ended(gate):
    """Release it only then: the next execution must not meet that thread."""
    hang = hanging(gate)

    @workflow
    async def one() -> str:
        with pytest.raises(StepTimeout):
            await hang.aio()
        return await unknown()

    async def release(app):
        execution = app._open.in_flight.executions["run"]
        await wait_until_async(lambda: execution.journal.effect_log.unknown)
        assert (await app.get(one, "run").info()).status == "running"
        gate.set()

    with pytest.raises(RunParked, match="unknown#1"):
        in_real_time(one(), release)


def test_failed_run_ends_despite_a_hung_step_thread(gate):
    hang = hanging(gate)

    @effect(timeout=1, backoff=0.1)
    async def send() -> str:
        raise ConnectionError("cut")

    @send.verify
    async def sent() -> Happened[str] | None:
        return Happened("it did")

    @send.compensate
    async def unsend(it: str | None) -> None:
        outside.log.append(f"-{it}")

    @workflow
    async def one() -> None:
        await asyncio.gather(send(), hang.aio())

    with pytest.raises(StepTimeout):
        in_real_time(one())
    assert outside.log == ["-it did"]
