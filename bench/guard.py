"""`python -m bench.guard`: whether a step still costs about what it did. The last step of `make test`; ten seconds.

Three ratios to raw SQLite on the same disk, measured in alternation, so that a busy machine slows both sides:

    lone     steps/s of one run, to raw commits/s
    hundred  steps/s of 100 runs at once, to raw commits/s
    cpu      CPU of a raw commit, to CPU of a step of 100 runs

The best of the rounds counts, and it fails only where that is less than a third of the ratio in bench/guard.json: a collapse, which no noise explains. The
slower a disk, the higher the second ratio, so what is committed is from a fast one. In memory a commit costs nothing, and only `cpu` is judged.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from itertools import count
from pathlib import Path

from bench.folder import IN_MEMORY, file_system, measuring_folder
from bench.markdown import figure, table
from bench.own.log import Log
from bench.own.raw import INSERT, TABLE
from bench.own.runs import address, database, execute, timed
from bench.spread import Spread
from outlast import Outlast

COMMITTED = Path(__file__).with_name("guard.json")
COLLAPSE = 3.0
COMMITS, LONE_STEPS = 300, 300
ROUNDS_MIN = 3
WORDS = {
    "lone": "1 run: steps to raw commits",
    "hundred": "100 runs x 20 steps: steps to raw commits",
    "cpu": "100 runs x 20 steps: CPU of a raw commit to a step's",
}
BY_DISK = ("lone", "hundred")

Ratios = dict[str, list[float]]
"""One of each a round."""


def main() -> None:
    given = _arguments()
    committed = json.loads(given.ratios.read_text())
    with measuring_folder(given.dir) as folder:
        kind = file_system(folder)
        found = asyncio.run(measure(folder, given.seconds))
    if given.write:
        given.ratios.write_text(
            json.dumps({name: round(Spread.of(found[name]).median, 2) for name in WORDS}, indent=1)
            + "\n"
        )
    collapsed = collapses(found, committed, in_memory=kind in IN_MEMORY)
    print(told(found, committed, collapsed))
    if kind in IN_MEMORY:
        print(
            f"The folder is in memory ({kind}): a commit costs nothing there, so only CPU is judged."
        )
    if collapsed:
        sys.exit(advice(collapsed))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.guard", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--dir", type=Path, help="a folder on the disk to measure")
    parser.add_argument(
        "--seconds", type=float, default=8.0, help="how long to measure (default 8)"
    )
    parser.add_argument("--ratios", type=Path, default=COMMITTED, help="the committed ratios")
    parser.add_argument("--write", action="store_true", help="commit to what was measured now")
    return parser.parse_args()


async def measure(folder: Path, seconds: float) -> Ratios:
    found: Ratios = {name: [] for name in WORDS}
    with closing(_RawSQLite(folder / "raw.db")) as raw:
        async with Outlast(address(folder)) as app:
            await _warm_up(app, Log(database(folder)))
            deadline = time.perf_counter() + seconds
            for number in count():
                if number >= ROUNDS_MIN and time.perf_counter() > deadline:
                    return found
                commits_per_second, commit_cpu_us = raw.measure()
                lone = await timed(app, f"lone-{number}", runs=1, steps=LONE_STEPS)
                hundred = await timed(app, f"hundred-{number}", runs=100, steps=20)
                found["lone"].append(lone["steps_per_second"] / commits_per_second)
                found["hundred"].append(hundred["steps_per_second"] / commits_per_second)
                found["cpu"].append(commit_cpu_us / hundred["cpu_us_per_step"])
    raise AssertionError("it counts for ever")


async def _warm_up(app: Outlast, log: Log) -> None:
    """Until the log is reused, as the yardstick's is."""
    for number in count():
        await execute(app, f"warm-up-{number}", runs=100, steps=20)
        if not log.grew():
            return


class _RawSQLite:
    """Single-row commits of SQLite alone, as durable as Outlast's own."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(TABLE)
        self._seqs = count(1)
        self._insert(50_000)  # more than the log takes before it is reused
        self._insert(1)

    def _insert(self, rows: int) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        for _ in range(rows):
            seq = next(self._seqs)
            values = (
                1,
                seq,
                1,
                "step",
                f"noop#{seq}",
                time.time(),
                '{"x":1}',
                str(seq),
                None,
                0.00001,
                1,
                0,
            )
            self._db.execute(INSERT, values)
        self._db.execute("COMMIT")

    def measure(self) -> tuple[float, float]:
        """Commits a second, and CPU of one in µs."""
        cpu, start = time.process_time(), time.perf_counter()
        for _ in range(COMMITS):
            self._insert(1)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        return COMMITS / seconds, cpu / COMMITS * 1e6

    def close(self) -> None:
        self._db.close()


def collapses(found: Ratios, committed: Mapping[str, float], *, in_memory: bool) -> list[str]:
    """What is worse than a third of what was committed, also in the best round."""
    judged = [name for name in WORDS if not (in_memory and name in BY_DISK)]
    return [name for name in judged if max(found[name]) < committed[name] / COLLAPSE]


def told(found: Ratios, committed: Mapping[str, float], collapsed: list[str]) -> str:
    rows = []
    for name, words in WORDS.items():
        spread, once = Spread.of(found[name]), committed[name]
        verdict = (
            "COLLAPSED"
            if name in collapsed
            else "lower"
            if spread.median < once / 1.5
            else "as it was"
        )
        span = f"{figure(spread.low)} to {figure(spread.high)}"
        rows.append(
            (
                words,
                f"{figure(spread.median)}x",
                span,
                f"{figure(once)}x",
                f"{figure(once / COLLAPSE)}x",
                verdict,
            )
        )
    return table(
        (
            f"guard, {len(found['lone'])} rounds",
            "median",
            "range",
            "committed",
            "best must have",
            "",
        ),
        rows,
    )


def advice(collapsed: list[str]) -> str:
    return (
        f"guard: {'; '.join(WORDS[name] for name in collapsed)}: less than a third of what was committed in bench/guard.json, "
        "in the best round too.\nIf something else was busy on this disk: `python -m bench.guard` again. If it stays: a commit since has made "
        "steps dear; `python -m bench.own --cases raw lone hundred` says where, `git bisect run python -m bench.guard` which. If that is "
        "meant: `python -m bench.guard --write`, and say why in the commit."
    )


if __name__ == "__main__":
    main()
