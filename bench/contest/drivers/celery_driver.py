"""Celery on Redis, with late acks: `task`, where a job is one task, or `chain`, its documented way for work of several stages."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

from common import WORKER, drive, ready
from jobs import HELD_SECONDS_MAX, QUEUE, Job, producing, stage_blocking

MARGIN_SECONDS = 5.0
"""What is left of the grace for giving tasks back."""
SHORT = ("--pool", "threads")
"""For jobs that do nothing. Tried: prefork with 2, 4 and 20 processes, threads with 20, solo."""
LONG = ("--pool", "prefork")
QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR")
CONFIG = (
    "`celery worker`, pool of {slots} threads, late acks, no gossip, mingle or heartbeat, results ignored; put one by one with one producer, "
    "batched by kombu (there is no bulk call)"
)


def _made(store: str, given: argparse.Namespace):
    """The app and its tasks. Imported here: REMAP_SIGTERM is read when billiard is."""
    from celery import Celery

    address = urlsplit(store)
    app = Celery(
        "bench",
        broker=f"redis+socket://{address.path}?virtual_host={parse_qs(address.query)['db'][0]}",
    )
    app.conf.update(
        task_default_queue=QUEUE,
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_disable_rate_limits=True,
        broker_connection_retry_on_startup=True,
    )
    if given.longest:
        app.conf.worker_prefetch_multiplier = 1
    if (
        given.silence
    ):  # a visibility that is shorter than a task has it done twice: nothing renews it
        app.conf.broker_transport_options = {
            "visibility_timeout": given.longest + given.silence + HELD_SECONDS_MAX,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
        }
    if given.longest > given.grace:
        app.conf.worker_soft_shutdown_timeout = given.grace - MARGIN_SECONDS

    @app.task(name="whole")
    def whole(*job: object) -> None:
        found = Job(*job)  # type: ignore[arg-type]
        for number in range(found.stages):
            stage_blocking(found, number)

    @app.task(name="staged")
    def staged(job: list[object], number: int) -> None:
        stage_blocking(Job(*job), number)  # type: ignore[arg-type]

    return app, whole, staged


def work(given: argparse.Namespace) -> None:
    os.environ[WORKER] = given.name
    if given.longest > given.grace:
        os.environ["REMAP_SIGTERM"] = "SIGQUIT"
    from celery.signals import worker_ready

    app, *_ = _made(given.store, given)
    worker_ready.connect(lambda **_: ready(), weak=False)
    pool = LONG if given.longest else SHORT
    app.worker_main(
        ["worker", *pool, "--concurrency", str(given.slots), "--hostname", given.name, *QUIET]
    )


class _Producer:
    def __init__(self, given: argparse.Namespace) -> None:
        self.config = CONFIG.format(slots=given.slots)
        self._kind = given.kind
        self._app, self._whole, self._staged = _made(given.store, given)
        self._connection = self._app.connection_for_write()
        self._producer = self._app.amqp.Producer(self._connection)

    async def put(self, jobs: Sequence[Job]) -> None:
        with self._producer.batch():
            for job in jobs:
                self._signature(job).apply_async(producer=self._producer)

    def _signature(self, job: Job):
        from celery import chain

        if self._kind == "chain" and job.stages:
            return chain(*[self._staged.si(list(job), number) for number in range(job.stages)])
        return self._whole.si(*job)

    async def left(self) -> int:
        channel = self._producer.channel
        waiting = sum(
            channel.client.llen(channel._q_for_pri(QUEUE, level))
            for level in channel.priority_steps
        )
        found: int = waiting + channel.client.hlen(channel.unacked_key)
        return found


@asynccontextmanager
async def producer(given: argparse.Namespace) -> AsyncIterator[_Producer]:
    made = _Producer(given)
    yield made
    made._connection.release()


if __name__ == "__main__":
    drive({"work": work, **producing(producer)})
