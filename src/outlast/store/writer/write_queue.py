"""Queue the commands that wait to be written, and decide how many are written together."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable

from outlast.errors import StoreError
from outlast.store.commands import (
    Command,
    Publish,
    Record,
    SaveProgress,
    Send,
    Settle,
    Submit,
    UpdateSession,
    UpdateSessions,
)
from outlast.store.protocol import Blocked
from outlast.store.writer.pending_command import PendingCommand

BATCH_SECONDS = 0.01
"""How many seconds one transaction should take at most. A drain or a renewal has to wait for it."""
BATCH_MIN = 50
"""How many commands are written together no matter how long it takes."""
BATCH_CHARACTERS = 8_000_000
"""How many characters of text are written together, unless one command alone has more. Servers
limit the size of a request.
"""


class WriteQueue(deque[PendingCommand]):
    """Hold pending commands in order. Any thread may append; only the writer takes."""

    def __init__(self) -> None:
        super().__init__()
        self._single = 0
        """How many commands at the head are written one at a time, to find the faulty one."""

    def take(self, count_max: int) -> list[PendingCommand]:
        """Take the next batch, of at most `count_max` commands and BATCH_CHARACTERS."""
        if self._single:
            self._single -= 1
            count_max = 1
        taken: list[PendingCommand] = []
        characters_left = BATCH_CHARACTERS
        for _ in range(min(len(self), count_max)):
            characters_left -= _characters(self[0].command)
            if characters_left < 0 and taken:
                break
            taken.append(self.popleft())
        return taken

    def take_all(self) -> list[PendingCommand]:
        """Empty the queue. It cannot be iterated over while other threads append."""
        taken = []
        while self:
            taken.append(self.popleft())
        return taken

    def put_back(self, batch: Iterable[PendingCommand]) -> None:
        """Return commands to the head of the queue, in their order."""
        self.extendleft(reversed(list(batch)))

    def put_back_singly(self, batch: list[PendingCommand]) -> None:
        """Return a batch to the head of the queue, to be written one command at a time."""
        self.put_back(batch)
        self._single = len(batch)


class UrgentQueue(WriteQueue):
    """Hold a worker's own signs of life, which go ahead of the other commands.

    After a failed attempt, or while a row of theirs is locked, the others go first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.failed = False
        """Whether the last attempt was of an urgent command and failed."""
        self.blocked_by: StoreError = Blocked()
        self._retry_at = 0.0

    def defer(self, error: StoreError, retry_at: float) -> None:
        """Let other commands go first until `retry_at` on the monotonic clock."""
        self.blocked_by = error
        self._retry_at = retry_at

    def goes_first(self) -> bool:
        return bool(self) and not self.failed and time.monotonic() >= self._retry_at

    def take_expired(self) -> list[PendingCommand]:
        """Take the commands past their deadline."""
        now = time.monotonic()
        expired = []
        while self and self[0].deadline <= now:
            expired.append(self.popleft())
        return expired


class CommitPace:
    """Measure how long commits take, and limit a batch so that it takes BATCH_SECONDS."""

    __slots__ = ("_batch_max", "_per_command", "seconds")

    def __init__(self, batch_max: int) -> None:
        self.seconds = 0.0
        """The moving average of the seconds a commit takes."""
        self._batch_max = batch_max
        self._per_command = 0.0
        """The moving average of the seconds per command, in large batches."""

    def keep(self, seconds: float, count: int) -> None:
        """Record a commit of `count` commands."""
        self.seconds += (seconds - self.seconds) / 8
        if count > BATCH_MIN:
            self._per_command += (seconds / count - self._per_command) / 8

    def batch_max(self) -> int:
        """Return how many commands to write together."""
        if self._per_command * self._batch_max > BATCH_SECONDS:
            return max(BATCH_MIN, int(BATCH_SECONDS / self._per_command))
        return self._batch_max


def _characters(command: Command) -> int:
    """Return roughly how long a command's texts are. Only frequent commands are measured."""
    if isinstance(command, Record):
        return (len(command.value) if command.value else 0) + (
            len(command.args) if command.args else 0
        )
    if isinstance(command, (Submit, Settle, SaveProgress, Send)):
        return sum(len(part) for part in command if isinstance(part, str))
    if isinstance(command, UpdateSessions):
        return sum(map(_characters, command.changes))
    if isinstance(command, Publish):
        return sum(map(len, command.values))
    if isinstance(command, UpdateSession):
        appended = (value for append in command.appends.values() for value in append.values)
        return sum(map(len, appended)) + sum(
            len(value) for value in command.fields.values() if value
        )
    return 0
