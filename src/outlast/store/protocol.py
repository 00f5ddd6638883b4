"""Define the protocol that every store implements.

A store is synchronous and thread-safe. The writer's thread calls it, and so do readers in other
threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from outlast.errors import StoreBroken, StoreError, StoreUnavailable
from outlast.store.commands import EACH, ITEM, SESSION, Command
from outlast.store.rows import (
    NEVER,
    Claimable,
    DrainRow,
    EndCount,
    Entry,
    ExecutionRow,
    Message,
    QueueRow,
    RunQuery,
    RunRow,
    WorkerRow,
)
from outlast.store.session_rows import FieldQuery, SessionQuery, SessionRow
from outlast.store.stream_rows import (
    PartInfo,
    PartRow,
    StreamInfo,
    StreamRange,
    StreamRow,
)
from outlast.store.topics import Topic


class BadValue(StoreError):
    """Nothing was written, because one command has a value that the store cannot take.

    The outcome is definite. The writer commits the batch again, one command at a time.
    """


class DamagedRow(StoreBroken, BadValue):
    """Nothing was written, because a row that one command needs is damaged.

    Like after any BadValue, the writer commits the batch again, one command at a time: commands
    that do not need the row must not fail with it.
    """

    explained_as = "StoreBroken"


class Blocked(StoreUnavailable):
    """Nothing was written, because another program holds a lock on a row that the batch needs.

    The outcome is definite. `subjects` names the runs in question, each as ("run", number) and as
    ("id", id). It is empty if the store does not know them.
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
    """The commit itself failed, so the batch may or may not be durable.

    Call `recover`, then commit the same commands again.
    """


class NoStore(StoreError):
    """No store exists at this address, and none was created."""


class OlderStore(StoreError):
    """The store has an older version than this release. It was not migrated."""


def left_as_it_is(place: str, there: int, ours: int) -> NoStore | OlderStore:
    """Return the error for a store that opening would have to create or migrate, but may not."""
    if there == 0:
        return NoStore(
            f"there is no store at {place}. `outlast run`, `submit`, `worker` and `migrate` "
            "create one. To use another store, pass --store ADDRESS or set OUTLAST_STORE."
        )
    return OlderStore(
        f"the store at {place} has schema version {there}, and this Outlast has {ours}. It was "
        "not migrated. Use the release that its workers have, or run `outlast migrate`."
    )


def whole_journal(store: Store, run: int) -> list[Entry]:
    """Return the whole journal of a run, read page by page."""
    entries: list[Entry] = []
    while page := store.journal(run, after=entries[-1].seq if entries else 0):
        entries += page
    return entries


def claimable_of(
    ready: set[str], suspects: set[str], due: float | None, now: float, workflows: Iterable[str]
) -> Claimable:
    """Return the answer of `peek`, given the workflows with ready runs and with suspects.

    `due` is when the first run that is not ready comes due.
    """
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
    """The store's location without a password, for messages and displays."""

    migrates: bool
    """Whether opening creates what is missing and migrates an older store to this release's
    version. If not, opening raises NoStore or OlderStore.
    """

    call_timeout: float
    """How many seconds one call may wait for the store. Set it before opening."""

    def versions(self) -> tuple[int, int]:
        """Return the versions of the existing schema (0: none) and of the one this release creates.

        The store need not be open, and nothing is created.
        """
        ...

    def open(self) -> None:
        """Connect, and create or migrate what is missing if the store `migrates`.

        Raise StoreTooNew, StoreBroken or StoreUnavailable.
        """

    def close(self) -> None:
        """Release everything. Closing twice is harmless."""

    def now(self) -> float:
        """Return the store's time in seconds since the epoch. Leases and due times use it."""
        ...

    def commit(self, commands: Sequence[Command]) -> list[Any]:
        """Apply the commands in order in one transaction. They are durable when it returns.

        Return one outcome per command: its result, or a `Refused`. Raise BadValue or
        StoreUnavailable if nothing was written, and CommitUnknown or StoreBroken otherwise.
        """
        ...

    def recover(self) -> None:
        """Make the outcome of a commit definite after CommitUnknown.

        Raise StoreUnavailable if that is not possible yet.
        """

    def run(self, id: str) -> RunRow | None: ...

    def runs(self, query: RunQuery) -> list[RunRow]:
        """Return the matching runs, newest first."""
        ...

    def ends(self, after: float, limit: int) -> list[EndCount]:
        """Return how runs and items ended at `after` or later: a row per status, in order.

        Only the latest `limit` are counted.
        """
        ...

    def journal(self, run: int, after: int = 0, limit: int = 10_000) -> list[Entry]:
        """Return the entries with seq > `after`, in order."""
        ...

    def last_seq(self, run: int) -> int:
        """Return the seq of the last entry, or 0 if the journal is empty."""
        ...

    def may_need_compensation(self, id: str) -> bool:
        """Return whether there may be something to compensate.

        That is the case if the run's journal has an intent or a compensation, or if the run has
        children.
        """
        ...

    def done(self, run: int, keys: Sequence[str]) -> dict[str, str | None]:
        """Return the values of the `done` entries with these keys.

        A key without such an entry is left out.
        """
        ...

    def done_count(self, run: int) -> int:
        """Return how many `done` entries a run has."""
        ...

    def history(self, run: int) -> list[Entry]:
        """Return the journal without its `done` entries, in order.

        This part stays short even if the run has a million `done` entries.
        """
        ...

    def executions(self, run: int) -> list[ExecutionRow]:
        """Return the executions of a run, oldest first. The last one may still go on."""
        ...

    def messages(self, run: int, after: int = 0) -> list[Message]:
        """Return the messages in the mailbox that come after number `after`."""
        ...

    def progress(self, run: int) -> dict[str, str]:
        """Return the saved progress of the run's unfinished steps, by key."""
        ...

    def stream(self, run: int, stream: str, after: int = 0, limit: int = 1000) -> StreamRow | None:
        """Return a stream with its values from position `after` on, as of one moment.

        The chunks are whole, so the first one may begin before `after`. There are at most `limit`.
        """
        ...

    def many_streams(self, asked: Sequence[StreamRange]) -> list[StreamRow | None]:
        """Return for each range what `stream` returns, in order. Each is as of one moment."""
        ...

    def unended(self, runs: Sequence[int]) -> set[int]:
        """Return which of these runs exist and have not ended."""
        ...

    def server(self) -> str:
        """Return which server answers. See `StreamRow.server`."""
        ...

    def streams(self, run: int) -> list[StreamInfo]:
        """Return the streams of a run, ordered by name."""
        ...

    def parts(self, run: int) -> list[PartInfo]:
        """Return who has published what in a run, ordered by stream and writer."""
        ...

    def part(self, run: int, stream: str, writer: str) -> PartRow | None:
        """Return what a writer has published to a stream, for an attempt that resumes."""
        ...

    def workers(self) -> list[WorkerRow]: ...

    def asked(self, worker: str) -> str | None:
        """Return the reason of a request that this worker drain, or None if there is no request."""
        ...

    def drains(self, limit: int = 20) -> list[DrainRow]:
        """Return the reports of drains, newest first."""
        ...

    def measured(self) -> list[tuple[str, str]]:
        """Return the pairs of workflow and step that have recorded durations, in order."""
        ...

    def durations(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[float]]:
        """Return the recorded durations of each pair of workflow and step, oldest first.

        A pair without durations gets an empty list.
        """
        ...

    def dead_workers(self) -> list[str]:
        """Return the workers that seem dead. They are a reason to Sweep; the Sweep decides."""
        ...

    def peek(self, queues: tuple[str, ...], workflows: tuple[str, ...]) -> Claimable:
        """Return what a Claim of these queues and workflows would find.

        This is a read without a lock, so the answer may already be out of date.
        """
        ...

    def queues(self) -> list[QueueRow]:
        """Return every queue that ever had a run or an item, or has limits, ordered by name."""
        ...

    def depth(self, queue: str) -> int:
        """Return how many runs or items in a queue are queued and due.

        Workers could take these now. Delayed ones do not count.
        """
        ...

    def held(self, worker: str) -> list[tuple[int, int, str]]:
        """Return what a worker holds, as (run, fence, id)."""
        ...

    def cancels(self, worker: str) -> list[tuple[str, str]]:
        """Return the id and reason of each run held by the worker that has a request to cancel."""
        ...

    def session(
        self,
        id: str,
        space: str = SESSION,
        *,
        names: tuple[str, ...] | None = None,
        values: bool = True,
    ) -> SessionRow | None:
        """Return a session, or None if it does not exist or has expired.

        With `names`, the row has only these fields and lists. Without `values`, the fields' values
        are not read.
        """
        ...

    def fields(self, query: FieldQuery) -> SessionRow | None:
        """Return a session with the matching fields and no lists, or None as `session` does."""
        ...

    def items(
        self,
        session: str,
        field: str,
        start: int = 0,
        stop: int | None = None,
        space: str = SESSION,
    ) -> list[str]:
        """Return a slice of a session's list. `start` and `stop` work as in Python's slices.

        The result is empty if the field is not a list or the session has expired.
        """
        ...

    def sessions(self, query: SessionQuery) -> list[SessionRow]:
        """Return the matching sessions that have not expired."""
        ...

    def listen(self, on_change: Callable[[], None], topic: Topic = Topic.CHANGES) -> None:
        """Call `on_change`, from any thread, soon after any process commits something of interest.

        `topic` is what is of interest: anything that other processes may wait for, or publications.
        There may be calls for nothing, and a
        call may get lost, so the caller must also poll. Raise StoreUnavailable if listening failed;
        the caller may try again.
        """

    def acquire_liveness(self, worker: str) -> None:
        """Take the lock that proves this worker is alive.

        The kernel releases it when the process dies. Raise StoreUnavailable if taking it failed;
        the caller may try again.
        """

    def release_liveness(self, worker: str) -> None:
        """Release the worker's liveness lock."""
