"""Write commands on the event loop itself, for tests on a virtual clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from outlast.errors import StoreError
from outlast.store.commands import Command
from outlast.store.writer.group_commit_writer import GroupCommitWriter
from outlast.store.writer.pending_command import PendingCommand


class InlineWriter(GroupCommitWriter):
    """Commit on the loop itself, so that tests on a virtual clock do not depend on threads."""

    def start(self) -> None:
        self._scheduled = False

    def enqueue(
        self,
        command: Command,
        done: Callable[[Command, Any], None],
        *,
        alone: bool = False,  # noqa: ARG002
    ) -> None:
        self._queue.append(PendingCommand(command, done, time.monotonic() + self._patience))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def execute_urgent(self, command: Command, timeout: float | None = None) -> Any:  # noqa: ARG002
        outcomes: list[Any] = []
        deadline = time.monotonic() + self._patience
        self._urgent.append(
            PendingCommand(
                command, lambda _, outcome: outcomes.append(outcome), deadline, in_thread=True
            )
        )
        while not outcomes:
            if batch := self._gather():
                self._attempt(batch)
        if isinstance(outcomes[0], StoreError):
            raise outcomes[0]
        return outcomes[0]

    def close(self) -> None:
        self._flush()

    def _flush(self) -> None:
        self._scheduled = False
        while self._queue or self._deferred:
            if batch := self._gather():
                self._attempt(batch)
