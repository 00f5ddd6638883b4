"""Number a run's entries and submit them to the store."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from outlast.execution.store_access import Done, StoreAccess
from outlast.store.commands import Command, Record
from outlast.store.rows import Entry, EntryKind, RunRow


class WritesInFlight:
    """Write the entries of one run under its fence, and track the writes in flight."""

    __slots__ = (
        "_store",
        "_waiters",
        "fence",
        "in_flight",
        "is_suspect",
        "last_at",
        "pending",
        "pk",
        "seq",
    )

    def __init__(
        self,
        row: RunRow,
        pending: deque[Entry],
        last_seq: int,
        store: StoreAccess,
    ) -> None:
        """Continue the journal of a run after the entry number `last_seq`."""
        self.pk = row.pk
        self.fence = row.fence
        self._store = store
        self.seq = last_seq
        """The number of the last entry that was submitted or read."""
        self.last_at = row.started or row.created
        """The time of that entry. The times of a journal never decrease."""
        self.pending: deque[Any] = pending
        """Durable entries that are not delivered yet."""
        self.in_flight = 0
        """The number of writes that were submitted and not yet answered."""
        self._waiters: dict[int, asyncio.Future[None]] = {}
        self.is_suspect = row.is_suspect
        """True until a run whose last executions died records progress."""

    def next_record(
        self,
        kind: EntryKind,
        key: str,
        args: str | None,
        value: str | None,
        error: str | None,
        seconds: float | None,
        attempt: int | None,
        asked: bool | None,
        cost: str | None,
        at_least: float,
    ) -> Record:
        """Build the next entry."""
        seq = self.seq = self.seq + 1
        at = self.last_at = max(self.last_at, at_least, self._store.now())
        return Record(
            self.pk, seq, self.fence, kind, key, at, args, value, error, seconds, attempt, asked,
            cost,
        )  # fmt: skip

    def submit(self, command: Command, done: Done, *, alone: bool = False) -> None:
        """Submit a command. `done` must call `answered` first."""
        self.in_flight += 1
        self._store.enqueue(command, done, alone=alone)

    def answered(self) -> None:
        """Note that the store has answered a submitted command."""
        self.in_flight -= 1

    def delivered(self, at: float) -> None:
        """Note the time of a delivered entry."""
        self.last_at = max(self.last_at, at)

    def take_first_progress(self) -> bool:
        """Return True the first time that a suspect run records progress."""
        was_suspect, self.is_suspect = self.is_suspect, False
        return was_suspect

    # -- waiting for entries that are not delivered

    def until_durable(self, seq: int) -> asyncio.Future[None]:
        """Return a future that is done when the entry is durable."""
        waiter = self._waiters[seq] = asyncio.get_running_loop().create_future()
        return waiter

    def wake(self, seq: int) -> bool:
        """Wake the task that waits for an entry. Return whether there is one."""
        waiter = self._waiters.pop(seq, None)
        if waiter is None:
            return False
        if not waiter.done():
            waiter.set_result(None)
        return True

    def fail_waiters(self, error: BaseException) -> None:
        """Raise an error in all tasks that wait for an entry."""
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_exception(error)
