"""The rows of the table: what each number means, and what it should be.

A ratio is made within a round, of two numbers measured seconds apart; then come median and range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from bench.own.rounds import Samples
from bench.spread import Spread

Numbers = dict[str, dict[str, float]]
"""One round: the numbers of each case."""


class Goal(NamedTuple):
    sign: str
    limit: float

    def met(self, value: float) -> bool:
        return {">=": value >= self.limit, "<=": value <= self.limit, "<": value < self.limit}[
            self.sign
        ]


class Row(NamedTuple):
    name: str
    unit: str
    cases: tuple[str, ...]
    """What must have been measured."""
    value: Callable[[Numbers], float]
    goal: Goal | None = None


class Result(NamedTuple):
    row: Row
    spread: Spread

    @property
    def met(self) -> bool | None:
        return self.row.goal.met(self.spread.median) if self.row.goal else None


def _of(case: str, number: str) -> Callable[[Numbers], float]:
    return lambda numbers: numbers[case][number]


def _to_raw(case: str, state: str = "") -> Callable[[Numbers], float]:
    return lambda numbers: (
        numbers[case][f"{state}steps_per_second"] / numbers["raw"][f"{state}commits_per_second"]
    )


def _thousand_to_hundred(numbers: Numbers) -> float:
    return numbers["hundred"]["steps_per_second"] / numbers["thousand"]["steps_per_second"]


def _run_rows(
    case: str, title: str, *, ratio: Goal | None = None, cpu: Goal | None = None
) -> list[Row]:
    return [
        Row(f"{title}: steps", "/s", (case,), _of(case, "steps_per_second")),
        Row(f"{title}: steps relative to raw commits", "x", (case, "raw"), _to_raw(case), ratio),
        Row(f"{title}: the same, log reused", "x", (case, "raw"), _to_raw(case, "reused_"), ratio),
        Row(f"{title}: CPU per step", "µs", (case,), _of(case, "cpu_us_per_step"), cpu),
        Row(f"{title}: commands per transaction", "", (case,), _of(case, "verbs_per_batch")),
    ]


def _store_rows(case: str, title: str, raw: str, *, goals: bool = False) -> list[Row]:
    """Return the rows of a store beside the raw server or disk."""

    def to_raw(runs: str) -> Callable[[Numbers], float]:
        return lambda numbers: (
            numbers[case][f"{runs}_steps_per_second"] / numbers[case]["commits_per_second"]
        )

    def to_ten(numbers: Numbers) -> float:
        return numbers[case]["ten_steps_per_second"] / numbers[case]["thousand_steps_per_second"]

    def goal(sign: str, limit: float) -> Goal | None:
        return Goal(sign, limit) if goals else None

    of = (case,)
    return [
        Row(f"raw {title}: {raw}", "/s", of, _of(case, "commits_per_second")),
        Row(f"{title}, 1 run x 1,000 steps", "/s", of, _of(case, "lone_steps_per_second")),
        Row(
            f"{title}, 1 run x 1,000 steps: relative to raw",
            "x",
            of,
            to_raw("lone"),
            goal(">=", 0.6),
        ),
        Row(
            f"{title}, 1 run x 1,000 steps: CPU per step",
            "µs",
            of,
            _of(case, "lone_cpu_us_per_step"),
        ),
        Row(f"{title}, 100 runs x 20 steps", "/s", of, _of(case, "hundred_steps_per_second")),
        Row(
            f"{title}, 100 runs x 20 steps: relative to raw",
            "x",
            of,
            to_raw("hundred"),
            goal(">=", 3),
        ),
        Row(
            f"{title}, 100 runs x 20 steps: CPU per step",
            "µs",
            of,
            _of(case, "hundred_cpu_us_per_step"),
        ),
        Row(
            f"{title}, 1,000 runs x 20: time per step relative to 10 x 100",
            "x",
            of,
            to_ten,
            goal("<=", 1.15),
        ),
        Row(
            f"{title}, 5,000 items, put and consumed",
            "/s",
            of,
            _of(case, "items_per_second"),
            goal(">=", 8_000),
        ),
        Row(
            f"{title}, 5,000 one-step runs",
            "/s",
            of,
            _of(case, "runs_per_second"),
            goal(">=", 2_000),
        ),
    ]


def _growth_rows(case: str, title: str) -> list[Row]:
    def ratio(name: str, *, inverse: bool = False) -> Callable[[Numbers], float]:
        small, large = f"{name}_1000", f"{name}_1000000"
        return lambda numbers: (
            numbers[case][small] / numbers[case][large]
            if inverse
            else numbers[case][large] / numbers[case][small]
        )

    return [
        Row(f"{title}, claim with 1,000,000 queued, relative to 1,000", "x", (case,), ratio("claim_ms"), Goal("<=", 2)),
        Row(
            f"{title}, time per step with 1,000,000 runs, relative to 1,000", "x", (case,),
            ratio("steps_per_second", inverse=True), Goal("<=", 1.25),
        ),
    ]  # fmt: skip


def _key_rows(case: str, title: str) -> list[Row]:
    """Return the rows of claims with keys, each relative to a queue of the same store."""

    def to(size: int, base: int) -> Callable[[Numbers], float]:
        return lambda numbers: (
            numbers[case][f"claims_per_second_{size}"] / numbers[case][f"claims_per_second_{base}"]
        )

    of, half = (case,), Goal(">=", 0.5)
    return [
        Row(
            f"{title}: runs claimed and settled, 20 at a time",
            "/s",
            of,
            _of(case, "claims_per_second_0"),
        ),
        Row(f"{title}: with 100 keys, relative to that", "x", of, to(100, 0)),
        Row(f"{title}: with 10,000 keys, relative to a plain queue", "x", of, to(10_000, 0), half),
        Row(f"{title}: with 100,000 keys, relative to 100", "x", of, to(100_000, 100), half),
    ]


def _server_rows() -> list[Row]:
    """Return the rows on the work of a PostgreSQL server."""
    of, rows = ("server",), list[Row]()
    for name, title in (
        ("hundred", "100 runs in one process"),
        ("lone", "a single run"),
        ("eight_of_five", "5 runs in each of 8"),
        ("eight_lone", "one run in each of 8"),
    ):
        rows += [
            Row(
                f"Postgres, {title}: log per step", "bytes", of, _of("server", f"{name}_log_bytes")
            ),
            Row(
                f"Postgres, {title}: its CPU per step",
                "µs",
                of,
                _of("server", f"{name}_server_cpu_us"),
            ),
        ]
    return [
        *rows,
        Row(
            "Postgres, an idle worker: transactions",
            "/s",
            of,
            _of("server", "idle_transactions_per_second"),
        ),
        Row(
            "Postgres, an idle worker: those that write",
            "/s",
            of,
            _of("server", "idle_writes_per_second"),
        ),
    ]


def _redis_to_postgres(numbers: Numbers) -> float:
    return (
        numbers["redis"]["hundred_steps_per_second"]
        / numbers["postgres"]["hundred_steps_per_second"]
    )


VIEWERS = (("viewers", "SQLite"), ("postgres_viewers", "Postgres"), ("redis_viewers", "Redis"))

ROWS = [
    Row(
        "raw SQLite: commits of one row, log growing",
        "/s",
        ("raw",),
        _of("raw", "commits_per_second"),
    ),
    Row(
        "raw SQLite: commits of one row, log reused",
        "/s",
        ("raw",),
        _of("raw", "reused_commits_per_second"),
    ),
    *_run_rows("lone", "1 run x 1,000 steps", ratio=Goal(">=", 0.6)),
    *_run_rows("hundred", "100 runs x 20 steps", ratio=Goal(">=", 5), cpu=Goal("<=", 60)),
    *_run_rows("thousand", "1,000 runs x 20 steps"),
    Row(
        "1,000 runs x 20 steps: time per step relative to 100 x 20",
        "x",
        ("hundred", "thousand"),
        _thousand_to_hundred,
        Goal("<=", 1.15),
    ),
    Row(
        "replay of 10,000 steps, start to past the last",
        "s",
        ("replay",),
        _of("replay", "seconds"),
        Goal("<", 0.5),
    ),
    Row(
        "replay of 10,000 steps: reading the journal alone",
        "s",
        ("replay",),
        _of("replay", "load_seconds"),
    ),
    Row(
        "5,000 items, put and consumed, 20 slots",
        "/s",
        ("items",),
        _of("items", "items_per_second"),
        Goal(">=", 10_000),
    ),
    Row("5,000 items: consumed alone", "/s", ("items",), _of("items", "consumed_per_second")),
    Row("5,000 items: CPU per item", "µs", ("items",), _of("items", "cpu_us_per_item")),
    Row(
        "5,000 one-step runs, submitted and executed, 20 slots",
        "/s",
        ("queue_runs",),
        _of("queue_runs", "runs_per_second"),
        Goal(">=", 3_000),
    ),
    Row(
        "5,000 one-step runs: CPU per run",
        "µs",
        ("queue_runs",),
        _of("queue_runs", "cpu_us_per_run"),
    ),
    Row("claim with 1,000 queued", "ms", ("claims",), _of("claims", "claim_ms_1000")),
    Row(
        "claim with 1,000,000 queued, relative to that",
        "x",
        ("claims",),
        lambda numbers: numbers["claims"]["claim_ms_1000000"] / numbers["claims"]["claim_ms_1000"],
        Goal("<=", 2),
    ),
    *_key_rows("keys", "SQLite"),
    *_key_rows("postgres_keys", "Postgres"),
    *_key_rows("redis_keys", "Redis"),
    Row(
        "submit to first step, idle worker: p50",
        "ms",
        ("pickup",),
        _of("pickup", "pickup_p50_ms"),
        Goal("<", 10),
    ),
    Row(
        "submit to first step, idle worker: p95", "ms", ("pickup",), _of("pickup", "pickup_p95_ms")
    ),
    Row("idle worker", "% of a core", ("pickup",), _of("pickup", "idle_percent"), Goal("<", 1)),
    Row("import outlast", "s", ("imports",), _of("imports", "outlast_seconds"), Goal("<=", 0.15)),
    Row("import asyncio alone", "s", ("imports",), _of("imports", "asyncio_seconds")),
    Row("memory after 10,000 steps of one run", "MB", ("memory",), _of("memory", "early_mb")),
    Row(
        "memory gained from there to 100,000 steps",
        "MB",
        ("memory",),
        _of("memory", "growth_mb"),
        Goal("<=", 3),
    ),
    Row("idle worker: memory", "MB", ("worker",), _of("worker", "idle_mb")),
    Row("its watchdog process: memory", "MB", ("worker",), _of("worker", "helper_mb")),
    Row(
        "a run of 20 steps of 100 bytes in flight: memory",
        "KB",
        ("worker",),
        _of("worker", "run_kb"),
    ),
    *_server_rows(),
    *_store_rows("postgres", "Postgres", "commits of one row", goals=True),
    *_store_rows("redis", "Redis, fsync always", "HSET", goals=True),
    *_store_rows("redis_everysec", "Redis, fsync every second", "HSET"),
    *_store_rows("file", "file", "lines appended and synced"),
    Row(
        "Redis (always) relative to Postgres, 100 runs x 20 steps",
        "x",
        ("redis", "postgres"),
        _redis_to_postgres,
        Goal(">=", 1),
    ),
    *_growth_rows("postgres_growth", "Postgres"),
    *_growth_rows("redis_growth", "Redis"),
    Row(
        "100 runs x 20 steps, counted and scraped: time per step, relative to uncounted",
        "x",
        ("telemetry",),
        _of("telemetry", "time_ratio"),
        Goal("<", 1.05),
    ),
    Row(
        "100 runs x 20 steps, counted and scraped: CPU per step, relative to uncounted",
        "x",
        ("telemetry",),
        _of("telemetry", "cpu_ratio"),
        Goal("<", 1.05),
    ),
    Row(
        "the same: CPU per step, counted", "µs", ("telemetry",), _of("telemetry", "cpu_us_per_step")
    ),
    Row(
        "a published token: CPU in its step",
        "µs",
        ("publish",),
        _of("publish", "cpu_us_per_token"),
        Goal("<=", 5),
    ),
    Row(
        "a published token: until a reader in another process has it (p50)",
        "ms",
        ("publish",),
        _of("publish", "p50_ms"),
    ),
    Row(
        "the same, past the throttle (`publish_interval`)",
        "ms",
        ("publish",),
        _of("publish", "p50_past_interval_ms"),
        Goal("<=", 20),
    ),
    *(
        row
        for case, store in VIEWERS
        for row in (
            Row(
                f"200 streams, five viewers each, {store}: events received",
                "share",
                (case,),
                _of(case, "events_share"),
                Goal(">=", 1),
            ),
            Row(
                f"200 streams, five viewers each, {store}: until a viewer has a token (p50)",
                "ms",
                (case,),
                _of(case, "p50_ms"),
            ),
        )
    ),
]


def results(samples: Samples) -> list[Result]:
    """Return a row for everything that these samples cover."""
    found: list[Result] = []
    for row in ROWS:
        if all(samples.get(case) for case in row.cases):
            rounds = zip(*[samples[case] for case in row.cases], strict=False)
            values = [row.value(dict(zip(row.cases, measured, strict=True))) for measured in rounds]
            found.append(Result(row, Spread.of(values)))
    return found
