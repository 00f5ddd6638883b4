"""Make the page on durable steps from what steps.py measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.contest.contenders import OUTLAST, RAW, Store
from bench.contest.plot import Bar, bars
from bench.contest.section import Found
from bench.contest.stepcases import CASES, HUNDRED, LONE, PLACES, SHAPES, VARIANTS, Case, Shape
from bench.contest.tables import NONE, Goal, Outcome, goals_table, last_line, spread_words, table
from bench.markdown import figure
from bench.spread import Spread

INTRODUCTION = """# Durable steps

How many durable steps per second does one process execute, and what does a step cost in CPU time?

Each contender executes runs of steps that return their argument, in four sizes (runs x steps): {shapes}. After a warm-up, it repeats each size for {seconds:g} s, at least once. On SQLite, the warm-up lasts until the log is reused.

- Every step is durable before the next step of its run starts. Afterwards, each contender's own store is asked whether it has every step, and its connection how durable a commit is.
- Each contender is one process. Steps per second are counted from the first start to the last result.
- *raw* is the store alone, with one row per commit: one connection on SQLite, one or twenty on Postgres.
- With Redis and `fsync every second`, the last second is lost with the machine, but not with the process. Everything else waits until a commit is on the disk.
"""

PICTURES = """![Steps per second on SQLite](benchmarks-steps-sqlite.svg)

![Steps per second on servers](benchmarks-steps-servers.svg)

![CPU per step](benchmarks-steps-cpu.svg)"""


def outcomes(found: Found) -> list[Outcome]:
    return [goal.outcome for goal in _goals(found["rounds"], found["tried"])]


def tables(found: Found) -> str:
    rounds = found["rounds"]
    parts = [
        INTRODUCTION.format(
            shapes=", ".join(f"{shape.runs:,} x {shape.steps}" for shape in SHAPES),
            seconds=found["seconds"],
        ),
        "## Goals\n\n" + goals_table(_goals(rounds, found["tried"])),
        PICTURES,
        "## Steps per second\n\n" + _by_shape(rounds, lambda result: result["steps_per_second"]),
        "## Ratios\n\nOutlast's steps per second, divided by those of another contender in the same round.\n\n"
        + _ratios(rounds),
        "## CPU per step\n\nIn µs: the process, plus the server.\n\n" + _cpu(rounds),
        "## Latency\n\nFrom the start of a step to the start of the next step of its run, in ms: p50 / p99.\n\n"
        "The wait of a run before its first step is not included. So a contender that executes only some runs at a time, in threads, looks better here than in steps per second, which include that wait.\n\n"
        + _gaps(rounds),
        "## Configuration\n\nThese configurations of the peers were tried first, once each. The tables above use the fastest.\n\n"
        + _tried(found["tried"]),
        _configs(rounds),
        f"{'; '.join(f'{name}: {pins}' for name, pins in found['packages'].items())}. {found['servers']}.",
    ]
    failures = _failures(rounds)
    if failures:
        parts.append(f"## What failed\n\n{failures}")
    parts.append(f"Load average before a measurement: {_load(rounds)}.")
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


Rounds = Sequence[Sequence[dict[str, Any]]]


def _of(rounds: Rounds, key: str, runs: int) -> list[dict[str, Any] | None]:
    """Return one result per round, None if it failed or was not measured."""
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


def _spread(
    rounds: Rounds, key: str, runs: int, value: Callable[[dict[str, Any]], float]
) -> Spread | None:
    samples = [value(result) for result in _of(rounds, key, runs) if result]
    return Spread.of(samples) if samples else None


def ratios(
    rounds: Rounds, key: str, peer: str, runs: int, value: Callable[[dict[str, Any]], float]
) -> list[float]:
    """Return the ratio of the two in every round that has both."""
    pairs = zip(_of(rounds, key, runs), _of(rounds, peer, runs), strict=True)
    return [
        value(ours) / value(theirs) for ours, theirs in pairs if ours and theirs and value(theirs)
    ]


def _steps_per_second(result: dict[str, Any]) -> float:
    return float(result["steps_per_second"])


def _own_cpu(result: dict[str, Any]) -> float:
    return float(result["cpu_us"])


def _all_cpu(result: dict[str, Any]) -> float:
    return float(result["cpu_us"] + result["server_cpu_us"])


def _goals(rounds: Rounds, tried: Sequence[dict[str, Any]]) -> list[Goal]:
    goals = []
    for place in ("SQLite", "Postgres"):
        ours, dbos, langgraph = (f"{name} on {place}" for name in ("Outlast", "DBOS", "LangGraph"))
        hundred, lone = HUNDRED.runs, LONE.runs
        goals += [
            Goal(
                f"100 runs on {place}: steps/s, Outlast / DBOS",
                50,
                ratios(rounds, ours, dbos, hundred, _steps_per_second),
                _limit(rounds, tried, place),
            ),
            Goal(
                f"100 runs on {place}: steps/s, Outlast / LangGraph",
                20,
                ratios(rounds, ours, langgraph, hundred, _steps_per_second),
            ),
            Goal(
                f"1 run on {place}: steps/s, Outlast / DBOS",
                3,
                ratios(rounds, ours, dbos, lone, _steps_per_second),
            ),
            Goal(
                f"100 runs on {place}: CPU per step, DBOS / Outlast",
                40,
                ratios(rounds, dbos, ours, hundred, _own_cpu),
            ),
        ]
        if place == "Postgres":
            both = ratios(rounds, dbos, ours, hundred, _all_cpu)
            name = "100 runs on Postgres: CPU per step with the server, DBOS / Outlast"
            goals.append(Goal(name, 40, both))
    return goals


def _limit(rounds: Rounds, tried: Sequence[dict[str, Any]], place: str) -> str:
    """Return how much of a core the process uses, and the effect of the peer's configuration."""
    ours = f"Outlast on {place}"
    cpu = _spread(rounds, ours, HUNDRED.runs, _own_cpu)
    rate = _spread(rounds, ours, HUNDRED.runs, _steps_per_second)
    if cpu is None or rate is None:
        return ""
    core = f"**What limits {place}**: one process uses at most one core. {figure(cpu.median)} µs of CPU per step, {figure(rate.median)} times per second, is {cpu.median * rate.median / 1e4:.0f} % of it."
    rates = {
        result["variant"]: result["steps_per_second"]
        for result in tried
        if result["case"] == f"DBOS on {place}"
        and result["runs"] == HUNDRED.runs
        and "failed" not in result
    }
    if "plain" not in rates or max(rates.values()) == rates["plain"]:
        return core
    times = max(rates.values()) / rates["plain"]
    return f"{core} DBOS is measured in a [configuration](#configuration) that is {figure(times)} times as fast as its default. Against the default, the ratio would be {figure(times)} times higher."


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
                    ratios(
                        rounds, f"Outlast on {case.place}", case.key, shape.runs, _steps_per_second
                    )
                    if shape
                    else []
                )
                cells.append(
                    spread_words(Spread.of(samples), "x") if samples else NONE if shape else ""
                )
            rows.append([case.place, case.name, *cells])
    return table(["store", "Outlast divided by", *map(str, SHAPES)], rows)


def _cpu(rounds: Rounds) -> str:
    def both(case: Case, shape: Shape | None) -> str:
        own = _cell(rounds, case, shape, spread_words, _own_cpu)
        if shape is None or case.store == "sqlite":
            return own
        server = _spread(rounds, case.key, shape.runs, lambda result: result["server_cpu_us"])
        return f"{own} + {spread_words(server)}" if server else own

    rows = [
        [case.place, case.name, *[both(case, shape) for shape in _shapes_of(case)]]
        for case in CASES
    ]
    return table(["store", "contender", *map(str, SHAPES)], rows)


def _gaps(rounds: Rounds) -> str:
    def both(case: Case, shape: Shape | None) -> str:
        p50 = _cell(
            rounds, case, shape, lambda shown: _ms(shown.median), lambda result: result["p50_ms"]
        )
        p99 = (
            _spread(rounds, case.key, shape.runs, lambda result: result["p99_ms"])
            if shape
            else None
        )
        return f"{p50} / {_ms(p99.median)}" if p99 else p50

    rows = [
        [case.place, case.name, *[both(case, shape) for shape in _shapes_of(case)]]
        for case in CASES
    ]
    return table(["store", "contender", *map(str, SHAPES)], rows)


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _tried(tried: Sequence[dict[str, Any]]) -> str:
    rows = []
    for case in CASES:
        for variant in VARIANTS.get((case.name, case.place), ()):
            of = [
                result
                for result in tried
                if result["case"] == case.key and result["variant"] == variant
            ]
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
        [
            "store",
            "contender",
            f"{LONE}, steps/s",
            f"{HUNDRED}, steps/s",
            "configuration (100 runs)",
        ],
        rows,
    )


def _tried_cell(result: dict[str, Any] | None) -> str:
    if result is None:
        return NONE
    return "failed" if "failed" in result else f"{result['steps_per_second']:,.0f}"


def _configs(rounds: Rounds) -> str:
    """Return the configuration of each contender that has only one."""
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
    return table(["contender", "runs", "round", "last output"], rows) if rows else ""


def _load(rounds: Rounds) -> str:
    spread = Spread.of([result["load"] for results in rounds for result in results])
    return f"{spread.median:.1f} ({spread.low:.1f} to {spread.high:.1f}), partly caused by the previous measurement"


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
            "CPU per step, 100 runs at once",
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
