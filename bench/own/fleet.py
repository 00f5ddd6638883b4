"""The fleet: items and runs through a queue, claims with much queued, pick-up, idleness, and the death of a worker."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.own.runs import address
from outlast import Item, Outlast, step, workflow
from outlast.store.commands import Claim, RegisterWorker, Release, Submit, SubmitMany
from outlast.store.protocol import Store
from outlast.store.sqlite.store import SQLiteStore

COUNT = 5_000
SLOTS = 20
AT_ONCE = {"ramp": 0, "concurrency": SLOTS}
"""All slots open from the start: what is measured is not the gentle start."""

now: Callable[[], float] = time.monotonic  # one clock for all processes of a host


@step
async def stamp(x: int) -> float:  # noqa: ARG001
    return now()


@workflow
async def single(x: int) -> float:
    return await stamp(x)


def items(folder: Path) -> dict[str, float]:
    return asyncio.run(items_at(address(folder)))


async def items_at(store: str) -> dict[str, float]:
    """Put in one commit, consumed by 20 slots; until the last ack is durable."""
    async with Outlast(store, **AT_ONCE) as app:
        queue, count, over = app.queue("items"), 0, asyncio.Event()

        async def handle(_: Item) -> None:
            nonlocal count
            count += 1
            if count % COUNT == 0:
                over.set()

        consumer = asyncio.create_task(queue.consume(handle))
        numbers: dict[str, float] = {}
        for state in ("first_", ""):  # the first time the log grows and everything is cold
            over.clear()
            cpu, start = time.process_time(), time.perf_counter()
            await queue.put_many([{"n": number} for number in range(COUNT)])
            put = time.perf_counter()
            await over.wait()
            while (await app.queues())[0].running:
                await asyncio.sleep(0.001)
            end = time.perf_counter()
            numbers[f"{state}items_per_second"] = COUNT / (end - start)
            numbers[f"{state}consumed_per_second"] = COUNT / (end - put)
            numbers[f"{state}cpu_us_per_item"] = (time.process_time() - cpu) / COUNT * 1e6
        consumer.cancel()
        await asyncio.wait([consumer])
    return numbers


def queue_runs(folder: Path) -> dict[str, float]:
    return asyncio.run(queue_runs_at(address(folder)))


async def queue_runs_at(store: str) -> dict[str, float]:
    async with Outlast(store, worker=True, workflows=[single], **AT_ONCE) as app:
        numbers: dict[str, float] = {}
        for state in ("first_", ""):
            cpu, start = time.process_time(), time.perf_counter()
            runs = await app.submit_many([single(number) for number in range(COUNT)])
            await runs[-1].result()
            while app._open.in_flight.executions:
                await asyncio.sleep(0.001)
            numbers[f"{state}runs_per_second"] = COUNT / (time.perf_counter() - start)
            numbers[f"{state}cpu_us_per_run"] = (time.process_time() - cpu) / COUNT * 1e6
        assert (await runs[0].info()).status == "done"
    return numbers


def claims(folder: Path) -> dict[str, float]:
    """Measure the claim of one run, with this many queued. Each is released, so the number stays."""
    numbers: dict[str, float] = {}
    for queued in (1_000, 1_000_000):
        store = SQLiteStore(folder / f"claims-{queued}.db")
        store.open()
        enlist(store)
        fill(store, 0, queued)
        numbers[f"claim_ms_{queued}"] = claim_ms(store)
        store.close()
    return numbers


def enlist(store: Store) -> None:
    store.acquire_liveness("w")
    store.commit([RegisterWorker("w", "host", os.getpid(), 3600.0)])


def fill(store: Store, first: int, end: int) -> None:
    """Queue the runs with these numbers."""
    for number in range(first, end, 10_000):
        ids = range(number, min(number + 10_000, end))
        store.commit(
            [SubmitMany(tuple(Submit(f"r{i}", f"flow{i % 10}", "{}", "t", "s") for i in ids))]
        )


def claim_ms(store: Store) -> float:
    flows, laps = tuple(f"flow{i}" for i in range(10)), []
    for _ in range(300):
        start = time.perf_counter()
        (rows,) = store.commit([Claim("w", uuid4().hex, (), ("default",), flows, limit=1)])
        laps.append(time.perf_counter() - start)
        store.commit([Release(rows[0].pk, rows[0].fence, "again", interrupted=False)])
    return statistics.median(laps[50:]) * 1e3


def pickup(folder: Path) -> dict[str, float]:
    """From submit, in another process than the worker's, to the first step; and what an idle worker takes of a core."""
    return asyncio.run(_with_worker(folder, _pickup))


async def _pickup(app: Outlast, worker: int) -> dict[str, float]:
    laps = []
    for _ in range(40):
        await asyncio.sleep(0.05)
        start = now()
        laps.append((await (await app.submit(single(1))).result()) - start)
    before = _cpu_seconds(worker)
    await asyncio.sleep(5)
    laps.sort()
    return {
        "pickup_p50_ms": statistics.median(laps) * 1e3,
        "pickup_p95_ms": laps[int(len(laps) * 0.95)] * 1e3,
        "idle_percent": (_cpu_seconds(worker) - before) / 5 * 100,
    }


async def _with_worker(
    folder: Path, measure: Callable[[Outlast, int], Awaitable[dict[str, float]]]
) -> dict[str, float]:
    async with Outlast(address(folder)) as app:
        worker = await _spawn(folder)
        try:
            return await measure(app, worker.pid)
        finally:
            worker.kill()
            await worker.wait()


async def _spawn(folder: Path) -> asyncio.subprocess.Process:
    """A worker, ready."""
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.own.fleet", str(folder), stdout=asyncio.subprocess.PIPE
    )
    assert worker.stdout is not None
    await worker.stdout.readline()
    return worker


async def _work(folder: Path) -> None:
    settings: dict[str, Any] = {**AT_ONCE, "workflows": [single]}
    async with Outlast(address(folder), worker=True, **settings):
        print("ready", flush=True)
        await asyncio.Event().wait()


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    asyncio.run(_work(Path(sys.argv[1])))
