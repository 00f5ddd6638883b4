"""`python -m bench.drain`: how soon after SIGTERM a worker has told the store that it drains (layer 1), and how soon it is gone.

Seen from outside: the worker's row in the SQLite file, read every millisecond, so that is the resolution. Five times each:

    idle      a worker with nothing in hand
    thousand  1,000 runs in hand, each in a step of two seconds
    blocked   a step whose coroutine blocks the event loop for five seconds
    writers   three other processes with a thousand submissions on their way each, without a pause, and twenty runs in hand
    bulk      the same with `submit_many`: a thousand runs in one commit, which cannot be divided

The last two depend on how long another transaction takes, and on how many of them are first.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.folder import measuring_folder
from outlast import Outlast, step, workflow

REPOSITORY = Path(__file__).parents[1]
RUNS = 1_000
BUSY_WRITERS = 3
BATCH = 1_000
WAIT_SECONDS = 60.0


# -- what the worker executes


@step
async def work(seconds: float) -> None:
    await asyncio.sleep(seconds)


@step
async def block(seconds: float) -> None:
    time.sleep(seconds)


@workflow
async def working(seconds: float) -> None:
    await work(seconds)


@workflow
async def blocking(seconds: float) -> None:
    await work(0.0)
    await block(seconds)


async def write_without_a_pause(address: str, *, bulk: bool) -> None:
    elsewhere = {"queue": "elsewhere", "delay": 3600.0}
    async with Outlast(address, signals=0) as app:

        async def one_by_one() -> None:
            while True:
                await app.submit(working(0.0), **elsewhere)

        async def in_bulk() -> None:
            while True:
                await app.submit_many([working(0.0)] * BATCH, **elsewhere)

        tasks = [
            asyncio.create_task(in_bulk() if bulk else one_by_one())
            for _ in range(1 if bulk else BATCH)
        ]
        print("writing", flush=True)
        await asyncio.gather(*tasks)


# -- measuring


class Measured(NamedTuple):
    marked: float
    """Seconds from SIGTERM until the store says that it drains."""
    gone: float
    """Seconds from SIGTERM until the process is gone."""


class Place:
    """A store in a folder of its own, and the processes on it."""

    def __init__(self, folder: Path, processes: ExitStack) -> None:
        self.db, self._processes = folder / "outlast.db", processes
        self.address = f"sqlite:///{self.db}"

    def start(self, *words: str, **settings: object) -> subprocess.Popen[bytes]:
        env = {
            **os.environ,
            **{f"OUTLAST_{name.upper()}": str(value) for name, value in settings.items()},
        }
        out = self._processes.enter_context(
            self.db.with_name(f"out-{time.monotonic_ns()}").open("wb+")
        )
        process = subprocess.Popen(
            [sys.executable, *words], cwd=REPOSITORY, env=env, stdout=out, stderr=out
        )
        self._processes.callback(_end, process)
        until(lambda: os.fstat(out.fileno()).st_size)
        return process

    def worker(self, concurrency: int = 20) -> subprocess.Popen[bytes]:
        words = (
            "-m",
            "outlast",
            "worker",
            __file__,
            "--store",
            self.address,
            "--concurrency",
            str(concurrency),
        )
        worker = self.start(*words, ramp=0, grace=30)
        until(lambda: self.ask("SELECT 1 FROM workers WHERE pid = ?", worker.pid))
        return worker

    def submit(self, calls: list[Any]) -> None:
        async def main() -> None:
            async with Outlast(self.address, signals=0) as app:
                await app.submit_many(calls)

        asyncio.run(main())
        until(
            lambda: (
                self.ask("SELECT count(*) FROM runs WHERE status = 'running'") == [(len(calls),)]
            )
        )

    def ask(self, sql: str, *values: object) -> list[Any]:
        connection = sqlite3.connect(f"file:{self.db}?mode=ro", uri=True, timeout=10)
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    def end(self, worker: subprocess.Popen[bytes]) -> Measured:
        connection = sqlite3.connect(f"file:{self.db}?mode=ro", uri=True, timeout=10)
        try:
            at = time.perf_counter()
            worker.send_signal(signal.SIGTERM)
            # It may have left before we look again: its drain stays on record.
            while not connection.execute(
                "SELECT 1 FROM drains WHERE pid = ?", (worker.pid,)
            ).fetchone():
                if time.perf_counter() - at > WAIT_SECONDS:
                    raise SystemExit("bench: the worker was never marked as draining.")
                time.sleep(0.001)
            marked = time.perf_counter() - at
        finally:
            connection.close()
        code = worker.wait(WAIT_SECONDS)
        if code:
            raise SystemExit(f"bench: the worker ended with {code}.")
        return Measured(marked, time.perf_counter() - at)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("bench: what was to be measured did not come about.")
        time.sleep(0.005)


def idle(place: Place) -> Measured:
    worker = place.worker()
    time.sleep(0.5)
    return place.end(worker)


def thousand(place: Place) -> Measured:
    worker = place.worker(RUNS)
    place.submit([working(2.0)] * RUNS)
    time.sleep(0.3)  # all of them are in their step
    return place.end(worker)


def blocked(place: Place) -> Measured:
    worker = place.worker()
    place.submit([blocking(5.0)])
    time.sleep(0.5)
    return place.end(worker)


def writers(place: Place, *, bulk: bool = False) -> Measured:
    worker = place.worker()
    place.submit([working(4.0)] * 20)
    for _ in range(BUSY_WRITERS):
        place.start("-m", "bench.drain", "--write", place.address, *(["--bulk"] if bulk else []))
    time.sleep(0.5)
    return place.end(worker)


CASES: dict[str, Callable[[Place], Measured]] = {
    "idle": idle,
    "thousand": thousand,
    "blocked": blocked,
    "writers": writers,
    "bulk": partial(writers, bulk=True),
}


@contextmanager
def _place(folder: Path) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(dir=folder) as own, ExitStack() as processes:
        yield Place(Path(own), processes)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.drain", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--dir", type=Path, help="a folder on the disk to measure")
    parser.add_argument("--write", metavar="STORE", help=argparse.SUPPRESS)
    parser.add_argument("--bulk", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        asyncio.run(write_without_a_pause(given.write, bulk=given.bulk))
    print("case      marked as draining, ms (median, most)   gone, s (median, most)")
    with measuring_folder(given.dir) as folder:
        for name in given.cases:
            found = []
            for _ in range(given.rounds):
                with _place(folder) as place:
                    found.append(CASES[name](place))
            marked, gone = ([getattr(one, field) for one in found] for field in Measured._fields)
            print(
                f"{name:<10}{statistics.median(marked) * 1000:>22.1f} {max(marked) * 1000:>8.1f}"
                f"{statistics.median(gone):>24.2f} {max(gone):>6.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
