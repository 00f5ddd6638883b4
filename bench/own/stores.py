"""The other stores, each beside what it is built on, in the same process: a raw server with durable commits, or appended lines.

The yardstick is one row, key or line a commit, on one connection, each durable before the next. It is measured before and after, so
that a machine which slows down in between does not flatter anybody.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import mean

from bench.own.fleet import claim_ms, enlist, fill, items_at, queue_runs_at
from bench.own.runs import execute, timed
from outlast import Outlast
from outlast.store.address import store_at
from outlast.testing.servers import postgres_server, redis_server

COMMITS = 2_000
VALUE = '{"x":12345}'
GROWTH = 1_000_000


def postgres(folder: Path) -> dict[str, float]:
    with postgres_server(folder, durable=True) as server:
        return _measure(server.url, lambda: _postgres_commits(server.url))


def redis(folder: Path) -> dict[str, float]:
    """Every command is on the disk before it is answered: `appendfsync always`."""
    with redis_server(folder, "--appendonly", "yes", "--appendfsync", "always") as server:
        return _measure(server.url, lambda: _redis_commits(server.url))


def redis_everysec(folder: Path) -> dict[str, float]:
    with redis_server(folder, "--appendonly", "yes", "--appendfsync", "everysec") as server:
        return _measure(server.url, lambda: _redis_commits(server.url))


def file(folder: Path) -> dict[str, float]:
    return _measure(f"file://{folder}/store", lambda: _appended_lines(folder / "lines"))


def postgres_growth(folder: Path) -> dict[str, float]:
    with postgres_server(folder, durable=True) as server:
        return asyncio.run(_growth(server.url))


def redis_growth(folder: Path) -> dict[str, float]:
    with redis_server(folder, "--appendonly", "yes", "--appendfsync", "always") as server:
        return asyncio.run(_growth(server.url))


def _measure(store: str, raw: Callable[[], float]) -> dict[str, float]:
    before = raw()
    numbers = asyncio.run(_runs(store))
    numbers |= asyncio.run(items_at(store)) | asyncio.run(queue_runs_at(store))
    return {"commits_per_second": mean((before, raw())), **numbers}


async def _runs(store: str) -> dict[str, float]:
    numbers: dict[str, float] = {}
    async with Outlast(store) as app:
        await execute(app, "warm-up", runs=20, steps=20)
        for name, runs, steps in (
            ("lone", 1, 1_000),
            ("ten", 10, 100),
            ("hundred", 100, 20),
            ("thousand", 1_000, 20),
        ):
            measured = await timed(app, name, runs=runs, steps=steps)
            numbers |= {f"{name}_{what}": number for what, number in measured.items()}
    return numbers


async def _growth(store: str) -> dict[str, float]:
    """What a step and a claim cost in a small store, and in the same one with a million runs queued."""
    numbers: dict[str, float] = {}
    with closing(store_at(store)) as opened:
        opened.open()
        enlist(opened)
        for first, queued in ((0, 1_000), (1_000, GROWTH)):
            fill(opened, first, queued)
            numbers[f"claim_ms_{queued}"] = claim_ms(opened)
            async with Outlast(store) as app:
                await execute(app, f"warm-up-{queued}", runs=20, steps=20)
                measured = await timed(app, f"hundred-{queued}", runs=100, steps=20)
            numbers[f"steps_per_second_{queued}"] = measured["steps_per_second"]
    return numbers


def _postgres_commits(url: str) -> float:
    import psycopg

    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as db:
        db.execute(
            "CREATE TABLE IF NOT EXISTS raw (run bigint, seq bigint, kind text, key text, value text)"
        )
        insert = "INSERT INTO raw VALUES (%s, %s, %s, %s, %s)"
        return _per_second(
            lambda number: db.execute(insert, (1, number, "step", f"noop#{number}", VALUE))
        )


def _redis_commits(url: str) -> float:
    import redis

    with redis.Redis.from_url(url) as client:
        return _per_second(lambda number: client.hset("raw", str(number), VALUE))


def _appended_lines(path: Path) -> float:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:

        def append(number: int) -> None:
            os.write(fd, f'{{"seq":{number},"kind":"step","value":{VALUE}}}\n'.encode())
            os.fdatasync(fd)

        return _per_second(append)
    finally:
        os.close(fd)


def _per_second(commit: Callable[[int], object]) -> float:
    for number in range(100):
        commit(-number)
    start = time.perf_counter()
    for number in range(COMMITS):
        commit(number)
    return COMMITS / (time.perf_counter() - start)
