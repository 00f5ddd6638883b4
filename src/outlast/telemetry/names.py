"""Define every metric that `/metrics` exports.

Tests compare docs/telemetry.md and a real scrape with this table.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]

OPEN = frozenset({"queue", "workflow", "step", "unit"})
"""Labels whose values come from the program. Their number is bounded: further ones become `other`.
"""
OTHER = "other"

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
RECOVERY_SECONDS = (
    0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 300.0, 900.0,
    3_600.0, 14_400.0, 86_400.0,
)  # fmt: skip
COMMIT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
COMMANDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)

DRAIN_ENDS = ("completed", "released", "waiting", "checkpointed", "not_started", "left")
"""The outcomes of what a process holds when it drains."""
STATUSES = ("delayed", "running", "waiting", "parked", "dead", "returned", "undoing", "stuck")
QUANTILES = ("0.5", "0.95", "1")
RECENT_SECONDS = 900.0
"""The window of `outlast_recent_…`."""


class Metric(NamedTuple):
    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    values: tuple[tuple[str, ...], ...] = ()
    """The label values, if all are known beforehand. These series exist from the start, at 0."""
    buckets: tuple[float, ...] = ()


def _each(*values: str) -> tuple[tuple[str, ...], ...]:
    return tuple((value,) for value in values)


def _counter(
    name: str, help: str, *labels: str, values: tuple[tuple[str, ...], ...] | None = None
) -> Metric:
    return Metric(name, "counter", labels, help, ((),) if not labels else values or ())


def _gauge(name: str, help: str, *labels: str) -> Metric:
    return Metric(name, "gauge", labels, help)


STARTED = _gauge(
    "outlast_start_time_seconds", "When this process began to count, in seconds since 1970."
)
READY = _gauge("outlast_ready", "1 while this process takes work.")
DRAINING = _gauge("outlast_draining", "1 while this process drains.")
IN_FLIGHT = _gauge("outlast_in_flight", "Runs and items that this process holds.")
RUNS_IN_FLIGHT = _gauge("outlast_runs_in_flight", "Runs that execute here.")
SLOTS = _gauge(
    "outlast_slots", "How many claimed runs this process executes at once; 0 if it claims none."
)

STEPS = _counter(
    "outlast_steps_total",
    "Steps that ended here, and failed attempts that are retried.",
    "workflow", "step", "kind", "end",
)  # fmt: skip
STEP_SECONDS = Metric(
    "outlast_step_seconds",
    "histogram",
    ("workflow", "step"),
    "Duration of successful attempts.",
    (),
    SECONDS,
)
REPLAYED = _counter(
    "outlast_replayed_steps_total",
    "Recorded results that were used again instead of executing.",
    "workflow",
)
RUNS = _counter(
    "outlast_runs_total", "Executions of runs that ended here, by outcome.", "workflow", "end"
)
ITEMS = _counter(
    "outlast_items_total", "Work items that this process no longer holds.", "queue", "end"
)
UNITS = _counter(
    "outlast_units_total", "Units that ended here.", "end", values=_each("committed", "rolled_back")
)

COMMIT_COMMANDS = Metric(
    "outlast_commit_commands",
    "histogram",
    (),
    "Commands written in one transaction.",
    ((),),
    COMMANDS,
)
COMMIT_SECONDS_TAKEN = Metric(
    "outlast_commit_seconds", "histogram", (), "Duration of a transaction.", ((),), COMMIT_SECONDS
)
COMMIT_FAILURES = _counter(
    "outlast_commit_failures_total",
    "Transactions that failed.",
    "kind",
    values=_each("unavailable", "unknown", "bad_value", "fault"),
)
STALE_WRITES = _counter(
    "outlast_stale_writes_total", "Commands that the store refused because of their fence."
)
LEASES_LOST = _counter(
    "outlast_leases_lost_total", "How often this process was considered dead while it was alive."
)
STALLS = _counter(
    "outlast_loop_stalls_total",
    "How often a step, or a workflow's own code, blocked the event loop.",
    "workflow",
    "step",
)
STALL_SECONDS = _counter(
    "outlast_loop_stall_seconds_total",
    "How long these stalls blocked the event loop.",
    "workflow",
    "step",
)
DEATHS = _counter("outlast_deaths_total", "Workers that this process found dead.")
RECOVERY = Metric(
    "outlast_recovery_seconds",
    "histogram",
    ("cause",),
    "From the last heartbeat of the old worker, or its release of a run, to the takeover here.",
    _each("interruption", "death"),
    RECOVERY_SECONDS,
)
COMPENSATIONS = _counter(
    "outlast_compensations_total",
    "Compensations that were registered, executed, or left to a person.",
    "end",
    values=_each("registered", "done", "failed"),
)
DEAD_LETTERS = _counter(
    "outlast_dead_letters_total", "Runs and items that became dead letters here.", "queue"
)
PARKED = _counter("outlast_parked_total", "Runs that were parked here.", "queue")
COST_SAVED = _counter(
    "outlast_cost_saved_total",
    "Recorded cost of runs that this process took over after a death or an interruption.",
    "unit",
)

DRAIN_SECONDS = _gauge(
    "outlast_drain_seconds", "From the start of this process's drain until now, or until its end."
)
DRAIN_RUNS = _counter(
    "outlast_drain_runs_total",
    "Outcomes of what this process held when its drain began.",
    "end",
    values=_each(*DRAIN_ENDS, "not_checkpointed"),
)

QUEUE_DEPTH = _gauge(
    "outlast_queue_depth", "Runs and items that are queued and due, in the whole store.", "queue"
)
QUEUE_OLDEST = _gauge(
    "outlast_queue_oldest_seconds", "Age of the oldest run or item that is due.", "queue"
)
QUEUE_RUNS = _gauge(
    "outlast_queue_runs", "Runs and items by status, in the whole store.", "queue", "status"
)
QUEUE_RETURNED = _gauge(
    "outlast_queue_returned_seconds", "The longest wait of a run that was interrupted.", "queue"
)
RECENT_DRAINS = _gauge(
    "outlast_recent_drains", "Drains of all workers that ended in the last 15 minutes.", "end"
)
RECENT_DRAIN_RUNS = _gauge(
    "outlast_recent_drain_runs", "Outcomes of what those workers held.", "end"
)
RECENT_DRAIN_SECONDS = _gauge(
    "outlast_recent_drain_seconds",
    "Duration of those drains; until the last heartbeat, if a drain was cut short.",
    "quantile",
)
RECENT_NOT_CHECKPOINTED = _gauge(
    "outlast_recent_not_checkpointed",
    "Steps that did not stop in those drains although they were asked to.",
)
WORKERS = _gauge("outlast_workers", "Workers that have the store open.", "status")
STORE_UP = _gauge("outlast_store_up", "1 if the last poll of the store succeeded.")
STORE_AGE = _gauge(
    "outlast_store_age_seconds",
    "Age of what is shown of the store: depths, drains and workers (quick), or the rest (whole).",
    "kind",
)

METRICS = (
    STARTED, READY, DRAINING, IN_FLIGHT, RUNS_IN_FLIGHT, SLOTS,
    STEPS, STEP_SECONDS, REPLAYED, RUNS, ITEMS, UNITS,
    COMMIT_COMMANDS, COMMIT_SECONDS_TAKEN, COMMIT_FAILURES, STALE_WRITES, LEASES_LOST,
    STALLS, STALL_SECONDS, DEATHS, RECOVERY,
    COMPENSATIONS, DEAD_LETTERS, PARKED, COST_SAVED, DRAIN_SECONDS, DRAIN_RUNS,
    QUEUE_DEPTH, QUEUE_OLDEST, QUEUE_RUNS, QUEUE_RETURNED,
    RECENT_DRAINS, RECENT_DRAIN_RUNS, RECENT_DRAIN_SECONDS, RECENT_NOT_CHECKPOINTED,
    WORKERS, STORE_UP, STORE_AGE,
)  # fmt: skip
