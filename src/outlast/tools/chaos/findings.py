"""Define what the checks cover and collect what they find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from outlast.store.protocol import Store
from outlast.store.rows import RunRow
from outlast.tools.chaos.ledger_summary import LedgerSummary
from outlast.tools.chaos.recovery_times import ExecutionEnd
from outlast.tools.chaos.verdict import Check

ASKS = {
    "ended": "every run has ended as its workload expects; in a store in use: no run that could "
    "continue has waited longer than the objective",
    "none lost": "everything that was acknowledged is in the store, and no journal lacks an entry",
    "no action twice": "no effect acted twice, and none was compensated twice",
    "no stale fence": "nothing was written, in the store or outside, under an outdated fence",
    "compensated": "every effect of a run that failed, was cancelled or abandoned is compensated, "
    "newest first; no ended run has an open effect",
    "dead letters and parked": "no run is a dead letter, and none waits for a person",
    "recovery": "every run that lost its worker continued within the objective",
    "redone": "no step was executed again after its result was recorded",
    "drains": "every worker that was asked to stop exited within its grace",
}


@dataclass
class Scope:
    """Describe what to check, and what is known besides the store."""

    since: float
    """By the store's clock. The check skips runs that ended earlier."""
    objective: float = 30.0
    """Seconds within which a run must continue after it lost its worker."""
    queues: frozenset[str] | None = None
    """Check only these queues. None means all."""
    over: bool = False
    """Whether the work is over and all workers are gone: a run that has not ended never will."""
    thorough: bool = False
    """Also read the journals of runs that finished in one execution."""
    summary: LedgerSummary | None = None
    acknowledged: Sequence[str] | None = None
    """Ids of submissions that the store acknowledged."""
    amiss: Callable[[RunRow], str | None] = lambda _: None
    """Return what is wrong with a run's outcome by the workload's rules.

    None means that nothing is wrong, or that the workload has no rule for it.
    """
    recovered: Callable[[str, ExecutionEnd, ExecutionEnd | None], float | None] | None = None
    """Return the seconds from the end of an execution until the run's next claim.

    Set this if there is a better source than the journal.
    """
    looked: Callable[[int], None] = lambda _: None
    """Called with the number of runs checked so far."""


@dataclass
class Findings:
    """Collect the findings of all checks."""

    checks: dict[str, Check] = field(
        default_factory=lambda: {name: Check(name, asks) for name, asks in ASKS.items()}
    )
    runs: int = 0
    items: int = 0
    entries: int = 0
    passed_over: int = 0
    """Runs that finished in one execution, or were pruned during the check."""
    restless: int = 0
    """Runs that kept changing."""
    recoveries: dict[str, list[float]] = field(
        default_factory=lambda: {"interruption": [], "death": []}
    )
    untimed: int = 0
    deaths: int = 0
    interruptions: int = 0
    unfenced: int = 0
    backlog: int = 0
    suspects: int = 0
    nobody: int = 0
    abandoned: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    there: set[str] = field(default_factory=set)
    full: frozenset[str] | None = None
    """Queues at their concurrency limit.

    Computed on first use, because the store scans every run for it.
    """

    def is_full(self, store: Store, queue: str) -> bool:
        if self.full is None:
            rows = [row for row in store.queues() if row.concurrency_max is not None]
            self.full = frozenset(
                row.name for row in rows if row.running >= (row.concurrency_max or 0)
            )
        return queue in self.full

    def __getitem__(self, name: str) -> Check:
        return self.checks[name]
