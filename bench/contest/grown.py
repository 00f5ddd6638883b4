"""What becomes of Outlast's costs in a store that has grown: `python -m bench.contest.grown VERB --store URL` prints its figures as JSON. See growth.py.

runs      a step, a claim and a recovery, with this many runs in the store
journals  the next step and the replay of a run, with this many entries in its journal
values    steps a second and bytes a second, with values of this many bytes
space     bytes a step in the store, and what pruning frees
hold      (a worker that takes one run and is killed by `runs`)
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import pairwise
from typing import Any
from uuid import uuid4

from bench.contest.store_size import size_of
from bench.own.fleet import claim_ms, enlist, fill
from bench.own.runs import execute, timed
from outlast import Outlast, receive, step, workflow
from outlast.store.address import store_at
from outlast.store.commands import Claim, Record, RegisterWorker, Settle, Sweep
from outlast.store.protocol import Store

FLOWS = tuple(f"flow{number}" for number in range(10))
ENDED_SHARE = 50
"""One run in this many has ended; the others are queued."""
TAIL = 50
PATIENCE = 60.0


# -- runs


def runs(given: argparse.Namespace) -> dict[str, Any]:
    """A store for each size, and everything in turn in all of them: a machine that slows down slows all."""
    laps: dict[int, list[dict[str, float]]] = {size: [] for size in given.sizes}
    with ExitStack() as stack:
        opened = {}
        for address, size in zip(given.store, given.sizes, strict=True):
            store = opened[address, size] = stack.enter_context(closing(store_at(address)))
            store.open()
            enlist(store)
            _fill(store, size)
        for lap in range(given.laps):
            for (address, size), store in opened.items():
                costs = {"claim_ms": claim_ms(store), **_recovery(store, address)}
                laps[size].append(costs | asyncio.run(_steps(address, str(lap))))
    return {
        str(size): {name: statistics.median(lap[name] for lap in measured) for name in measured[0]}
        for size, measured in laps.items()
    }


def _fill(store: Store, size: int) -> None:
    fill(store, 0, size)
    to_end = size // ENDED_SHARE
    while to_end > 0:
        take = Claim("w", uuid4().hex, (), ("default",), FLOWS, limit=min(to_end, 1_000))
        (rows,) = store.commit([take])
        store.commit([Settle(row.pk, row.fence, "done", "1") for row in rows])
        to_end -= len(rows)
    assert store.depth("default") == size - size // ENDED_SHARE, "not everything was put in"


def _recovery(store: Store, address: str) -> dict[str, float]:
    """A worker takes a run and is killed: until its death is seen, and what it costs to take the run from it and to claim it again."""
    words = [sys.executable, "-m", "bench.contest.grown", "hold", "--store", address]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        name, id = worker.stdout.readline().split()
        time.sleep(0.5)  # past its first heartbeats
        os.kill(worker.pid, signal.SIGKILL)
        killed = time.perf_counter()
        worker.wait()
    while name not in store.dead_workers():
        assert time.perf_counter() - killed < PATIENCE, f"{name} is dead, and nobody sees it"
        time.sleep(0.005)
    seen = time.perf_counter()
    (swept,) = store.commit([Sweep()])
    at = time.perf_counter()
    assert swept.runs == (id,), f"{swept.runs} were taken from the dead, not {id}"
    (rows,) = store.commit([Claim("w", uuid4().hex, (), ("default",), FLOWS, limit=1)])
    claimed = time.perf_counter()
    assert [row.id for row in rows] == [id], "what was taken from the dead is not ahead of new work"
    store.commit([Settle(rows[0].pk, rows[0].fence, "done", "1")])
    return {
        "seen_ms": (seen - killed) * 1e3,
        "sweep_ms": (at - seen) * 1e3,
        "reclaim_ms": (claimed - at) * 1e3,
    }


def hold(given: argparse.Namespace) -> None:
    """Claim one run, record a step of it, and then do nothing until killed or until the parent is gone."""
    store, name = store_at(given.store[0]), f"victim-{os.getpid()}"
    store.open()
    store.acquire_liveness(name)
    store.commit([RegisterWorker(name, "host", os.getpid(), 30.0)])
    (rows,) = store.commit([Claim(name, uuid4().hex, (), ("default",), FLOWS, limit=1)])
    run = rows[0]
    store.commit(
        [
            Record(
                run.pk,
                store.last_seq(run.pk) + 1,
                run.fence,
                "step",
                "noop#0",
                store.now(),
                value="1",
            )
        ]
    )
    print(name, run.id, flush=True)
    sys.stdin.read()


async def _steps(address: str, name: str) -> dict[str, float]:
    async with Outlast(address) as app:
        await execute(app, f"warm-up-{name}", runs=100, steps=20)
        hundred = await timed(app, f"hundred-{name}", runs=100, steps=20)
        lone = await timed(app, f"lone-{name}", runs=1, steps=100)
    return {
        "hundred_steps_per_second": hundred["steps_per_second"],
        "hundred_cpu_us": hundred["cpu_us_per_step"],
        "lone_step_ms": 1e3 / lone["steps_per_second"],
    }


# -- journals

bodies: list[float] = []


@step
async def stamped(x: int) -> int:
    bodies.append(time.perf_counter())
    return x


@workflow
async def long_run(steps: int) -> int:
    found = 0
    for x in range(steps):
        found += await stamped(x)
    await receive("go")
    for x in range(TAIL):
        found += await stamped(x)
    return found


def journals(given: argparse.Namespace) -> dict[str, Any]:
    return {str(size): asyncio.run(_journal(given.store[0], size)) for size in given.sizes}


async def _journal(address: str, entries: int) -> dict[str, float]:
    """Measure a run of this many steps, and its second life, which replays them and executes some more."""
    id = f"long-{entries}"
    async with Outlast(address) as app:
        await app.start(long_run(entries), id=id)
        while not await app.runs(waiting_for="go"):
            await asyncio.sleep(0.02)
    async with Outlast(address) as app:
        await app.send(id, "go")
        bodies.clear()
        started = time.perf_counter()
        run = await app.start(long_run(entries), id=id)
        assert await run.result() == sum(range(entries)) + sum(range(TAIL))
    assert len(bodies) == TAIL, "a step that was recorded was executed again"
    gaps = [after - before for before, after in pairwise(bodies)]
    return {"next_step_ms": statistics.median(gaps) * 1e3, "replay_ms": (bodies[0] - started) * 1e3}


# -- values

VOLUME = 64_000_000
STEPS_MIN, STEPS_MAX, AT_ONCE = 40, 2_000, 10

of_size = ""


@step
async def give(number: int) -> str:
    """Text that does not compress, another each time."""
    return f"{number}:{of_size}"


@workflow
async def giving(first: int, steps: int) -> int:
    return sum([len(await give(first + number)) for number in range(steps)])


def values(given: argparse.Namespace) -> dict[str, Any]:
    return {str(size): asyncio.run(_values(given.store[0], size)) for size in given.sizes}


async def _values(address: str, size: int) -> dict[str, float]:
    global of_size  # noqa: PLW0603 - what a step returns is no argument of it, which would be recorded as well
    of_size = base64.b64encode(random.Random(size).randbytes(size))[:size].decode()
    each = max(STEPS_MIN, min(STEPS_MAX, VOLUME // size)) // AT_ONCE
    async with Outlast(address) as app:
        await (await app.start(giving(0, 5), id=f"warm-up-{size}")).result()
        cpu, start = time.process_time(), time.perf_counter()
        started = [
            await app.start(giving(number * each, each), id=f"giving-{size}-{number}")
            for number in range(AT_ONCE)
        ]
        lengths = [await run.result() for run in started]
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    assert all(length > each * size for length in lengths), "a value came back shorter than it was"
    steps = each * AT_ONCE
    return {
        "steps_per_second": steps / seconds,
        "megabytes_per_second": steps * size / seconds / 1e6,
        "cpu_us": cpu / steps * 1e6,
    }


# -- space

SPACE_RUNS, SPACE_STEPS, VALUE_BYTES = 100, 100, 100


def space(given: argparse.Namespace) -> dict[str, Any]:
    return asyncio.run(_space(given.store[0]))


async def _space(address: str) -> dict[str, Any]:
    """What the store takes for steps with values of 100 bytes: empty, filled, pruned, filled again, and made as small as it can be."""
    global of_size  # noqa: PLW0603
    of_size = base64.b64encode(random.Random(0).randbytes(VALUE_BYTES))[:VALUE_BYTES].decode()
    store_size = size_of(address)
    async with Outlast(address) as app:
        await (await app.start(giving(0, 5), id="warm-up")).result()
        empty = store_size.bytes()
        await _give(app, "first")
        filled, written = store_size.bytes(), store_size.written()
        assert await app.prune(0.0) >= SPACE_RUNS
        store_size.tidy()
        pruned = store_size.bytes()
        await _give(app, "second")
        again = store_size.bytes()
        assert await app.prune(0.0) >= SPACE_RUNS
    store_size.shrink()
    steps = SPACE_RUNS * SPACE_STEPS
    return {
        "bytes_a_step": (filled - empty) / steps,
        "written_a_step": written / steps,
        "empty": empty,
        "filled": filled,
        "pruned": pruned,
        "filled_again": again,
        "shrunk": store_size.bytes(),
    }


async def _give(app: Outlast, name: str) -> None:
    started = [
        await app.start(giving(0, SPACE_STEPS), id=f"{name}-{number}")
        for number in range(SPACE_RUNS)
    ]
    for run in started:
        await run.result()


VERBS: dict[str, Callable[[argparse.Namespace], dict[str, Any] | None]] = {
    "runs": runs,
    "journals": journals,
    "values": values,
    "space": space,
    "hold": hold,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.contest.grown", description=__doc__)
    parser.add_argument("verb", choices=VERBS)
    parser.add_argument("--store", required=True, nargs="+", help="`runs` has one for each size")
    parser.add_argument("--sizes", type=int, nargs="*", default=[])
    parser.add_argument("--laps", type=int, default=7, help="how often `runs` measures everything")
    given = parser.parse_args()
    found = VERBS[given.verb](given)
    if found is not None:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
