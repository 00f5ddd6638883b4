"""Name the states of a run execution, why it stops, and what becomes of its run."""

from __future__ import annotations

from enum import Enum, IntEnum, StrEnum, auto
from typing import Any, NamedTuple, Self

from outlast.errors import Diverged, Evicted, NotInRun, StoreError
from outlast.store.commands import FENCE, Refused, Settle


class ExecutionState(IntEnum):
    """The state of a run execution. It only grows."""

    REPLAYING = 0
    """Recorded entries are delivered, and no call starts."""
    LIVE = 1
    """The journal is replayed. Calls start, and their outcomes are recorded."""
    STOPPING = 2
    """The execution has an end reason. Calls raise it, and nothing is recorded."""
    ENDING = 3
    """The workflow's tasks have ended. Late outcomes of effects are still recorded."""
    HUNG = 4
    """The app closed while code of the run still executes. The last command is not written."""
    ENDED = 5
    """The store has answered the last command, or the run was lost."""


class EndKind(Enum):
    """Why a run execution stops."""

    RETURNED = auto()
    """The workflow has returned or raised."""
    REFUSED = auto()
    """The workflow's own code made a forbidden call."""
    DIVERGED = auto()
    """The code does not match the journal, or the journal cannot be read."""
    PARKED = auto()
    """A person must decide."""
    WAITING = auto()
    """The run only waits and needs no process."""
    RELEASED = auto()
    """Another execution continues the run."""
    LOST = auto()
    """This process no longer owns the run, or the store did not accept a write."""


class IdleState(NamedTuple):
    """What a run waits for while nothing of it is in flight."""

    due: float
    names: tuple[str, ...]
    children: tuple[str, ...]
    entry: int
    """The number of the run's last entry."""
    seen: int
    """The number of the last message that the run knows."""


class EndReason(NamedTuple):
    """Why a run execution stops. Every later call of the run raises `error`."""

    kind: EndKind
    error: BaseException
    wait: IdleState | None = None
    """What a WAITING run waits for."""
    delay: float | None = None
    """The seconds until another worker may take over a RELEASED run. None for at once."""
    cause: Exception | None = None
    """The forbidden call of a REFUSED run, or the store's error of a LOST one."""

    @classmethod
    def returned(cls) -> Self:
        return cls(EndKind.RETURNED, Evicted("the run has ended"))

    @classmethod
    def refused(cls, error: NotInRun) -> Self:
        return cls(EndKind.REFUSED, Evicted(f"the run was stopped: {error}"), cause=error)

    @classmethod
    def diverged(cls, error: Diverged) -> Self:
        return cls(EndKind.DIVERGED, error)

    @classmethod
    def parked(cls, why: str) -> Self:
        return cls(EndKind.PARKED, Evicted(why))

    @classmethod
    def waiting(cls, wait: IdleState) -> Self:
        return cls(EndKind.WAITING, Evicted("it waits"), wait=wait)

    @classmethod
    def released(cls, why: str, delay: float | None = None) -> Self:
        return cls(EndKind.RELEASED, Evicted(why), delay=delay)

    @classmethod
    def lost(cls, why: str, cause: StoreError | None = None) -> Self:
        """Return the reason for a run that this process cannot release.

        With a cause, callers that wait for the run get that error.
        """
        return cls(EndKind.LOST, Evicted(why), cause=cause)

    @classmethod
    def write_failed(cls, outcome: Any) -> Self:
        """Return the reason after the store refused or did not accept a write."""
        if isinstance(outcome, Refused) and outcome.why == FENCE:
            return cls.lost("another worker has taken over the run: this one was considered dead")
        if isinstance(outcome, StoreError):
            return cls.lost(f"the store did not take an entry: {outcome}", outcome)
        return cls.lost(f"the store refused an entry: {outcome}")

    def __str__(self) -> str:
        return str(self.error)


class OutcomeKind(StrEnum):
    """What became of a run. The first five are also statuses of runs."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEAD = "dead"
    PARKED = "parked"
    UNDOING = "undoing"
    """The workflow has ended, and another execution compensates the run first."""
    WAITING = "waiting"
    RELEASED = "released"
    LOST = "lost"
    HUNG = "hung"
    """The app closed while code of the run still executed."""


STATUSES = frozenset(
    {
        OutcomeKind.DONE,
        OutcomeKind.FAILED,
        OutcomeKind.CANCELLED,
        OutcomeKind.DEAD,
        OutcomeKind.PARKED,
    }
)


class RunOutcome(NamedTuple):
    """What became of a run when an execution of it ended."""

    kind: OutcomeKind
    value: str | None = None
    error: str | None = None
    reason: str | None = None
    failed_at: int | None = None
    """The number of the entry that ended a failed or cancelled run."""
    cause: Exception | None = None
    """The store's error, if that lost the run."""
    became_dead: bool = False
    """True if the release made the run a dead letter."""

    @classmethod
    def settled(cls, settlement: Settle) -> Self:
        return cls(
            OutcomeKind(settlement.status),
            settlement.value,
            settlement.error,
            settlement.reason,
            settlement.failed_at,
        )

    @property
    def is_status(self) -> bool:
        """Return whether the run has ended or is parked. Otherwise another execution follows."""
        return self.kind in STATUSES

    @property
    def is_wanted_back(self) -> bool:
        """Return whether a process that waits for the run must take it over again."""
        return self.kind in (OutcomeKind.UNDOING, OutcomeKind.RELEASED) or (
            self.kind is OutcomeKind.LOST and self.cause is None
        )

    @property
    def label(self) -> str:
        """Return the outcome's name in metrics and spans. A hung run counts as lost."""
        return OutcomeKind.LOST.value if self.kind is OutcomeKind.HUNG else self.kind.value
