"""Generated runs make no session change twice, and none that they saw is missing, though they crash."""

import asyncio
import json
import os
import random

import pytest

from outlast import VersionConflict, session, step, workflow
from outlast.store.sqlite.store import SQLiteStore
from outlast.testing.crash import HEARTBEAT
from outlast.testing.store_images import empty_file
from support.crash_points import crash_at

LONG = "OUTLAST_TEST_KILLS" in os.environ


def plan(seed: int) -> list:
    chance, numbers = random.Random(seed), iter(range(1000))

    def node(depth: int) -> dict:
        kinds = ["append", "append", "get", "set", "step"]
        kinds += ["gather", "gather", "timeout", "cancel", "list"] if depth else []
        kind = chance.choice(kinds)
        if kind in ("gather", "list"):
            return {"do": kind, "parts": [node(depth - 1) for _ in range(chance.randrange(2, 4))]}
        if kind in ("timeout", "cancel"):
            return {"do": kind, "after": chance.choice([0, 1, 5]), "part": node(depth - 1)}
        return {"do": kind, "n": next(numbers), "seconds": chance.choice([0, 2, 10])}

    return [node(3) for _ in range(4)]


@step
async def nap(n: int, seconds: float) -> int:
    await asyncio.sleep(seconds)
    return n


@workflow
async def generated(nodes: list) -> None:
    s, seen = session("s"), []

    async def play(node: dict) -> None:
        match node["do"]:
            case "append":
                await s.append("l", node["n"])
                seen.append(node["n"])
            case "get":
                await s.last("l", 3)
            case "set":
                try:
                    await s.set("f", node["n"], version=node["n"])
                except VersionConflict:
                    await s.get("f")
            case "step":
                await nap(node["n"], node["seconds"])
            case "list":
                for part in node["parts"]:
                    await play(part)
            case "gather":
                await asyncio.gather(
                    *(play(part) for part in node["parts"]), return_exceptions=True
                )
            case "timeout":
                try:
                    async with asyncio.timeout(node["after"]):
                        await play(node["part"])
                except TimeoutError:
                    await s.append("timeouts", 1)
            case "cancel":
                task = asyncio.create_task(play(node["part"]))
                await asyncio.sleep(node["after"])
                task.cancel()
                await asyncio.wait([task])

    for node in nodes:
        await play(node)
    await s.set("seen", seen)


@pytest.mark.parametrize("seed", range(5 if LONG else 2))
def test_generated_runs_make_each_change_once(tmp_path, seed):
    places = []

    def place():
        path = tmp_path / f"{len(places)}.db"
        places.append(path)
        empty_file(path)
        return lambda clock: SQLiteStore(
            path, clock=clock, heartbeat=HEARTBEAT, synchronous="normal"
        )

    writes = lambda last: range(3, last + 1, 5 if LONG else 9)  # noqa: E731
    crash_at(generated(plan(seed)), store=place, seed=seed, writes=writes, acts=[])
    assert len(places) > 2
    for path in places:
        store = SQLiteStore(path, clock=lambda: 1_800_000_000.0)
        store.open()
        items = [json.loads(item) for item in store.items("s", "l")]
        seen = json.loads(store.session("s").fields["seen"])
        store.close()
        assert len(items) == len(set(items)), path
        assert set(seen) <= set(items), path
