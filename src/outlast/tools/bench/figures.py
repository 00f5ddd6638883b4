"""Hold the measurements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from outlast.codec.percentiles import nearest_rank
from outlast.tools.bench.cpu import Cpu


@dataclass(frozen=True)
class Spread:
    """The spread of durations, in seconds."""

    count: int
    p50: float
    p99: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Self:
        """Compute the spread. There must be at least one duration."""
        ascending = sorted(seconds)
        return cls(len(ascending), nearest_rank(ascending, 0.5), nearest_rank(ascending, 0.99))

    def document(self) -> dict[str, Any]:
        return {"p50_seconds": self.p50, "p99_seconds": self.p99}


@dataclass(frozen=True)
class Steps:
    """The steps of `runs` runs at once."""

    runs: int
    count: int
    seconds: float
    cpu: Cpu
    commits: int
    latency: Spread
    """From the start of a step's body to the start of the next in the same run."""

    @property
    def per_second(self) -> float:
        return self.count / self.seconds

    @property
    def per_commit(self) -> float:
        return self.count / max(1, self.commits)

    @property
    def cpu_each(self) -> float:
        """Return the CPU seconds per step."""
        return self.cpu.used / self.count

    @property
    def cores_used(self) -> float:
        return self.cpu.used / self.seconds

    @property
    def cores_waited_for(self) -> float:
        return self.cpu.waited / self.seconds

    def document(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "steps": self.count,
            "seconds": self.seconds,
            "steps_per_second": self.per_second,
            **self.latency.document(),
            "cpu_seconds_per_step": self.cpu_each,
            "cores_used": self.cores_used,
            "cores_waited_for": self.cores_waited_for,
            "steps_per_commit": self.per_commit,
        }


@dataclass(frozen=True)
class Recovery:
    """Seconds from each kill -9 of a worker until another worker began a step of its run."""

    seconds: tuple[float, ...] = ()
    not_measured: str | None = None
    """Why recovery was not measured."""

    def document(self) -> dict[str, Any]:
        return {"seconds": list(self.seconds), "not_measured": self.not_measured}


@dataclass(frozen=True)
class Limit:
    """What limits `of`, which is lone or hundred.

    `by` is commit, cpu or store. `text` says what helps.
    """

    of: str
    by: str
    text: str

    def document(self) -> dict[str, Any]:
        return {"of": self.of, "by": self.by, "text": self.text}


@dataclass(frozen=True)
class Figures:
    store: str
    """Where the store is, without a password."""
    seconds: float
    """Duration of the whole bench."""
    commit: Spread
    lone: Steps
    hundred: Steps
    recovery: Recovery
    limits: tuple[Limit, ...]

    def document(self) -> dict[str, Any]:
        return {
            "store": self.store,
            "seconds": self.seconds,
            "commit": {"commits": self.commit.count, **self.commit.document()},
            "lone": self.lone.document(),
            "hundred": self.hundred.document(),
            "recovery": self.recovery.document(),
            "limits": [limit.document() for limit in self.limits],
        }
