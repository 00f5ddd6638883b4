"""Runs that crash make each session change once."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conversation import TURNS, conversation, think

from outlast import session, sync, workflow
from outlast.testing import crash_everywhere
from outlast.testing.killed_processes import ADDRESS
from support.crash_points import crash_at_some
from support.crash_stores import LEASE_SECONDS, STORES, new_places
from support.processes import Program, clean_environment
from support.waiting import WAIT_SECONDS


@pytest.fixture(params=STORES)
def places(request):
    """Make a place for each story. `make test` runs a test on one of the stores, `make stores` on all."""
    with new_places(request, request.param) as new_place:
        yield new_place


def test_each_append_is_made_once(places):
    made: list = []

    def new_place():
        made.append(places())
        return made[-1]

    def check() -> None:
        store = made[-1](lambda: 1_800_000_000.0)
        store.open()
        try:
            assert store.items("s", "turns") == [f'"{turn}"' for turn in TURNS]
            assert store.session("s").version == 5
            assert store.session("s").fields == {"count": "2"}
        finally:
            store.close()

    report = crash_everywhere(
        conversation("hi"),
        store=new_place,
        check=check,
        writes=range(1, 17, 5),
        lease=LEASE_SECONDS,
    )
    assert report.result == [TURNS, {"count": 2, "turns": TURNS}, True]
    assert report.crashes >= 6


def test_each_append_is_made_once_though_every_life_dies():
    report = crash_everywhere(conversation("hi"), every_life=True, writes=range(2, 17, 4))
    assert report.result == [
        TURNS,
        {"count": 2, "turns": TURNS},
        True,
    ]  # what was read last is what is there


@workflow
async def at_once() -> list:
    s = session("s")
    async with asyncio.timeout(50):
        numbers = await asyncio.gather(*(s.append("l", n) for n in range(4)), think("x"))
    await s.clear()
    return [sorted(numbers[:4]), await s.append("l", "new"), await s.last("l")]


def test_concurrent_calls_are_each_made_once():
    assert crash_at_some(at_once()).result == [[1, 2, 3, 4], 1, ["new"]]


@workflow
async def child(n: int) -> int:
    return await session("s").append("l", n)


@workflow
async def parent() -> list[int]:
    await asyncio.gather(*(child(n) for n in range(2)))
    await session("s").append("l", 9)
    return sorted(await session("s").last("l"))


def test_runs_that_share_a_session_make_each_change_once():
    assert crash_at_some(parent()).result == [0, 1, 9]


@sync.workflow
def sync_conversation() -> list:
    s = sync.session("s")
    s.append("turns", "hi")
    sync.checkpoint("c").save(n=s.append("turns", "you"))
    return [s.last("turns"), sync.checkpoint("c").get("n"), s.clear(), s.info()]


def test_sync_workflow_makes_each_change_once():
    assert crash_at_some(sync_conversation()).result == [["hi", "you"], 2, None, None]


def test_killed_processes_make_each_change_once(tmp_path):
    """What the run itself sees is what its session holds."""

    def life(at: int, when: str) -> Program:
        """Start a process that kills itself before or after that write; with 0 it comes to its end."""
        target = f"{Path(__file__).parent}/conversation.py:conversation"
        words = ["-m", "outlast.testing.crash_process", "-", at, when, target, '"hi"']
        env = clean_environment(**{ADDRESS: f"sqlite:///{tmp_path}/{when}-{at or killed_at}.db"})
        return Program.python(*words, folder=tmp_path, env=env)

    for killed_at, when in ((1, "after"), (7, "before"), (12, "after")):
        with life(killed_at, when) as first:
            assert first.wait() == -signal.SIGKILL, first.describe()
        with life(0, when) as second:
            assert second.wait() == 0, second.describe()
        assert json.loads(second.output) == {"result": [TURNS, {"count": 2, "turns": TURNS}, True]}


SETS = """
import asyncio, os, sys
from outlast import Outlast, session, sleep, workflow

@workflow
async def tags() -> list:
    s = session("s")
    names = {"alpha", "beta", "gamma", "delta", "epsilon"}
    await s.set("tags", names)
    await s.append("all", names, frozenset(names))
    await s.update(dict.fromkeys(names, 1))
    await s.delete(*names)
    if sys.argv[2] == "die":
        os._exit(9)
    return sorted(await s.get("tags"))

async def main():
    async with Outlast(sys.argv[1]) as app:
        print(await (await app.start(tags(), id="run")).result())
        print((await app.session("s").info()).version)

asyncio.run(main())
"""


def test_sets_replay_under_another_hash_seed(tmp_path):
    address = f"sqlite:///{tmp_path}/outlast.db"
    said = ""
    for seed, how in (("1", "die"), ("2", "end")):
        done = subprocess.run(
            [sys.executable, "-c", SETS, address, how],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_SECONDS,
        )
        assert done.returncode == (9 if how == "die" else 0), done.stderr
        said = done.stdout
    assert said.split("\n")[:2] == ["['alpha', 'beta', 'delta', 'epsilon', 'gamma']", "4"]
