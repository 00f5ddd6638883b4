"""What a store is. Sync and thread-safe: it is called from the writer's thread and from readers'."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from outlast.errors import StoreError, StoreUnavailable
from outlast.store.commands import EACH, ITEM, SESSION, Command
from outlast.store.rows import (
    NEVER,
    Claimable,
    DrainRow,
    Entry,
    Message,
    QueueRow,
    RunQuery,
    RunRow,
    SessionQuery,
    SessionRow,
    WorkerRow,
)


class BadValue(StoreError):
    """Definite: nothing was written, because of one command's values. The batch is tried again verb by verb."""


class Blocked(StoreUnavailable):
    """Definite: nothing was written, because another program holds a lock on a row that the batch needs.

    `subjects` are the runs in question, each as ("run", number) and as ("id", id). Empty if they are not known.
    """

    explained_as = "StoreUnavailable"

    def __init__(
        self,
        message: str = "another program holds a lock on a row that this write needs.",
        subjects: frozenset[tuple[str, Any]] = frozenset(),
    ) -> None:
        super().__init__(message)
        self.subjects = subjects


class CommitUnknown(StoreError):
    """The commit itself failed: it may or may not be durable. `recover`, then commit the same commands again."""


class NoStore(StoreError):
    """There is no store at this address. None was made."""


class OlderStore(StoreError):
    """The store is of an older version than this release's. It was left so."""


def left_as_it_is(place: str, there: int, ours: int) -> NoStore | OlderStore:
    """What whoever only looks or acts is told of a store that opening would make, or bring from a version to this release's."""
    if there == 0:
        return NoStore(
            f"there is no store at {place}. `outlast run`, `submit`, `worker` and `migrate` make one; "
            "--store ADDRESS or OUTLAST_STORE names another."
        )
    return OlderStore(
        f"the store at {place} has version {there}, this Outlast {ours}. It is left as it is: use the release that its workers have, "
        "or bring it forward with `outlast migrate`."
    )


def whole_journal(store: Store, run: int) -> list[Entry]:
    """Everything recorded of a run, page by page."""
    entries: list[Entry] = []
    while page := store.journal(run, after=entries[-1].seq if entries else 0):
        entries += page
    return entries


def claimable_of(
    ready: set[str], suspects: set[str], due: float | None, now: float, workflows: Iterable[str]
) -> Claimable:
    """What `peek` says of the workflows that have ready runs and suspects, and of when the first run that is not ready is due."""
    known, come_due = set(workflows), due is not None and due <= now
    return Claimable(
        ready=come_due or not known.isdisjoint(ready),
        suspect=not known.isdisjoint(suspects),
        next_due=None if due is None or come_due or due >= NEVER else due,
        overdue=come_due,
        unknown=tuple(sorted((ready | suspects) - known - {ITEM, EACH})),
    )


class Store(Protocol):
    place: str
    """For people: where it is, without a password."""

    migrates: bool
    """Whether opening makes what is missing, and brings an older store to this release's version. If not: NoStore, OlderStore."""

    call_timeout: float
    """Seconds that one call may wait for the store. Set it before opening."""

    def versions(self) -> tuple[int, int]:
        """Of the schema that is there (0: there is no store) and of the one that this release makes. It need not be open, and nothing is made."""
        ...

    def open(self) -> None:
        """Connect; create or migrate what is missing, if it `migrates`. StoreTooNew, StoreBroken, StoreUnavailable."""

    def close(self) -> None:
        """Let go of everything. A repeat is harmless."""

    def now(self) -> float:
        """The store's clock, seconds since the epoch: leases and due times go by it."""
        ...

    def commit(self, commands: Sequence[Command]) -> list[Any]:
        """Apply the commands in order, in one transaction; when it returns they are durable.

        One outcome a command: its result or a `Refused`. Raises BadValue or StoreUnavailable (nothing was written),
        CommitUnknown, or StoreBroken.
        """
        ...

    def recover(self) -> None:
        """After CommitUnknown: make the outcome definite. StoreUnavailable if that is not possible yet."""

    def run(self, id: str) -> RunRow | None: ...

    def runs(self, query: RunQuery) -> list[RunRow]:
        """Newest first."""
        ...

    def journal(self, run: int, after: int = 0, limit: int = 10_000) -> list[Entry]:
        """Entries with seq > after, in order."""
        ...

    def last_seq(self, run: int) -> int:
        """The number of the last entry, 0 if there is none."""
        ...

    def has_dealt(self, id: str) -> bool:
        """Whether a run has an intent or a compensation in its journal, or children: something that may have to be undone."""
        ...

    def done(self, run: int, keys: Sequence[str]) -> dict[str, str | None]:
        """The values of the `done` entries with these keys; a key without one is not in the answer."""
        ...

    def done_count(self, run: int) -> int:
        """How many `done` entries a run has."""
        ...

    def history(self, run: int) -> list[Entry]:
        """The journal without its `done` entries, in order: what is short of a run with a million of them."""
        ...

    def messages(self, run: int, after: int = 0) -> list[Message]:
        """The mailbox, from the message after number `after`."""
        ...

    def progress(self, run: int) -> dict[str, str]:
        """What steps of the run that have not ended have saved, by their keys."""
        ...

    def workers(self) -> list[WorkerRow]: ...

    def asked(self, worker: str) -> str | None:
        """Why somebody wants this worker to drain; None if nobody does."""
        ...

    def drains(self, limit: int = 20) -> list[DrainRow]:
        """Newest first."""
        ...

    def measured(self) -> list[tuple[str, str]]:
        """Workflows and steps that there are durations of, in order."""
        ...

    def durations(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[float]]:
        """What was measured of each of these pairs of workflow and step, oldest first; empty if nothing was."""
        ...

    def dead_workers(self) -> list[str]:
        """Workers that seem dead: reason enough for a Sweep, which decides."""
        ...

    def peek(self, queues: tuple[str, ...], workflows: tuple[str, ...]) -> Claimable:
        """What a Claim of these queues and workflows would find. A read: it may be out of date at once."""
        ...

    def queues(self) -> list[QueueRow]:
        """Every queue that has ever had anything in it, or limits, by name."""
        ...

    def depth(self, queue: str) -> int:
        """How many runs or items in it are queued and due: what workers could take now, so without those that are delayed."""
        ...

    def held(self, worker: str) -> list[tuple[int, int, str]]:
        """What a worker holds: run, fence and id."""
        ...

    def cancels(self, worker: str) -> list[tuple[str, str]]:
        """Runs held by the worker that somebody wants to end: id and reason."""
        ...

    def session(self, id: str, space: str = SESSION) -> SessionRow | None:
        """None too if it has expired."""
        ...

    def items(
        self, session: str, field: str, last: int | None = None, space: str = SESSION
    ) -> list[str]:
        """The newest `last` values of a session's list (None: all), oldest first. Empty if it is none, or has expired."""
        ...

    def sessions(self, query: SessionQuery) -> list[SessionRow]:
        """Without those that have expired."""
        ...

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call `bell`, from any thread, soon after anybody's commit of something others may wait for.

        It may ring for nothing, and a ring may be lost: who listens also looks now and then. StoreUnavailable: try again.
        """

    def acquire_liveness(self, worker: str) -> None:
        """Take the lock that says this worker is alive; the kernel lets go of it at death. StoreUnavailable: try again."""

    def release_liveness(self, worker: str) -> None:
        """Give the lock back."""
