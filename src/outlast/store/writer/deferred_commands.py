"""Keep commands whose rows another program has locked from holding up the rest."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from outlast.errors import StoreError
from outlast.store.commands import DeregisterWorker, SetWaiting
from outlast.store.protocol import Blocked
from outlast.store.writer.pending_command import PendingCommand, subject_of

LAST = "last"
"""The subject of commands that wait for every deferred command."""


class DeferredCommands:
    """Hold blocked commands, and those that must not overtake them. Only one thread uses it."""

    def __init__(self) -> None:
        self._lines: dict[Any, deque[PendingCommand]] = {}
        self._retry_at = 0.0
        self.error: StoreError = Blocked()
        """Why the last command was deferred."""

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, blocked: list[PendingCommand], error: StoreError, retry_at: float) -> None:
        """Defer commands until `retry_at` on the monotonic clock."""
        self.error = error
        self._retry_at = retry_at
        for waiting in blocked:
            self._lines.setdefault(subject_of(waiting), deque()).append(waiting)

    def joins(self, waiting: PendingCommand) -> bool:
        """Defer a command if it must not overtake a deferred one. Return whether it was deferred.

        A worker deregisters after everything else it has to write. `SetWaiting` for run 0 is the
        sweeper's barrier behind claims: it waits for a command whose outcome is unknown.
        """
        command = waiting.command
        subject = subject_of(waiting)
        unsure = any(one.unsure for line in self._lines.values() for one in line)
        if type(command) is DeregisterWorker or (
            unsure and type(command) is SetWaiting and command.run == 0
        ):
            subject = LAST
        elif subject not in self._lines:
            return False
        self._lines.setdefault(subject, deque()).append(waiting)
        return True

    def seconds_left(self) -> float:
        """Return how many seconds remain until the next try."""
        return max(0.0, self._retry_at - time.monotonic())

    def take_expired(self) -> list[PendingCommand]:
        """Take the commands past their deadline, and those behind them.

        The later commands are meaningless without the first.
        """
        now = time.monotonic()
        subjects = [subject for subject, line in self._lines.items() if line[0].deadline <= now]
        return [waiting for subject in subjects for waiting in self._lines.pop(subject)]

    def take_due(self) -> list[PendingCommand]:
        """Take everything, in order, if the next try is due."""
        return [] if self.seconds_left() else self.take_all()

    def take_all(self) -> list[PendingCommand]:
        """Take everything, in order, with LAST at the end."""
        self._lines[LAST] = self._lines.pop(LAST, deque())
        taken = [waiting for line in self._lines.values() for waiting in line]
        self._lines.clear()
        return taken
