"""Measure the queue: throughput of empty jobs, pick-up by an idle worker, and its idle cost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.contest.ask import Failed, ask
from bench.contest.contenders import CELERY, DBOS, DRAMATIQ, OUTLAST, PGQUEUER, Contender, Store
from bench.contest.environments import python_of
from bench.contest.plot import Bar, bars
from bench.contest.section import Found, Section
from bench.contest.servers import Stores, stores
from bench.contest.tables import Goal, Outcome, goals_table, last_line, spread_words, table
from bench.contest.workers import Worker, cpu_seconds, descendants, session, worker
from bench.spread import Spread

JOBS = 5_000
WARM_UP = 500
SLOTS = 20
MANY = 200
"""As many as make one look for jobs worth more: what a queue for short jobs would be given."""
PULSES = 40
PULSE_SECONDS = 0.075
IDLE_SECONDS = 5.0
STORES: dict[Store, str] = {"sqlite": "SQLite", "postgres": "Postgres", "redis": "Redis"}


class Entrant(NamedTuple):
    contender: Contender
    kind: str
    store: Store
    slots: int = SLOTS

    @property
    def name(self) -> str:
        words = {"items": "Outlast, items", "runs": "Outlast, runs of a step"}
        slots = "" if self.slots == SLOTS else f", {self.slots} slots"
        return f"{words.get(self.kind, self.contender.name)}{slots} ({STORES[self.store]})"


ENTRANTS = (
    Entrant(OUTLAST, "items", "sqlite"),
    Entrant(OUTLAST, "items", "postgres"),
    Entrant(OUTLAST, "items", "redis"),
    Entrant(OUTLAST, "runs", "sqlite"),
    Entrant(OUTLAST, "runs", "postgres"),
    Entrant(OUTLAST, "runs", "redis"),
    Entrant(DBOS, "", "sqlite"),
    Entrant(DBOS, "", "postgres"),
    Entrant(PGQUEUER, "", "postgres"),
    Entrant(OUTLAST, "items", "postgres", MANY),
    Entrant(PGQUEUER, "", "postgres", MANY),
    Entrant(CELERY, "", "redis"),
    Entrant(DRAMATIQ, "", "redis"),
)

MANY_LIMIT = (
    "**What is known about the limit with 200 slots on Postgres**: an item is a row that is written three times: put, claimed and acked. Together that makes eleven index entries, because Outlast looks items up by id, state, worker and dead letter. "
    "Counted with callgrind, an item costs 363,000 instructions at the server, 163,000 of them for these entries. With many slots that is most of the time, because Outlast then waits for hardly any commit.\n\n"
    "pgqueuer deletes a row when its job is done. It writes more WAL per item than Outlast. Its instructions were not counted, so this explains what Outlast costs, not why pgqueuer is ahead. Claiming for half the slots while the rest executes gained nothing."
)

GOALS = (
    ("Outlast, items (Postgres)", "pgqueuer (Postgres)", ""),
    ("Outlast, items, 200 slots (Postgres)", "pgqueuer, 200 slots (Postgres)", MANY_LIMIT),
    ("Outlast, items (Redis)", "Celery (Redis)", ""),
    ("Outlast, items (Redis)", "Dramatiq (Redis)", ""),
)
"""Ours, theirs, and what limits ours where it is behind."""


def measure(
    folder: Path, rounds: int, tell: Callable[[str], None], entrants: Sequence[Entrant] = ENTRANTS
) -> Found:
    """Every entrant once a round, in an order that is another each round."""
    for entrant in entrants:
        python_of(entrant.contender, tell)
    found: Found = {
        entrant.name: {"rounds": [], "failed": [], "config": ""} for entrant in entrants
    }
    for number in range(rounds):
        home = folder / f"round-{number}"
        home.mkdir()
        with stores(home, {entrant.store for entrant in entrants}) as places:
            for entrant in random.Random(number).sample(entrants, len(entrants)):
                tell(f"queue, round {number + 1} of {rounds}: {entrant.name}")
                _measured(entrant, places, home, tell, found[entrant.name], number)
    return found


def _measured(
    entrant: Entrant,
    places: Stores,
    folder: Path,
    tell: Callable[[str], None],
    found: dict[str, Any],
    number: int,
) -> None:
    try:
        numbers, config = _numbers(entrant, places, folder, tell)
    except Failed as failure:
        tell(str(failure))
        found["failed"].append(str(failure))
    else:
        found["rounds"].append({"round": number, **numbers})
        found["config"] = config


def _numbers(
    entrant: Entrant, places: Stores, folder: Path, tell: Callable[[str], None]
) -> tuple[dict[str, float], str]:
    places.clear()  # nobody pays for what another has left to the server
    url = places.fresh(entrant.store)
    ledger = folder / f"ledger-{time.monotonic_ns()}"
    asked = partial(
        ask, entrant.contender, tell=tell, store=url, slots=entrant.slots, kind=entrant.kind
    )
    with worker(
        entrant.contender, folder, tell, store=url, slots=entrant.slots, kind=entrant.kind
    ) as at_work:
        done = asked("submit", jobs=JOBS, warm_up=WARM_UP, until_done=True)
        pulsed = asked("pulse", jobs=PULSES, pause=PULSE_SECONDS, ledger=ledger)
        idle = _idle(at_work, _server_pid(entrant.store, places))
        if asked("left")["left"]:
            raise Failed(
                f"{entrant.name}: jobs are left in its store after it had said that none are"
            )
    laps = pickups(ledger.read_text(), pulsed["times"])
    return {
        "jobs_per_second": JOBS / done["done_seconds"],
        "put_per_second": JOBS / done["seconds"],
        "pickup_p50_ms": percentile(laps, 0.5) * 1e3,
        "pickup_p95_ms": percentile(laps, 0.95) * 1e3,
        **idle,
    }, done["config"]


def pickups(ledger: str, times: Sequence[float]) -> list[float]:
    """Seconds from handing a job over to the beginning of its body. Failed unless each began exactly once."""
    begun = [line.split() for line in ledger.splitlines() if line.startswith("begin")]
    numbers = sorted(int(words[1]) for words in begun)
    if numbers != list(range(len(times))):
        raise Failed(f"of {len(times)} jobs handed over one by one, these began: {numbers}")
    return sorted(float(words[4]) - times[int(words[1])] for words in begun)


def percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def _idle(at_work: Worker, server: int | None) -> dict[str, float]:
    """Per cent of a core that the worker with all its processes takes, and the server with its."""
    servers = [] if server is None else [server, *descendants(server)]
    start, own, others = time.monotonic(), cpu_seconds(session(at_work.pid)), cpu_seconds(servers)
    time.sleep(IDLE_SECONDS)
    own, others = cpu_seconds(session(at_work.pid)) - own, cpu_seconds(servers) - others
    share = 100 / (time.monotonic() - start)
    return {
        "idle_percent": own * share,
        **({} if server is None else {"idle_server_percent": others * share}),
    }


def _server_pid(store: Store, places: Stores) -> int | None:
    server = {"postgres": places.postgres, "redis": places.redis}.get(store)
    return None if server is None else server.pid


# -- the report


def _spread(found: Found, name: str, key: str) -> Spread | None:
    samples = [numbers[key] for numbers in found[name]["rounds"] if key in numbers]
    return Spread.of(samples) if samples else None


COLUMNS = (
    ("put and finished, jobs/s", "jobs_per_second"),
    ("put only, jobs/s", "put_per_second"),
    ("pick-up when idle, p50 ms", "pickup_p50_ms"),
    ("p95 ms", "pickup_p95_ms"),
    ("idle worker, % of a core", "idle_percent"),
    ("its server, %", "idle_server_percent"),
)

HEAD = f"""# Queue

How fast do jobs that do nothing get through one worker, how soon does an idle worker start one, and what does an idle worker cost?

1. One process puts {JOBS:,} jobs into the store, and one worker that was already running finishes them. It has {SLOTS} slots unless the table says otherwise. The clock runs from the start of putting until the store itself has no job left.
2. {PULSES} jobs arrive at the idle worker one at a time, at uneven moments. The time is measured from just before the call that submits a job until its body starts.
3. The worker is idle for {IDLE_SECONDS:.0f} seconds.

All three use the same worker, configured for the first. Every contender acknowledges late: a job leaves the store when it is done.
"""


def outcomes(found: Found) -> list[Outcome]:
    return [goal.outcome for goal in _goals(found)]


def tables(found: Found) -> str:
    rows = []
    for name, one in found.items():
        if one["rounds"]:
            rows.append([name, *[spread_words(_spread(found, name, key)) for _, key in COLUMNS]])
        else:
            rows.append([name, f"failed: {last_line(one['failed'])}", *["" for _ in COLUMNS[1:]]])
    parts = [HEAD, table(["contender", *[title for title, _ in COLUMNS]], rows)]
    parts.append("\n![Jobs per second](benchmarks-queue.svg)\n")
    parts.append("## Goals\n\nRatios of two contenders in the same round.\n")
    parts.append(goals_table(_goals(found)))
    parts.append("\n## Configuration\n")
    parts += [f"- {name}: {one['config']}" for name, one in found.items() if one["config"]]
    failures = [
        f"- {name}: {last_line([failure])}"
        for name, one in found.items()
        for failure in one["failed"]
    ]
    if failures:
        parts += ["\n## What failed\n", *failures]
    return "\n".join(parts) + "\n"


def _goals(found: Found) -> list[Goal]:
    return [goal for pair in GOALS if (goal := _goal(found, *pair))]


def _goal(found: Found, ours: str, theirs: str, limit: str) -> Goal | None:
    if ours not in found or theirs not in found:
        return None
    rates = {numbers["round"]: numbers["jobs_per_second"] for numbers in found[theirs]["rounds"]}
    ratios = [
        numbers["jobs_per_second"] / rates[numbers["round"]]
        for numbers in found[ours]["rounds"]
        if numbers["round"] in rates
    ]
    return Goal(f"jobs/s: {ours} / {theirs}", 1, ratios, limit)


def plots(found: Found) -> dict[str, str]:
    groups = []
    for store in STORES.values():
        names = [name for name in found if name.endswith(f"({store})")]
        drawn = [
            Bar(
                name.removesuffix(f" ({store})"),
                spread := _spread(found, name, "jobs_per_second"),
                "ours" if name.startswith("Outlast") else "peer",
                "" if spread else "failed",
            )
            for name in names
        ]
        if drawn:
            groups.append((store, drawn))
    if not any(bar.spread for _, group in groups for bar in group):
        return {}
    return {
        "benchmarks-queue.svg": bars("Queue", f"jobs per second, {JOBS:,} put and finished", groups)
    }


QUEUE = Section(
    "queue",
    measure,
    tables,
    plots,
    "Queue",
    "How fast do jobs get through one worker, and how soon does an idle one start a job?",
    outcomes,
)
