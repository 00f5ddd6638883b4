"""What Outlast costs a PostgreSQL: log and CPU a step, in one process and in several, and what a worker with nothing to do asks of it.

`python -m bench.own.server ADDRESS RUNS STEPS` is one of several processes: it says that it is ready, waits for a line, and executes them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.contest.drivers.common import tree_cpu_seconds
from bench.own.kept import written
from bench.own.worker import worker_of
from outlast import Outlast
from outlast.testing.servers import Server, postgres_server

IDLE_SECONDS = 20.0
SETTLE_SECONDS = 5.0
"""Until a new worker asks no more than it will ask for ever."""
PROCESSES = 8
SHAPES = {"hundred": (1, 100, 50), "lone": (1, 1, 2_000), "eight_of_five": (PROCESSES, 5, 100), "eight_lone": (PROCESSES, 1, 250)}  # fmt: skip
"""Processes, runs in each, steps of each run."""


def server(folder: Path) -> dict[str, float]:
    with postgres_server(folder, durable=True) as postgres:
        return asyncio.run(_measure(postgres))


async def _measure(postgres: Server) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for name, (processes, runs, steps) in SHAPES.items():
        numbers |= {
            f"{name}_{what}": cost
            for what, cost in (await _cost(postgres, processes, runs, steps)).items()
        }
    async with worker_of(postgres.url):
        await asyncio.sleep(SETTLE_SECONDS)
        before = _counted(postgres.url)
        await asyncio.sleep(IDLE_SECONDS)
        after = _counted(postgres.url)
    numbers["idle_transactions_per_second"] = (
        after["transactions"] - before["transactions"]
    ) / IDLE_SECONDS
    numbers["idle_writes_per_second"] = (after["writes"] - before["writes"]) / IDLE_SECONDS
    return numbers


async def _cost(postgres: Server, processes: int, runs: int, steps: int) -> dict[str, float]:
    """Of a step, with what its run costs besides; after a warm-up, so that no page is written to the log whole for the first time."""
    words = [sys.executable, "-m", "bench.own.server", postgres.url, str(runs), str(steps)]
    pipe = asyncio.subprocess.PIPE
    started = [
        await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
        for _ in range(processes)
    ]
    try:
        await _all(started, _next_line)
        log, cpu = _counted(postgres.url)["log"], tree_cpu_seconds(postgres.pid)
        for process in started:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
        await _all(started, _next_line)
        log, cpu = _counted(postgres.url)["log"] - log, tree_cpu_seconds(postgres.pid) - cpu
    finally:
        for process in started:
            process.kill()
        await _all(started, lambda process: process.wait())
    total = processes * runs * steps
    return {"log_bytes": log / total, "server_cpu_us": cpu / total * 1e6}


async def _all(
    processes: list[asyncio.subprocess.Process],
    ask: Callable[[asyncio.subprocess.Process], Awaitable[Any]],
) -> None:
    await asyncio.gather(*[ask(process) for process in processes])


async def _next_line(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(120):
        assert await process.stdout.readline(), "a process has ended"


def _counted(url: str) -> dict[str, float]:
    """Bytes of log since ever; transactions; and those that took a number, which only one that writes does."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        db.execute("SELECT pg_stat_clear_snapshot()")
        row = db.execute(
            "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn, sum(xact_commit + xact_rollback), pg_snapshot_xmax(pg_current_snapshot())::text::bigint FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return dict(zip(("log", "transactions", "writes"), map(float, row), strict=True))


async def _execute(url: str, runs: int, steps: int) -> None:
    async with Outlast(url) as app:
        for word in ("ready", "done"):
            ids = [uuid4().hex for _ in range(runs)]
            started = await asyncio.gather(*[app.start(written(steps), id=id) for id in ids])
            await asyncio.gather(*[run.result() for run in started])
            print(word, flush=True)
            if word == "ready":
                await asyncio.to_thread(sys.stdin.readline)
        await asyncio.to_thread(sys.stdin.readline)  # until it is killed: leaving is not measured


if __name__ == "__main__":
    asyncio.run(_execute(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
