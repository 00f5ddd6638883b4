"""Outlast's jobs, and what `outlast worker` is given: runs whose stages are steps (`runs`), or plain items (`items`)."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from common import WORKER, ready
from jobs import QUEUE, Job, stage, stage_blocking

from outlast import Item, Outlast, step, workflow

CONFIG = "`outlast worker`, {kind}, {slots} slots{ramp}; put by `{put}`, one durable commit"


@step
async def nothing() -> None: ...


@step
async def staged(job: list[object], number: int) -> None:
    await stage(Job(*job), number)  # type: ignore[arg-type]


@step
def staged_in_thread(job: list[object], number: int) -> None:
    stage_blocking(Job(*job), number)  # type: ignore[arg-type]


@workflow
def run_in_threads(job: list[object]) -> None:
    for number in range(Job(*job).stages):  # type: ignore[arg-type]
        staged_in_thread(job, number)


@workflow
async def run(job: list[object]) -> None:
    stages = Job(*job).stages  # type: ignore[arg-type]
    if not stages:
        await nothing()
    for number in range(stages):
        await staged(job, number)


async def item(given: Item) -> None:
    job = Job(*given.payload)
    for number in range(job.stages):
        await stage(job, number)


@asynccontextmanager
async def _working(_: Outlast) -> AsyncIterator[None]:
    ready()
    yield


@asynccontextmanager
async def _consuming(app: Outlast) -> AsyncIterator[None]:
    consumer = asyncio.create_task(app.queue(QUEUE).consume(item))
    ready()
    yield
    consumer.cancel()
    await asyncio.wait([consumer])


runs = Outlast(lifespan=_working)
items = Outlast(lifespan=_consuming)


def work(given: argparse.Namespace) -> None:
    """Becomes `outlast worker`. Where speed is measured all slots are open from the start; where death is, everything is as by default."""
    os.environ[WORKER] = given.name
    os.environ["OUTLAST_GRACE"] = str(given.grace)
    os.environ["OUTLAST_CONCURRENCY"] = str(given.slots)
    if given.silence:
        os.environ["OUTLAST_LEASE"] = str(given.silence)
    if not given.longest:
        os.environ["OUTLAST_RAMP"] = "0"
    words = [
        "-m",
        "outlast",
        "worker",
        f"{Path(__file__)}:{'items' if given.kind == 'items' else 'runs'}",
        "--store",
        given.store,
    ]
    os.execv(sys.executable, [sys.executable, *words, "--queue", QUEUE])


class _Producer:
    def __init__(self, app: Outlast, kind: str, slots: int) -> None:
        self._app, self._runs = app, kind != "items"
        self._run = run_in_threads if kind == "threads" else run
        words = ("runs of one step", "submit_many") if self._runs else ("plain items", "put_many")
        self.config = CONFIG.format(kind=words[0], slots=slots, ramp=" (ramp=0)", put=words[1])

    async def put(self, jobs: Sequence[Job]) -> None:
        if self._runs:
            await self._app.submit_many([self._run(list(job)) for job in jobs], queue=QUEUE)
        else:
            await self._app.queue(QUEUE).put_many([list(job) for job in jobs])

    async def left(self) -> int:
        if queued := await self._app.queue(QUEUE).size():
            return queued
        found = [queue for queue in await self._app.queues() if queue.name == QUEUE]
        return sum(queue.queued + queue.running + queue.waiting + queue.parked for queue in found)


@asynccontextmanager
async def producer(given: argparse.Namespace) -> AsyncIterator[_Producer]:
    async with Outlast(given.store) as app:
        yield _Producer(app, given.kind, given.slots)
