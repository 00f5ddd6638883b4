"""Death and shutdown: what becomes of the jobs of a worker that gets SIGTERM, is killed, or is paused. Read from the ledger alone."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.contest.ask import Failed, ask
from bench.contest.contenders import CELERY, DBOS, DRAMATIQ, OUTLAST, PGQUEUER, Contender, Store
from bench.contest.deathpage import REPEATED_SECONDS_MAX, outcomes, plots, tables
from bench.contest.environments import python_of
from bench.contest.ledger import Attempts, Case
from bench.contest.section import Found, Section
from bench.contest.servers import Stores, stores
from bench.contest.takeover import takeovers
from bench.contest.workers import Worker, begin_again, give_up, pause, worker

JOBS = 10
SLOTS = 20
GRACE_SECONDS = 10.0
SILENCE_SECONDS = 5.0
PATIENCE_SECONDS = 60.0
HELD_SECONDS_MAX = 9.0
"""Until B is ready; beyond it the first time-out of a contender could run out before anything has happened."""
INTO_STAGE_SECONDS = 0.3
"""How far into the second stage of its jobs A is when it is struck."""
AFTERMATH_SECONDS = 3.0
"""How long a worker that has been silent is watched when it is back."""
TRIES_MAX = 3
AT_ONCE = 3
"""Trials at a time. Their jobs sleep; what a trial costs is the start of its processes."""
STORES: dict[Store, str] = {"sqlite": "SQLite", "postgres": "Postgres", "redis": "Redis"}


class TooBusy(Failed):
    """It was no trial of the contender: this machine is too busy."""


class Scenario(NamedTuple):
    name: str
    blow: signal.Signals
    stages: int
    """Besides the first, which takes no time: something has been done before. A is struck in the second."""
    stage_seconds: float


SCENARIOS = (
    Scenario("fits", signal.SIGTERM, 3, 1.0),
    Scenario("long", signal.SIGTERM, 14, 1.0),
    Scenario("single", signal.SIGTERM, 1, 16.0),
    Scenario("killed", signal.SIGKILL, 5, 1.0),
    Scenario("silent", signal.SIGSTOP, 5, 1.0),
)


class Entrant(NamedTuple):
    name: str
    contender: Contender
    store: Store
    kind: str = ""
    is_staged: bool = True
    """A stage is a unit of its own to it: a step, a task of a chain."""
    is_restarted: bool = False
    """There is no other worker: A is started again, under its own executor id, as soon as it is gone."""


ENTRANTS = (
    Entrant("Outlast, runs (SQLite)", OUTLAST, "sqlite", "runs"),
    Entrant("Outlast, runs (Postgres)", OUTLAST, "postgres", "runs"),
    Entrant("Outlast, runs (Redis)", OUTLAST, "redis", "runs"),
    Entrant("Outlast, blocking steps (SQLite)", OUTLAST, "sqlite", "threads"),
    Entrant("Outlast, items (Redis)", OUTLAST, "redis", "items", is_staged=False),
    Entrant("DBOS, another executor (Postgres)", DBOS, "postgres"),
    Entrant("DBOS, restarted (Postgres)", DBOS, "postgres", is_restarted=True),
    Entrant("pgqueuer (Postgres)", PGQUEUER, "postgres", is_staged=False),
    Entrant("Celery, one task (Redis)", CELERY, "redis", "task", is_staged=False),
    Entrant("Celery, chain (Redis)", CELERY, "redis", "chain"),
    Entrant("Dramatiq, one message (Redis)", DRAMATIQ, "redis", "task", is_staged=False),
    Entrant("Dramatiq, pipeline (Redis)", DRAMATIQ, "redis", "pipeline"),
)


def measure(
    folder: Path,
    rounds: int,
    tell: Callable[[str], None],
    entrants: Sequence[Entrant] = ENTRANTS,
    scenarios: Sequence[Scenario] = SCENARIOS,
    kills: int = 20,
) -> Found:
    for entrant in entrants:
        python_of(entrant.contender, tell)
    trials = [
        (entrant, scenario)
        for scenario in scenarios
        for entrant in entrants
        if _applies(entrant, scenario)
    ]
    found: dict[str, dict[str, list[Any]]] = {scenario.name: {} for scenario in scenarios}
    for number in range(rounds):
        home = folder / f"round-{number}"
        home.mkdir()
        shuffled = random.Random(number).sample(trials, len(trials))
        with stores(home, {entrant.store for entrant in entrants}) as places, _pool() as pool:
            words = f"death, round {number + 1} of {rounds}"
            tried = [pool.submit(_tried, *pair, places, home, tell, words) for pair in shuffled]
            results = dict(zip(shuffled, [one.result() for one in tried], strict=True))
        for entrant, scenario in trials:
            found[scenario.name].setdefault(entrant.name, []).append(results[entrant, scenario])
        trials = [pair for pair in trials if _is_repeated(results[pair])]
    return {"trials": found, "takeover": _takeovers(folder, entrants, kills, tell)}


@contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    """Give up without waiting for what is still to come, and leave no worker behind."""
    begin_again()
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        give_up()
        raise
    finally:
        pool.shutdown()


def _is_repeated(result: dict[str, Any]) -> bool:
    """Leave it out of the next rounds too. Waiting for a time-out in each would take an hour."""
    return "failed" in result or result["trial_seconds"] <= REPEATED_SECONDS_MAX


def _applies(entrant: Entrant, scenario: Scenario) -> bool:
    """Nobody would know that a silent worker is to be restarted."""
    return not (entrant.is_restarted and scenario.blow == signal.SIGSTOP)


def _takeovers(
    folder: Path, entrants: Sequence[Entrant], kills: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    found = {}
    ours = [entrant for entrant in entrants if entrant.kind == "runs" and kills]
    with stores(folder, {entrant.store for entrant in ours}) as places:
        for entrant in ours:
            tell(f"death: {kills} times kill -9, {entrant.name}")
            store = places.fresh(entrant.store)
            found[entrant.name] = takeovers(entrant.contender, store, folder, kills, tell)
    return found


def _tried(
    entrant: Entrant,
    scenario: Scenario,
    places: Stores,
    folder: Path,
    tell: Callable[[str], None],
    words: str,
) -> dict[str, Any]:
    """What was not a trial, because the machine was too busy, is tried again. What failed is reported."""
    failed = ""
    for _ in range(TRIES_MAX):
        tell(f"{words}: {scenario.name}, {entrant.name}")
        home = folder / f"trial-{time.monotonic_ns()}"
        home.mkdir()
        began = time.monotonic()
        try:
            found = trial(entrant, scenario, places.fresh(entrant.store), home, tell)
            return {**found, "trial_seconds": time.monotonic() - began}
        except Failed as failure:
            failed = str(failure)
            tell(failed)
            if not isinstance(failure, TooBusy):
                break
    return {"failed": failed}


def trial(
    entrant: Entrant,
    scenario: Scenario,
    store: str,
    folder: Path,
    tell: Callable[[str], None],
    *,
    jobs: int = JOBS,
    patience: float = PATIENCE_SECONDS,
) -> dict[str, Any]:
    """A has all the jobs, B is ready and has none; A is struck in the second stage of them all; then who does what."""
    ledger, gate = folder / "ledger", folder / "gate"
    ledger.touch()
    stages = scenario.stages + 1
    longest = scenario.stage_seconds * (1 if entrant.is_staged else scenario.stages)
    options = {
        "store": store, "slots": SLOTS, "kind": entrant.kind, "grace": GRACE_SECONDS, "silence": SILENCE_SECONDS, "longest": longest,
    }  # fmt: skip
    started = partial(worker, entrant.contender, folder, tell, **options)
    asked = partial(
        ask,
        entrant.contender,
        tell=tell,
        store=store,
        kind=entrant.kind,
        silence=SILENCE_SECONDS,
        longest=longest,
    )
    with ExitStack() as stack:
        a = stack.enter_context(started(name="a"))
        asked(
            "submit",
            jobs=jobs,
            stages=stages,
            stage_seconds=scenario.stage_seconds,
            ledger=ledger,
            gate=gate,
        )
        _wait(
            ledger,
            lambda attempts: attempts.begun(1, jobs),
            30.0,
            f"{entrant.name}: A does not take the jobs",
            a,
        )
        held = time.monotonic()
        if not entrant.is_restarted:
            stack.enter_context(started(name="b"))
        if time.monotonic() - held > HELD_SECONDS_MAX:
            raise TooBusy(
                f"{entrant.name}: B took {time.monotonic() - held:.1f} s to start: this machine is too busy"
            )
        gate.touch()
        opened = time.monotonic()
        pause(INTO_STAGE_SECONDS)
        if not attempts_of(ledger).only("a"):
            raise Failed(f"{entrant.name}: not all jobs were A's")
        struck = time.monotonic()
        found = _strike(a, scenario.blow)
        gone = struck if scenario.blow == signal.SIGSTOP else time.monotonic()
        if entrant.is_restarted:
            stack.enter_context(started(name="b", executor="a", settle=0.0))
        case = Case(jobs, stages, scenario.stage_seconds, opened, struck, gone)
        _watch(ledger, case, struck + patience)
        in_time = {
            "unfinished": attempts_of(ledger).found(case)["unfinished"],
            "left": asked("left")["left"],
        }
        if scenario.blow == signal.SIGSTOP:
            found["back_seconds"] = time.monotonic() - struck
            a.signal_all(signal.SIGCONT)
            _watch(ledger, case, time.monotonic() + scenario.stages * scenario.stage_seconds)
            pause(AFTERMATH_SECONDS)
        found |= attempts_of(ledger).found(case) | in_time
    return found


def _strike(a: Worker, blow: signal.Signals) -> dict[str, Any]:
    """Until it is gone, or stands still. What does not go by itself is killed at the end of its grace, as a kubelet does."""
    struck = time.monotonic()
    if blow == signal.SIGTERM:
        a.signal(blow)
    else:
        a.signal_all(blow)
    if blow == signal.SIGSTOP:
        return {}
    while a.exit_status is None and time.monotonic() < struck + GRACE_SECONDS:
        pause(0.005)
    killed = a.exit_status is None
    seconds = time.monotonic() - struck
    a.end()  # whatever is left of it
    return {
        "exit_seconds": seconds,
        "exit_status": a.exit_status,
        "killed": killed and blow == signal.SIGTERM,
    }


def _watch(ledger: Path, case: Case, until: float) -> None:
    while time.monotonic() < until and not attempts_of(ledger).all_over(case):
        pause(0.05)


def _wait(
    ledger: Path, is_so: Callable[[Attempts], bool], seconds: float, words: str, a: Worker
) -> None:
    deadline = time.monotonic() + seconds
    while not is_so(attempts_of(ledger)):
        if time.monotonic() > deadline or a.exit_status is not None:
            raise Failed(f"{words}: {a.last_words()}")
        pause(0.01)


def attempts_of(ledger: Path) -> Attempts:
    return Attempts(ledger.read_text())


DEATH = Section(
    "death",
    measure,
    tables,
    plots,
    "Death and shutdown",
    "What happens to the jobs of a worker that is stopped, killed or frozen?",
    outcomes,
)
