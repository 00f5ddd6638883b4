"""Hold the facts that the demo's claims are checked against.

They come from the store, the requests that the fake services received, and the worker processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from outlast.engine.inspection import EffectInfo
from outlast.execution.journal import Journal
from outlast.execution.run_cost import RunCost
from outlast.shutdown.report import DrainReport
from outlast.store.rows import Entry, RunRow
from outlast.tools.demo.fake_services import Traffic
from outlast.tools.demo.view import Event


class RunFacts(NamedTuple):
    """The row and the journal of a run."""

    row: RunRow
    entries: tuple[Entry, ...]

    @property
    def keys(self) -> list[str]:
        """Return the idempotency keys of the effects that happened."""
        effects = EffectInfo.of(Journal(self.entries).effect_log)
        return [effect.key for effect in effects if effect.state == "happened"]

    @property
    def saved(self) -> int:
        """Return the tokens of the steps that were recorded when the run lost a worker."""
        return int(RunCost(self.entries).saved.document().get("tokens", 0))

    @property
    def steps(self) -> int:
        """Return how many steps and effects are recorded."""
        return sum(entry.kind == "step" for entry in self.entries)

    def document(self) -> dict[str, Any]:
        """Return the facts for `--json`."""
        row = self.row
        counts = {"deaths": row.deaths, "interruptions": row.interruptions, "steps": self.steps}
        return {"status": row.status, **counts, "tokens_saved": self.saved}


@dataclass
class Facts:
    seconds: float
    events: list[Event]
    runs: dict[str, RunFacts]
    traffic: Traffic
    exit_codes: dict[str, int]
    """By worker name."""
    surprises: list[str]
    """One sentence for each worker that exited without a signal."""
    sigterm_at: float
    """When A got SIGTERM, by `time.time()`."""
    drain: DrainReport | None
    """The drain report of A."""

    @property
    def steps(self) -> int:
        return sum(run.steps for run in self.runs.values())

    @property
    def saved(self) -> int:
        return sum(run.saved for run in self.runs.values())
