"""Define the drain report: the result of a drain, as it is stored, logged, counted and shown."""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from outlast.codec.percentiles import nearest_rank
from outlast.codec.text import iso
from outlast.store.rows import DrainRow

T = TypeVar("T")
_OF_THE_ROW = frozenset({"worker", "host", "pid", "began", "recoveries"})
"""Fields that the store keeps in its own columns."""
UNREADABLE_REPORT = "its report cannot be read by this version of Outlast"


@dataclass(frozen=True, slots=True)
class Remaining:
    """Work that was still in flight at the end."""

    what: str
    """run, item, unit, each, map or agent (`run_until_drain`)."""
    id: str
    step: str | None = None
    seconds: float | None = None
    """How long it had been in flight."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class CleanupResult:
    """The result of one clean-up hook, or of the lifespan."""

    name: str
    seconds: float
    error: str | None = None


@dataclass(slots=True)
class DrainReport:
    """The result of a drain. If it was cut short, only `left` and the times are known."""

    worker: str
    reason: str = ""
    host: str = ""
    pid: int = 0
    began: datetime | None = None
    seconds: float | None = None
    """From the first sign to the report. If the drain was cut short, to the last sign of life."""
    layers: dict[str, float] = field(default_factory=dict)
    """Seconds from the first sign to the end of each layer.

    The layers are coordinate, boundary, checkpoint and exit.
    """
    completed: int = 0
    """Runs that ended during the drain, and items that were acked or nacked."""
    released: int = 0
    """Runs released at a step boundary."""
    waiting: int = 0
    """Runs released that only waited."""
    checkpointed: int = 0
    """Runs released after a step got the request to stop."""
    not_started: int = 0
    """Runs and items released before they had started."""
    compensations: int = 0
    """Layer 4: recorded compensations of the runs that were released, waiting or checkpointed.

    The worker that takes a run over uses them to compensate what it must.
    """
    cost: dict[str, float] = field(default_factory=dict)
    """Recorded cost of the runs that were released, waiting or checkpointed.

    It need not be spent again. The keys are names such as tokens and usd.
    """
    left: list[Remaining] = field(default_factory=list)
    """Work that still executed at the end, and why."""
    not_checkpointed: list[str] = field(default_factory=list)
    """Steps that got the request to stop and did not.

    Effects are not listed, because a drain does not stop them.
    """
    blocked: list[str] = field(default_factory=list)
    """What delayed the drain: a blocked event loop, a store that did not answer."""
    units: dict[str, int] = field(default_factory=dict)
    """Numbers of units: committed and rolled_back."""
    cleanup: list[CleanupResult] = field(default_factory=list)
    cut_short: bool = False
    """Whether the process was gone before it wrote its report. The sweeper then wrote it."""
    recoveries: dict[str, float] = field(default_factory=dict)
    """Recoveries of the interrupted runs by other workers.

    `count` is their number; `p50`, `p95` and `max` are the seconds they took.
    """

    def document(self) -> dict[str, Any]:
        """Return the report as a JSON-compatible dict."""
        return asdict(self) | {"began": self.began.isoformat() if self.began else None}

    def summary(self) -> str:
        """Return the result of the drain as one sentence, for the log."""
        counts = {
            "completed": self.completed,
            "released": self.released,
            "waiting": self.waiting,
            "checkpointed": self.checkpointed,
            "not started": self.not_started,
            "left behind": len(self.left),
        }
        counted = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        return (
            f"Worker {self.worker} drained in {self.seconds or 0.0:.2f} s ({self.reason}): "
            f"{counted or 'nothing was in flight'}. "
            f"`outlast drains {self.worker}` shows the report."
        )

    def text(self) -> str:
        """Return the JSON text that the store keeps, without the fields in its own columns.

        Those are worker, host, pid and began, and the recoveries, which come later.
        """
        document = self.document()
        for name in _OF_THE_ROW:
            del document[name]
        return json.dumps(document)

    @classmethod
    def of(cls, row: DrainRow) -> DrainReport:
        """Build a report from a stored row.

        For a drain in progress, the report says only that it began. If the report cannot be read,
        for example because another version wrote it, it has only the store's own columns.
        """
        try:
            return cls._read(row)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            report = cls._read(row._replace(report=None))
            report.blocked.append(UNREADABLE_REPORT)
            return report

    @classmethod
    def _read(cls, row: DrainRow) -> DrainReport:
        recorded: dict[str, Any] = json.loads(row.report) if row.report else {}
        why = recorded.get("why", "")
        left = [
            _known(
                Remaining, one if isinstance(one, dict) else {"what": "run", "id": one, "why": why}
            )
            for one in recorded.pop("left", ())
        ]
        cleanup = [_known(CleanupResult, one) for one in recorded.pop("cleanup", ())]
        known = {
            name: value for name, value in recorded.items() if name in cls.__dataclass_fields__
        }
        until = recorded.get("seen") if known.get("cut_short") else row.ended
        if isinstance(until, (int, float)) and isinstance(row.began, (int, float)):
            known.setdefault("seconds", max(0.0, until - row.began))
        columns = {
            "worker": str(row.worker),
            "host": str(row.host),
            "pid": row.pid,
            "reason": str(row.reason) if row.reason else known.get("reason", ""),
            "began": _moment(row.began),
            "recoveries": _spread(row.recoveries),
        }
        report = cls(**{**known, **columns, "left": left, "cleanup": cleanup})
        report._check()
        return report

    def _check(self) -> None:
        """Raise TypeError if a field has a type that no drain writes.

        Readers rely on these types.
        """
        empty = DrainReport("")
        for name in self.__dataclass_fields__.keys() - _OF_THE_ROW - {"seconds"}:
            _must_be(type(getattr(empty, name)), getattr(self, name))
        for amounts in (self.layers, self.cost, self.units):
            for amount in amounts.values():
                _must_be((int, float), amount)
        for seconds in (self.seconds, *(one.seconds for one in self.left)):
            _must_be((int, float, type(None)), seconds)
        for one in self.left:
            _must_be(str, one.what, one.id, one.step or "", one.why)
        for done in self.cleanup:
            _must_be(str, done.name, done.error or "")
            _must_be((int, float), done.seconds)


def drain_document(row: DrainRow) -> dict[str, Any]:
    """Return a drain as `outlast drains --json` lists it."""
    report = DrainReport.of(row)
    return report.document() | {"began": iso(report.began.timestamp()) if report.began else None}


def _must_be(kind: type | tuple[type, ...], *values: object) -> None:
    if not all(isinstance(value, kind) for value in values):
        raise TypeError(
            "a stored drain report is damaged: unexpected types "
            f"{[type(value).__name__ for value in values]}"
        )


def _moment(seconds: float) -> datetime | None:
    """Return the time as a datetime, or None if it is out of range or no number."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError, TypeError):
        return None


def _known(kind: type[T], recorded: dict[str, Any]) -> T:
    """Build an object from the fields this version knows.

    Another version may have written others.
    """
    fields = kind.__dataclass_fields__  # type: ignore[attr-defined]
    required = {"what": "", "id": "", "name": "", "seconds": 0.0}
    defaults = {
        name: required[name] if one.default is MISSING else one.default
        for name, one in fields.items()
    }
    return kind(**{name: recorded.get(name, default) for name, default in defaults.items()})


def _spread(seconds: tuple[float, ...]) -> dict[str, float]:
    if not seconds:
        return {}
    return {
        "count": len(seconds),
        "p50": nearest_rank(seconds, 0.5),
        "p95": nearest_rank(seconds, 0.95),
        "max": seconds[-1],
    }
