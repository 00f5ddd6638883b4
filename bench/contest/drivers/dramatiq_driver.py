"""Dramatiq on Redis: `task`, where a job is one message, or `pipeline`, its documented way for work of several stages.

It is also the module that the `dramatiq` command imports; what it must know then is in the variable `BENCH_GIVEN`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import dramatiq
from common import WORKER, drive, ready
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import Middleware, default_middleware
from dramatiq.middleware.prometheus import Prometheus
from jobs import QUEUE, Job, producing, stage_blocking

GIVEN = "BENCH_GIVEN"
MARGIN_SECONDS = 2.0
BACKOFF_MS = 2000
"""Until an actor that was told to stop is tried again: by then the worker that was told to go takes none. The default is 15 s."""
SHORT = (2, 10)
"""Processes and threads for jobs that do nothing. Tried: 1 and 20, 2 and 10, 2 and 8 (the default on two cores)."""
CONFIG = "`dramatiq` with {processes} processes of {threads} threads; put one by one (there is no bulk call)"


class _Ready(Middleware):
    def after_worker_boot(self, broker, worker) -> None:  # noqa: ARG002 - its names for them
        ready()


def _declared(store: str, silence: float, *, told_to_stop: bool):
    """The broker and its actors."""
    middleware = [made() for made in default_middleware if made is not Prometheus]
    broker = RedisBroker(url=store, middleware=[*middleware, _Ready()])
    if silence:  # every look does the maintenance that gives a dead worker's messages back
        broker.heartbeat_timeout, broker.maintenance_chance = int(silence * 1000), 1_000_000
    dramatiq.set_broker(broker)
    options = {"queue_name": QUEUE, "notify_shutdown": told_to_stop, "min_backoff": BACKOFF_MS}

    @dramatiq.actor(actor_name="whole", **options)
    def whole(*job: object) -> None:
        found = Job(*job)  # type: ignore[arg-type]
        for number in range(found.stages):
            stage_blocking(found, number)

    @dramatiq.actor(actor_name="staged", **options)
    def staged(job: list[object], number: int) -> None:
        stage_blocking(Job(*job), number)  # type: ignore[arg-type]

    return broker, whole, staged


def work(given: argparse.Namespace) -> None:
    """Becomes the `dramatiq` command."""
    os.environ[WORKER] = given.name
    told = given.longest > given.grace
    os.environ[GIVEN] = json.dumps(
        {"store": given.store, "silence": given.silence, "told_to_stop": told}
    )
    processes, threads = (1, given.slots) if given.longest else SHORT
    wait_ms = int((given.grace - MARGIN_SECONDS) * 1000)
    words = ["--processes", processes, "--threads", threads, "--worker-shutdown-timeout", wait_ms]
    module = Path(__file__).stem
    os.execv(sys.executable, [sys.executable, "-m", "dramatiq", module, *map(str, words)])


class _Producer:
    def __init__(self, given: argparse.Namespace) -> None:
        self.config = CONFIG.format(processes=SHORT[0], threads=SHORT[1])
        self._kind = given.kind
        self._broker, self._whole, self._staged = _declared(
            given.store, given.silence, told_to_stop=False
        )

    async def put(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            if self._kind == "pipeline" and job.stages:
                stages = [
                    self._staged.message_with_options(args=(job, n), pipe_ignore=True)
                    for n in range(job.stages)
                ]
                dramatiq.pipeline(stages).run()
            else:
                self._whole.send(*job)

    async def left(self) -> int:
        queue = f"{self._broker.namespace}:{QUEUE}"
        client = self._broker.client
        found: int = client.hlen(f"{queue}.msgs") + client.hlen(f"{queue}.DQ.msgs")
        return found


@asynccontextmanager
async def producer(given: argparse.Namespace) -> AsyncIterator[_Producer]:
    made = _Producer(given)
    yield made
    made._broker.close()


if __name__ == "__main__":
    drive({"work": work, **producing(producer)})
elif GIVEN in os.environ:
    _declared(**json.loads(os.environ[GIVEN]))
