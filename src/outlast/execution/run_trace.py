"""Hold what spans, metrics and logs tell about a run execution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outlast.execution.run_cost import RunCost, run_cost_of
from outlast.store.commands import Record
from outlast.store.rows import Entry, RunRow

if TYPE_CHECKING:
    from outlast.execution.tracing import ExecutionSpan


class RunTrace:
    """The facts of one execution that only telemetry needs."""

    __slots__ = ("cause", "cost", "failed_calls", "parent", "replayed", "span")

    def __init__(self, entries: Sequence[Entry], parent: RunRow | None, cause: str | None) -> None:
        self.parent = parent
        """The run that started this one, if its row was read."""
        self.cause = cause
        """What cut off the previous execution: a death or an interruption."""
        self.span: ExecutionSpan | None = None
        """The execution's span. None if the program does not trace."""
        self.replayed = 0
        """The number of recorded step results that this execution has reused and not counted."""
        self.failed_calls: dict[int, str] = {}
        """The keys of the entries whose exceptions the workflow received, by entry number."""
        self.cost: RunCost | None = run_cost_of(entries)
        """The run's durable cost. None if no entry records a cost."""

    def add_failures(self, entries: Sequence[Entry]) -> None:
        """Note all failed calls of a journal, for an execution that only compensates."""
        self.failed_calls = {entry.seq: entry.key for entry in entries if entry.error is not None}

    def call_failed(self, seq: int, key: str) -> None:
        self.failed_calls[seq] = key

    def step_replayed(self) -> None:
        self.replayed += 1

    def take_replayed(self) -> int:
        """Return the number of reused results since the last call."""
        replayed, self.replayed = self.replayed, 0
        return replayed

    def add_cost(self, record: Record) -> None:
        """Add the cost of a durable entry."""
        if self.cost is None:
            self.cost = RunCost()
        self.cost.add(record)

    def start_span(self, span: ExecutionSpan | None) -> None:
        self.span = span
