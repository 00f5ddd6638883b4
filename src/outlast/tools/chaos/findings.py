"""What the checks are asked, of what, and what they have found so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from outlast.store.protocol import Store
from outlast.store.rows import RunRow
from outlast.tools.chaos.journal_audit import ExecutionEnd
from outlast.tools.chaos.ledger_summary import LedgerSummary
from outlast.tools.chaos.verdict import Check

ASKS = {
    "ended": "every run has ended, as the workload means it; on a store that lives: none that could go on has waited for longer than the objective",
    "none lost": "everything that was acknowledged is there, and no journal lacks an entry",
    "no action twice": "nothing was done outside twice, nor undone twice",
    "no stale fence": "nothing was written, inside or outside, under a fence that another had overtaken",
    "compensated": "of every run that failed, was cancelled or abandoned, all that it had done is undone, newest first; no ended run has anything open",
    "dead letters and parked": "no run is a dead letter, and none waits for a person",
    "recovery": "every run that lost its worker went on within the objective",
    "redone": "no step was executed again after its result was on record",
    "drains": "every worker that was told to end was gone when its grace was over",
}


@dataclass
class Scope:
    """What is looked at, and what is known beside the store."""

    since: float
    """By the store's clock. Runs that ended earlier are passed over."""
    objective: float = 30.0
    """Seconds in which a run must go on after its worker was lost."""
    queues: frozenset[str] | None = None
    """Only these; None: all."""
    over: bool = False
    """The work is over, and nobody works any more: what has not ended will not."""
    thorough: bool = False
    """Read the journals also of runs that were done in one life."""
    summary: LedgerSummary | None = None
    acknowledged: Sequence[str] | None = None
    """The ids of what was submitted and acknowledged."""
    amiss: Callable[[RunRow], str | None] = lambda _: None
    """What is wrong with how a run has ended, as the workload means it; None if nothing is, or nothing is said of it."""
    recovered: Callable[[str, ExecutionEnd, ExecutionEnd | None], float | None] | None = None
    """Seconds from the end of a life of a run until its next claim, where somebody knows better than the journal."""
    looked: Callable[[int], None] = lambda _: None
    """Told how many runs were looked at so far."""


@dataclass
class Findings:
    """The checks as they are made."""

    checks: dict[str, Check] = field(
        default_factory=lambda: {name: Check(name, asks) for name, asks in ASKS.items()}
    )
    runs: int = 0
    items: int = 0
    entries: int = 0
    passed_over: int = 0
    """Runs that were done in one life, or were pruned meanwhile."""
    restless: int = 0
    """Runs that did not hold still."""
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
    """Queues that execute as much as their limits allow; looked at when first asked for, as that looks at every run."""

    def is_full(self, store: Store, queue: str) -> bool:
        if self.full is None:
            rows = [row for row in store.queues() if row.concurrency_max is not None]
            self.full = frozenset(
                row.name for row in rows if row.running >= (row.concurrency_max or 0)
            )
        return queue in self.full

    def __getitem__(self, name: str) -> Check:
        return self.checks[name]
