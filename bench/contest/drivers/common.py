"""What every driver has in common: its commands, its answer, the ledger. Standard library only: it is executed in the peers' environments.

    python outlast_driver.py steps  --store URL --runs 100 --steps 20 --seconds 2
    python outlast_driver.py work   --store URL --slots 20 --name a --grace 10 --longest 14
    python outlast_driver.py submit --store URL --jobs 10 --first 0 --stages 5 --stage-seconds 1 --ledger FILE
    python outlast_driver.py submit --store URL --jobs 5000 --until-done
    python outlast_driver.py pulse  --store URL --jobs 40 --pause 0.1 --ledger FILE
    python outlast_driver.py left   --store URL

The answer is one JSON object, the last line of standard output. `work` says `ready` there instead, once it takes jobs, and goes on until it is ended.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

GAPS_MAX = 10_000
"""How many gaps an answer has: evenly taken from all of them."""
WARM_UP_RUNS, WARM_UP_STEPS, WARM_UP_LAPS_MAX = 10, 20, 40

SQLITE_SETTINGS = ("journal_mode", "synchronous")
POSTGRES_SETTINGS = ("fsync", "synchronous_commit")
REDIS_SETTINGS = ("appendonly", "appendfsync")
"""What makes a commit durable: a driver reads them where it can from the very connection that its contender writes by."""
WORKER = "BENCH_WORKER"
"""The variable with a worker's name."""

now = time.monotonic  # one clock for all processes of a host


class Meter:
    """Seconds, CPU and gaps of the steps executed between `begin()` and `answer()`. `server` is the pid of the store's server, if it has one."""

    def __init__(self, server: int | None = None) -> None:
        self.server = server
        self._last: dict[object, float] = {}
        self._gaps: list[float] = []
        self._wall = self._cpu = self._server_cpu = 0.0

    def begin(self) -> None:
        self._last, self._gaps = {}, []
        self._server_cpu = tree_cpu_seconds(self.server) if self.server else 0.0
        self._cpu, self._wall = cpu_seconds(), time.perf_counter()

    def step(self, run: object) -> None:
        """A step's body of this run begins now."""
        at = time.perf_counter()
        last = self._last.get(run)
        if last is not None:
            self._gaps.append(at - last)
        self._last[run] = at

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._wall

    def answer(self, steps: int) -> dict[str, Any]:
        """What was measured until now. To be called before anything else is done, such as counting what was recorded."""
        seconds, cpu = self.seconds, cpu_seconds() - self._cpu
        server = tree_cpu_seconds(self.server) - self._server_cpu if self.server else 0.0
        thinned = self._gaps[:: len(self._gaps) // GAPS_MAX + 1]
        return {
            "steps": steps,
            "seconds": seconds,
            "cpu_seconds": cpu,
            "server_cpu_seconds": server,
            "gaps": thinned,
        }


def cpu_seconds() -> float:
    """Of this process, all its threads, and the children it has waited for."""
    own, children = (
        resource.getrusage(resource.RUSAGE_SELF),
        resource.getrusage(resource.RUSAGE_CHILDREN),
    )
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def tree_cpu_seconds(root: int) -> float:
    """Of another process, of what it has started, and of what it has waited for: whatever ends meanwhile moves from the one to the other."""
    rows, tree = list(_processes()), {root}
    while found := {pid for pid, parent, *_ in rows if parent in tree} - tree:
        tree |= found
    return sum(own + waited_for for pid, _, own, waited_for in rows if pid in tree) / os.sysconf(
        "SC_CLK_TCK"
    )


def _processes() -> Iterator[tuple[int, int, int, int]]:
    """Pid, parent, ticks of its own, ticks of the children that it has waited for."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended since
        own, waited_for = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
        yield int(stat.parent.name), int(fields[1]), own, waited_for


def laps_to_warm_up(store: str) -> Iterator[int]:
    """Numbers of laps to be executed before what is counted: one, and on SQLite as many as it takes until its log is no longer growing.

    A log that grows makes a commit about twice as dear, and slow contenders would be measured in that state alone.
    """
    yield 0
    if store.startswith("sqlite:///"):
        log, size = Path(store.removeprefix("sqlite:///") + "-wal"), 0
        for lap in range(1, WARM_UP_LAPS_MAX):
            grown = log.stat().st_size if log.exists() else 0
            if grown <= size:
                return
            size = grown
            yield lap


class Laps:
    """What a driver of steps is to execute, one after the other: a name for the runs, how many, and their steps. Laps that warm up come first and are
    not counted. After the last, `found` is what the meter has, and `last` the name of the lap that is looked for in the store."""

    def __init__(self, given: argparse.Namespace, meter: Meter) -> None:
        self._given, self._meter = given, meter
        self.found: dict[str, Any] = {}
        self.last = ""

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        given = self._given
        for number in laps_to_warm_up(given.store):
            yield f"warm-up-{number}", WARM_UP_RUNS, WARM_UP_STEPS
        self._meter.begin()
        count = 0
        while not count or self._meter.seconds < given.seconds:
            self.last = f"lap-{count}"
            yield self.last, given.runs, given.steps
            count += 1
        self.found = self._meter.answer(count * given.runs * given.steps)


class Ledger:
    """What happened outside, one line a beginning or an end: `begin JOB STAGE WORKER SECONDS`. Every line is one write to its end.

    The worker is the name that it was started with: its processes may be many, and inherit it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, what: str, job: int, stage: int) -> None:
        os.write(self._fd, f"{what} {job} {stage} {os.environ[WORKER]} {now():.6f}\n".encode())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=("steps", "work", "submit", "pulse", "left"))
    parser.add_argument("--store", required=True)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="how long to go on at least (steps)"
    )
    parser.add_argument(
        "--variant", default="", help="one of several configurations of the contender (steps)"
    )
    parser.add_argument(
        "--server", type=int, help="the pid of the store's server, to see its CPU (steps)"
    )
    parser.add_argument("--slots", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--stages", type=int, default=0)
    parser.add_argument("--stage-seconds", type=float, default=0.0)
    parser.add_argument("--gate", default="", help="what every second stage waits for (submit)")
    parser.add_argument(
        "--executor", default="", help="an executor's id, if it is not the worker's name (DBOS)"
    )
    parser.add_argument("--ledger", default=os.devnull)
    parser.add_argument(
        "--until-done", action="store_true", help="answer when the store has none left (submit)"
    )
    parser.add_argument(
        "--warm-up", type=int, default=0, help="jobs before those that are counted (submit)"
    )
    parser.add_argument(
        "--pause", type=float, default=0.1, help="seconds between two jobs, on average (pulse)"
    )
    parser.add_argument(
        "--kind", default="", help="what a job is, where the contender has several (items, runs)"
    )
    parser.add_argument(
        "--longest", type=float, default=0.0, help="seconds of the longest job; 0: none is long"
    )
    parser.add_argument(
        "--silence", type=float, default=0.0, help="time-out for a silent worker; 0: the default"
    )
    parser.add_argument(
        "--name", default="a", help="of a worker, where the contender has names for them"
    )
    parser.add_argument(
        "--grace", type=float, default=10.0, help="what a worker has between SIGTERM and SIGKILL"
    )
    return parser.parse_args()


def answer(found: dict[str, Any]) -> None:
    print(json.dumps(found), flush=True)


def ready() -> None:
    """Past whatever the contender has made of `sys.stdout` by now."""
    os.write(1, b"ready\n")


def drive(verbs: dict[str, Callable[[argparse.Namespace], dict[str, Any] | None]]) -> None:
    given = arguments()
    if given.verb not in verbs:
        sys.exit(f"{sys.argv[0]} has no verb {given.verb}: {', '.join(verbs)}")
    found = verbs[given.verb](given)
    if found is not None:
        answer(found)
