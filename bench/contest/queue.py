"""The queue: how fast jobs that do nothing get through one worker, how soon an idle one begins, and what idleness costs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.contest.ask import Failed, ask
from bench.contest.contenders import CELERY, DBOS, DRAMATIQ, OUTLAST, PGQUEUER, Contender, Store
from bench.contest.homes import python_of
from bench.contest.plot import Bar, bars
from bench.contest.section import Found, Section
from bench.contest.servers import Stores, stores
from bench.contest.tables import Goal, goals_table, last_line, spread_words, table
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
    "**200 slots on Postgres, what is known of the limit**: an item is a row that is written three times (put, claimed, acked), with eleven index entries in all, since its id, its state, its worker and its dead letters are looked for. "
    "Counted with callgrind, that is 363,000 instructions an item at the server, 163,000 of them for the entries; with many slots that is most of its time, since then hardly any commit is waited for. pgqueuer deletes a row when it is done. "
    "Its log (WAL) an item is larger than ours; its instructions were not counted, so this says what ours cost, not why it is ahead. Claiming half the slots while the rest executes gained nothing."
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
    ("jobs/s, put and finished", "jobs_per_second"),
    ("put alone, jobs/s", "put_per_second"),
    ("idle: p50 until it begins, ms", "pickup_p50_ms"),
    ("p95, ms", "pickup_p95_ms"),
    ("idle worker, % of a core", "idle_percent"),
    ("its server, %", "idle_server_percent"),
)

HEAD = f"""## Queue

{JOBS:,} jobs that do nothing, put into the store by one process and finished by one worker of {SLOTS} slots, unless it says otherwise, that was ready before; the clock goes from the beginning of the putting until the
store itself has none left. Then {PULSES} jobs one at a time, at uneven moments, into the idle worker: from just before the call that hands a job over until its body begins.
Then {IDLE_SECONDS:.0f} seconds of nothing. All three with the same worker, as it is set up for the first. Late acknowledgement for everybody: a job leaves the store when it is done.
"""


def tables(found: Found) -> str:
    rows = []
    for name, one in found.items():
        if one["rounds"]:
            rows.append([name, *[spread_words(_spread(found, name, key)) for _, key in COLUMNS]])
        else:
            rows.append([name, f"failed: {last_line(one['failed'])}", *["" for _ in COLUMNS[1:]]])
    parts = [HEAD, table(["", *[title for title, _ in COLUMNS]], rows)]
    parts.append("\n![Jobs a second](benchmarks-queue.svg)\n")
    parts.append("**Goals**, as ratios within a round\n")
    parts.append(goals_table([goal for pair in GOALS if (goal := _goal(found, *pair))]))
    parts.append("\n**How each was set up**\n")
    parts += [f"- {name}: {one['config']}" for name, one in found.items() if one["config"]]
    failures = [
        f"- {name}: {last_line([failure])}"
        for name, one in found.items()
        for failure in one["failed"]
    ]
    if failures:
        parts += ["\n**What failed**\n", *failures]
    return "\n".join(parts) + "\n"


def _goal(found: Found, ours: str, theirs: str, limit: str) -> Goal | None:
    if ours not in found or theirs not in found:
        return None
    rates = {numbers["round"]: numbers["jobs_per_second"] for numbers in found[theirs]["rounds"]}
    ratios = [
        numbers["jobs_per_second"] / rates[numbers["round"]]
        for numbers in found[ours]["rounds"]
        if numbers["round"] in rates
    ]
    return Goal(f"{ours}: jobs/s to {theirs}", 1, ratios, limit)


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
        "benchmarks-queue.svg": bars("Queue", f"jobs a second, {JOBS:,} put and finished", groups)
    }


QUEUE = Section("queue", measure, tables, plots)
