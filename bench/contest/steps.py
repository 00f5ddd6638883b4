"""Durable steps: runs whose steps do nothing, so that what is left is the cost of recording each of them before the next begins.

First every peer's configurations are tried once, alone and with 100 runs; the faster one of each store takes part in the rounds. Then the rounds: every
contender, store and number of runs, in an order that a seed shuffles, each on an empty database of a server at rest.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.contest.ask import Failed, ask
from bench.contest.contenders import DBOS, LANGGRAPH, OUTLAST, RAW, Contender, Store
from bench.contest.homes import python_of
from bench.contest.plot import Bar, bars
from bench.contest.section import Found, Section
from bench.contest.servers import Stores, stores
from bench.contest.tables import NONE, Goal, goals_table, last_line, spread_words, table
from bench.spread import Spread
from outlast.values.ranks import nearest_rank

SECONDS = 2.0
Tell = Callable[[str], None]


class Shape(NamedTuple):
    runs: int
    steps: int

    def __str__(self) -> str:
        return "1 run" if self.runs == 1 else f"{self.runs:,} runs"


LONE, HUNDRED = Shape(1, 200), Shape(100, 20)
SHAPES = (LONE, Shape(10, 50), HUNDRED, Shape(1_000, 5))


class Case(NamedTuple):
    """A contender on a store. `name` and `place` are what the tables call them."""

    contender: Contender
    store: Store
    name: str
    place: str
    variant: str = ""
    fsync: str = ""
    """Of Redis: its `appendfsync`."""
    runs_min: int = 1

    @property
    def key(self) -> str:
        return f"{self.name} on {self.place}"


PLACES: dict[Store, str] = {"sqlite": "SQLite", "postgres": "Postgres", "redis": "Redis"}
CASES = (
    Case(OUTLAST, "sqlite", "Outlast", "SQLite"),
    Case(RAW, "sqlite", "raw", "SQLite"),
    Case(DBOS, "sqlite", "DBOS", "SQLite"),
    Case(LANGGRAPH, "sqlite", "LangGraph", "SQLite"),
    Case(OUTLAST, "postgres", "Outlast", "Postgres"),
    Case(RAW, "postgres", "raw", "Postgres", "1"),
    Case(RAW, "postgres", "raw, 20 connections", "Postgres", "20", runs_min=2),
    Case(DBOS, "postgres", "DBOS", "Postgres"),
    Case(LANGGRAPH, "postgres", "LangGraph", "Postgres"),
    Case(OUTLAST, "redis", "Outlast", "Redis, fsync always", fsync="always"),
    Case(OUTLAST, "redis", "Outlast", "Redis, fsync every second", fsync="everysec"),
)
VARIANTS = {
    ("DBOS", "SQLite"): ("async", "threads", "plain"),
    ("DBOS", "Postgres"): ("async", "threads", "plain"),
    ("LangGraph", "SQLite"): ("async", "threads"),
    ("LangGraph", "Postgres"): ("async", "threads"),
}
"""The configurations of a peer that are tried before the rounds."""

DURABLE = {
    "journal_mode": {"wal", "delete"},
    "synchronous": {"2", "3"},
    "fsync": {"on"},
    "synchronous_commit": {"on"},
    "appendonly": {"yes"},
    "appendfsync": {"always", "everysec"},
}


# -- measuring


def measure(folder: Path, rounds: int, tell: Tell) -> Found:
    for case in CASES:
        python_of(case.contender, tell)  # no environment is made between two measurements
    with stores(_made(folder / "tried"), {"postgres", "redis"}) as opened:
        versions = opened.versions()
        tried = _try_variants(opened, tell)
    fastest = _fastest(tried)
    return {
        "seconds": SECONDS,
        "servers": versions,
        "packages": {peer.name: " ".join(peer.packages) for peer in (DBOS, LANGGRAPH)},
        "tried": tried,
        "rounds": [
            _round(_made(folder / f"round-{number}"), number, rounds, fastest, tell)
            for number in range(1, rounds + 1)
        ],
    }


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _try_variants(opened: Stores, tell: Tell) -> list[dict[str, Any]]:
    tried = []
    for case in CASES:
        for variant in VARIANTS.get((case.name, case.place), ()):
            for shape in (LONE, HUNDRED):
                tell(f"which configuration: {case.key}, {shape}, {variant}")
                tried.append(_one(case._replace(variant=variant), shape, opened, tell))
    return tried


def _fastest(tried: Sequence[dict[str, Any]]) -> dict[tuple[str, bool], str]:
    """The variant to take for a case and for many runs or a lone one: the faster of those that did not fail, else the first."""
    chosen: dict[tuple[str, bool], str] = {}
    for result in sorted(tried, key=lambda result: result.get("steps_per_second", 0.0)):
        chosen[result["case"], result["runs"] > 1] = result["variant"]
    return chosen


def _round(
    folder: Path, number: int, rounds: int, fastest: dict[tuple[str, bool], str], tell: Tell
) -> list[dict[str, Any]]:
    results = []
    with stores(folder, {"postgres", "redis"}) as opened:
        for shape in SHAPES:
            cases = [case for case in CASES if shape.runs >= case.runs_min]
            random.Random(f"{number} {shape}").shuffle(
                cases
            )  # whoever is next to whom changes, the same every time
            for case in cases:
                variant = fastest.get((case.key, shape.runs > 1), case.variant)
                tell(f"round {number} of {rounds}: {case.key}, {shape}")
                results.append(_one(case._replace(variant=variant), shape, opened, tell))
    return results


def _one(case: Case, shape: Shape, opened: Stores, tell: Tell) -> dict[str, Any]:
    """The figures, or what failed."""
    opened.clear()
    if case.fsync:
        opened.set_fsync(case.fsync)
    server = opened.server(case.store)
    result = {
        "case": case.key,
        "variant": case.variant,
        "runs": shape.runs,
        "load": round(os.getloadavg()[0], 1),
    }
    options = {"runs": shape.runs, "steps": shape.steps, "seconds": SECONDS}
    if case.variant:
        options["variant"] = case.variant
    if server:
        options["server"] = server
    try:
        answer = ask(case.contender, "steps", tell, store=opened.fresh(case.store), **options)
        return {**result, **figures(answer, shape)}
    except Failed as failure:
        tell(f"failed: {failure}")
        return {**result, "failed": str(failure)}


def figures(answer: dict[str, Any], shape: Shape) -> dict[str, Any]:
    """What is kept of an answer. Failed if the store has not every step of the last lap, or was not as durable as everybody's."""
    wanted = shape.runs * shape.steps
    if answer["recorded"] < wanted:
        raise Failed(f"only {answer['recorded']} of {wanted} steps are in the store")
    for name, value in answer["settings"].items():
        if value not in DURABLE[name]:
            raise Failed(f"{name} is {value}: that is not durable")
    steps, gaps = answer["steps"], sorted(answer["gaps"])
    if not gaps:
        raise Failed("no run had two steps")
    return {
        "steps_per_second": round(steps / answer["seconds"], 1),
        "cpu_us": round(answer["cpu_seconds"] / steps * 1e6, 1),
        "server_cpu_us": round(answer["server_cpu_seconds"] / steps * 1e6, 1),
        "p50_ms": round(nearest_rank(gaps, 0.5) * 1e3, 3),
        "p99_ms": round(nearest_rank(gaps, 0.99) * 1e3, 3),
        "config": answer["config"],
    }


# -- telling

INTRODUCTION = """## Durable steps

Runs of steps that return their argument: {shapes}; again and again for {seconds:g} s, at least once, after a warm-up (on SQLite until its log is reused). Every step is
durable before the next of its run begins; each contender's own store was asked afterwards whether it has every step, and its connection how durable a commit is. One process
each. Steps a second are counted from the first start to the last result. *raw* is the store alone, one row a commit: on SQLite one connection, on Postgres one or twenty. With Redis' `fsync every
second` the last second is lost with the machine (not with the process); nothing else here is measured with less than a commit on the disk.
"""

PICTURES = """![Steps a second on SQLite](benchmarks-steps-sqlite.svg)

![Steps a second on servers](benchmarks-steps-servers.svg)

![CPU a step](benchmarks-steps-cpu.svg)"""


def tables(found: Found) -> str:
    rounds = found["rounds"]
    parts = [
        INTRODUCTION.format(
            shapes=", ".join(f"{shape.runs:,} x {shape.steps}" for shape in SHAPES), seconds=found["seconds"]
        ),
        goals_table(_goals(rounds)),
        PICTURES,
        "### Steps a second\n\n" + _by_shape(rounds, lambda result: result["steps_per_second"]),
        "### Outlast's steps a second to the others', in the same round\n\n" + _ratios(rounds),
        "### CPU a step, µs: this process, and the server's\n\n" + _cpu(rounds),
        "### From the beginning of a step to the beginning of the next one of its run, ms: p50 / p99\n\n"
        "A run's wait before its first step is not in it, so who executes only some runs at a time (threads) looks better here than in the steps a second, which have it.\n\n"
        + _gaps(rounds),
        "### How each was set up\n\nThe configurations of the peers that were tried first, once each; the fastest is in the tables above.\n\n"
        + _tried(found["tried"]),
        _configs(rounds),
        f"{'; '.join(f'{name}: {pins}' for name, pins in found['packages'].items())}. {found['servers']}.",
    ]
    failures = _failures(rounds)
    if failures:
        parts.append(f"### What failed\n\n{failures}")
    parts.append(f"Load average before a measurement: {_load(rounds)}.")
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


Rounds = Sequence[Sequence[dict[str, Any]]]


def _of(rounds: Rounds, key: str, runs: int) -> list[dict[str, Any] | None]:
    """A result a round, None where it failed or was not measured."""
    return [
        next(
            (
                result
                for result in results
                if result["case"] == key and result["runs"] == runs and "failed" not in result
            ),
            None,
        )
        for results in rounds
    ]


def _spread(rounds: Rounds, key: str, runs: int, value: Callable[[dict[str, Any]], float]) -> Spread | None:
    samples = [value(result) for result in _of(rounds, key, runs) if result]
    return Spread.of(samples) if samples else None


def ratios(
    rounds: Rounds, key: str, peer: str, runs: int, value: Callable[[dict[str, Any]], float]
) -> list[float]:
    """Of the two in the same round, for every round that has both."""
    pairs = zip(_of(rounds, key, runs), _of(rounds, peer, runs), strict=True)
    return [value(ours) / value(theirs) for ours, theirs in pairs if ours and theirs and value(theirs)]


def _steps_per_second(result: dict[str, Any]) -> float:
    return float(result["steps_per_second"])


def _own_cpu(result: dict[str, Any]) -> float:
    return float(result["cpu_us"])


def _all_cpu(result: dict[str, Any]) -> float:
    return float(result["cpu_us"] + result["server_cpu_us"])


def _goals(rounds: Rounds) -> list[Goal]:
    goals = []
    for place in ("SQLite", "Postgres"):
        ours, dbos, langgraph = (f"{name} on {place}" for name in ("Outlast", "DBOS", "LangGraph"))
        hundred, lone = HUNDRED.runs, LONE.runs
        goals += [
            Goal(
                f"100 runs on {place}: steps/s to DBOS",
                50,
                ratios(rounds, ours, dbos, hundred, _steps_per_second),
            ),
            Goal(
                f"100 runs on {place}: steps/s to LangGraph",
                20,
                ratios(rounds, ours, langgraph, hundred, _steps_per_second),
            ),
            Goal(
                f"lone run on {place}: steps/s to DBOS",
                3,
                ratios(rounds, ours, dbos, lone, _steps_per_second),
            ),
            Goal(
                f"100 runs on {place}: DBOS' CPU a step to Outlast's",
                40,
                ratios(rounds, dbos, ours, hundred, _own_cpu),
            ),
        ]
        if place == "Postgres":
            both = ratios(rounds, dbos, ours, hundred, _all_cpu)
            goals.append(Goal("100 runs on Postgres: the same, with the server's CPU", 40, both))
    return goals


def _shapes_of(case: Case) -> Iterator[Shape | None]:
    return (shape if shape.runs >= case.runs_min else None for shape in SHAPES)


def _by_shape(rounds: Rounds, value: Callable[[dict[str, Any]], float]) -> str:
    rows = [
        [
            case.place,
            case.name,
            *[_cell(rounds, case, shape, spread_words, value) for shape in _shapes_of(case)],
        ]
        for case in CASES
    ]
    return table(["store", "contender", *map(str, SHAPES)], rows)


def _cell(
    rounds: Rounds,
    case: Case,
    shape: Shape | None,
    words: Callable[[Spread], str],
    value: Callable[[dict[str, Any]], float],
) -> str:
    if shape is None:
        return ""
    spread = _spread(rounds, case.key, shape.runs, value)
    if spread is None:
        return "failed" if _failed(rounds, case.key, shape.runs) else NONE
    return words(spread)


def _failed(rounds: Rounds, key: str, runs: int) -> list[str]:
    return [
        result["failed"]
        for results in rounds
        for result in results
        if result["case"] == key and result["runs"] == runs and "failed" in result
    ]


def _ratios(rounds: Rounds) -> str:
    rows = []
    for case in CASES:
        if case.contender is not OUTLAST:
            cells = []
            for shape in _shapes_of(case):
                samples = (
                    ratios(rounds, f"Outlast on {case.place}", case.key, shape.runs, _steps_per_second)
                    if shape
                    else []
                )
                cells.append(spread_words(Spread.of(samples), "x") if samples else NONE if shape else "")
            rows.append([case.place, f"to {case.name}", *cells])
    return table(["store", "Outlast", *map(str, SHAPES)], rows)


def _cpu(rounds: Rounds) -> str:
    def both(case: Case, shape: Shape | None) -> str:
        own = _cell(rounds, case, shape, spread_words, _own_cpu)
        if shape is None or case.store == "sqlite":
            return own
        server = _spread(rounds, case.key, shape.runs, lambda result: result["server_cpu_us"])
        return f"{own} + {spread_words(server)}" if server else own

    rows = [[case.place, case.name, *[both(case, shape) for shape in _shapes_of(case)]] for case in CASES]
    return table(["store", "contender", *map(str, SHAPES)], rows)


def _gaps(rounds: Rounds) -> str:
    def both(case: Case, shape: Shape | None) -> str:
        p50 = _cell(rounds, case, shape, lambda shown: _ms(shown.median), lambda result: result["p50_ms"])
        p99 = _spread(rounds, case.key, shape.runs, lambda result: result["p99_ms"]) if shape else None
        return f"{p50} / {_ms(p99.median)}" if p99 else p50

    rows = [[case.place, case.name, *[both(case, shape) for shape in _shapes_of(case)]] for case in CASES]
    return table(["store", "contender", *map(str, SHAPES)], rows)


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _tried(tried: Sequence[dict[str, Any]]) -> str:
    rows = []
    for case in CASES:
        for variant in VARIANTS.get((case.name, case.place), ()):
            of = [result for result in tried if result["case"] == case.key and result["variant"] == variant]
            by_runs = {result["runs"]: result for result in of}
            many = by_runs.get(HUNDRED.runs, {})
            rows.append(
                [
                    case.place,
                    case.name,
                    *[_tried_cell(by_runs.get(shape.runs)) for shape in (LONE, HUNDRED)],
                    many.get("config", variant),
                ]
            )
    return table(
        ["store", "contender", f"{LONE}, steps/s", f"{HUNDRED}, steps/s", "configuration (100 runs)"], rows
    )


def _tried_cell(result: dict[str, Any] | None) -> str:
    if result is None:
        return NONE
    return "failed" if "failed" in result else f"{result['steps_per_second']:,.0f}"


def _configs(rounds: Rounds) -> str:
    """What was set of those that have but one configuration."""
    rows = []
    for case in CASES:
        if (case.name, case.place) not in VARIANTS:
            found = next((result for result in _of(rounds, case.key, HUNDRED.runs) if result), None)
            rows.append([case.place, case.name, found["config"] if found else NONE])
    return table(["store", "contender", "configuration (100 runs)"], rows)


def _failures(rounds: Rounds) -> str:
    rows = [
        [result["case"], f"{result['runs']:,}", str(number), last_line([result["failed"]])]
        for number, results in enumerate(rounds, 1)
        for result in results
        if "failed" in result
    ]
    return table(["who", "runs", "round", "last words"], rows) if rows else ""


def _load(rounds: Rounds) -> str:
    spread = Spread.of([result["load"] for results in rounds for result in results])
    return f"{spread.median:.1f} ({spread.low:.1f} to {spread.high:.1f}), of which the measurement before has its share"


# -- plots


def plots(found: Found) -> dict[str, str]:
    rounds = found["rounds"]
    return {
        "benchmarks-steps-sqlite.svg": _plot(
            "Durable steps on SQLite",
            "steps/s, one process, logarithmic",
            rounds,
            ("sqlite",),
            SHAPES,
            _steps_per_second,
        ),
        "benchmarks-steps-servers.svg": _plot(
            "Durable steps on Postgres and Redis",
            "steps/s, one process, logarithmic",
            rounds,
            ("postgres", "redis"),
            SHAPES,
            _steps_per_second,
        ),
        "benchmarks-steps-cpu.svg": bars(
            "CPU a step, 100 runs at once",
            "µs of this process (not of the server), logarithmic",
            [(PLACES[store], _bars(rounds, (store,), HUNDRED, _own_cpu)) for store in PLACES],
        ),
    }


def _plot(
    title: str,
    unit: str,
    rounds: Rounds,
    kinds: Sequence[Store],
    shapes: Sequence[Shape],
    value: Callable[[dict[str, Any]], float],
) -> str:
    return bars(title, unit, [(str(shape), _bars(rounds, kinds, shape, value)) for shape in shapes])


def _bars(
    rounds: Rounds, kinds: Sequence[Store], shape: Shape, value: Callable[[dict[str, Any]], float]
) -> list[Bar]:
    return [
        Bar(
            case.name if case.store != "redis" else f"{case.name}, {case.place}",
            _spread(rounds, case.key, shape.runs, value),
            {OUTLAST: "ours", RAW: "raw"}.get(case.contender, "peer"),
            "" if _spread(rounds, case.key, shape.runs, value) else "failed",
        )
        for case in CASES
        if case.store in kinds and shape.runs >= case.runs_min
    ]


STEPS = Section("steps", measure, tables, plots)
