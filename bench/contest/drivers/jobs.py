"""What the drivers with a queue have in common: a job, its stages, and who submits jobs. Standard library only, as common.py."""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from common import Ledger, now

QUEUE = "jobs"
SLICE_SECONDS = 0.1
"""What a blocking stage sleeps at a time: a thread cannot be interrupted in the middle of a sleep."""
GATE_LOOK_SECONDS = 0.02
HELD_SECONDS_MAX = 5.0
"""What a stage may have to wait for its gate; who has a time-out for a whole job adds this to it."""
LOOKS = 0.01
"""A look at what is left comes after this share of the time so far: the end is known to that part."""
LOOK_SECONDS_MIN, LOOK_SECONDS_MAX = 0.003, 0.1


class Job(NamedTuple):
    number: int
    stages: int = 0
    """0: it does nothing at all, and notes nothing."""
    seconds: float = 0.0
    """What each stage takes."""
    ledger: str = ""
    gate: str = ""
    """Its second stage begins to count when there is a file of this name: so long a worker holds it, and no other can have it. The first takes
    no time then: it is there so that something has been done before."""


class Producer(Protocol):
    config: str
    """How jobs are put into the store, in words."""

    async def put(self, jobs: Sequence[Job]) -> None:
        """By the best bulk call there is; all of them are in the store when it returns."""

    async def left(self) -> int:
        """How many jobs the store itself holds that have not ended. Cheap: it is asked often."""


@cache
def _ledger_at(path: str) -> Ledger:
    return Ledger(path)


async def stage(job: Job, number: int) -> None:
    """One that can be cancelled."""
    ledger = _ledger_at(job.ledger)
    ledger.note("begin", job.number, number)
    while _is_held(job, number):
        await asyncio.sleep(GATE_LOOK_SECONDS)
    if number or not job.gate:
        await asyncio.sleep(job.seconds)
    ledger.note("end", job.number, number)


def stage_blocking(job: Job, number: int) -> None:
    """One of a contender whose jobs are plain functions."""
    ledger = _ledger_at(job.ledger)
    ledger.note("begin", job.number, number)
    while _is_held(job, number):
        time.sleep(GATE_LOOK_SECONDS)
    end = now() + (job.seconds if number or not job.gate else 0.0)
    while (left := end - now()) > 0:
        time.sleep(min(left, SLICE_SECONDS))
    ledger.note("end", job.number, number)


def _is_held(job: Job, number: int) -> bool:
    return number == 1 and bool(job.gate) and not Path(job.gate).exists()


def producing(
    opened: Callable[[argparse.Namespace], AbstractAsyncContextManager[Producer]],
) -> dict[str, Callable[[argparse.Namespace], dict[str, Any]]]:
    """The commands of the process that puts jobs into the store: `submit`, `pulse`, `left`."""

    async def within(
        given: argparse.Namespace, act: Callable[[argparse.Namespace, Producer], Any]
    ) -> dict[str, Any]:
        async with opened(given) as producer:
            found: dict[str, Any] = await act(given, producer)
            return found

    verbs = {"submit": _submit, "pulse": _pulse, "left": _left}
    return {name: _run(within, act) for name, act in verbs.items()}


def _run(
    within: Callable[..., Any], act: Callable[..., Any]
) -> Callable[[argparse.Namespace], dict[str, Any]]:
    def verb(given: argparse.Namespace) -> dict[str, Any]:
        found: dict[str, Any] = asyncio.run(within(given, act))
        return found

    return verb


async def _submit(given: argparse.Namespace, producer: Producer) -> dict[str, Any]:
    if given.warm_up:
        await producer.put([Job(-1 - number) for number in range(given.warm_up)])
        await _until_none_left(producer)
    numbers = range(given.first, given.first + given.jobs)
    jobs = [_job(given, number) for number in numbers]
    start = time.perf_counter()
    await producer.put(jobs)
    found = {"seconds": time.perf_counter() - start, "config": producer.config}
    if given.until_done:
        found["looks"] = await _until_none_left(producer)
        found["done_seconds"] = time.perf_counter() - start
    return found


async def _pulse(given: argparse.Namespace, producer: Producer) -> dict[str, Any]:
    """One job at a time, at moments that keep no step with anybody's polling. Answers when each was handed over."""
    pauses = random.Random(given.first)
    await producer.put([Job(-1)])  # connections are open from here on
    await _until_none_left(producer)
    times = []
    for number in range(given.first, given.first + given.jobs):
        await asyncio.sleep(given.pause * pauses.uniform(0.5, 1.5))
        times.append(now())
        await producer.put([Job(number, 1, 0.0, str(Path(given.ledger).resolve()))])
    await _until_none_left(producer)
    return {"times": times}


async def _left(_: argparse.Namespace, producer: Producer) -> dict[str, Any]:
    return {"left": await producer.left()}


async def _until_none_left(producer: Producer) -> int:
    """How often it had to look."""
    start, looks = time.perf_counter(), 1
    while await producer.left():
        looks += 1
        so_far = time.perf_counter() - start
        await asyncio.sleep(min(max(so_far * LOOKS, LOOK_SECONDS_MIN), LOOK_SECONDS_MAX))
    return looks


def _job(given: argparse.Namespace, number: int) -> Job:
    if not given.stages:
        return Job(number)
    gate = str(Path(given.gate).resolve()) if given.gate else ""
    return Job(number, given.stages, given.stage_seconds, str(Path(given.ledger).resolve()), gate)
