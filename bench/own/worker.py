"""Measure the memory of an idle worker, of its watchdog process, and of each run in flight."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

from bench.own.kept import held, written
from bench.own.runs import address, database
from outlast import Outlast

RUNS, STEPS = 500, 20
READY_SECONDS_MAX = 60.0


def worker(folder: Path) -> dict[str, float]:
    return asyncio.run(_measure(folder))


async def _measure(folder: Path) -> dict[str, float]:
    store = address(folder)
    async with (
        Outlast(store) as app,
        worker_of(store, OUTLAST_CONCURRENCY=str(RUNS + 1), OUTLAST_RAMP="0") as pid,
    ):
        await (await app.submit(written(STEPS))).result()
        idle, helpers = _resident(pid), [_resident(child) for child in _children(pid)]
        await app.submit_many([held(STEPS) for _ in range(RUNS)])
        await until(lambda: _entries(database(folder)) == (RUNS + 1) * STEPS)
        full = _resident(pid)
    return {
        "idle_mb": idle / 1e6,
        "helper_mb": sum(helpers) / 1e6,
        "run_kb": (full - idle) / RUNS / 1e3,
    }


@asynccontextmanager
async def worker_of(store: str, **settings: str) -> AsyncIterator[int]:
    """The pid of an `outlast worker` that knows what is in kept.py and has nothing to do yet; it is killed at the end."""
    words = [
        sys.executable,
        "-m",
        "outlast",
        "worker",
        str(Path(__file__).with_name("kept.py")),
        "--store",
        store,
    ]
    process = await asyncio.create_subprocess_exec(
        *words,
        env={**os.environ, **settings},
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(READY_SECONDS_MAX):
            while b'"working"' not in (line := await process.stderr.readline()):
                assert line, "the worker has ended"
        reading = asyncio.create_task(process.stderr.read())
        yield process.pid
    finally:
        process.kill()
        await process.wait()
    await reading


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(READY_SECONDS_MAX):
        while not is_so():
            await asyncio.sleep(0.05)


def _entries(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT count(*) FROM entries").fetchone()[0])


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
