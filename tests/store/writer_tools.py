"""A writer on a store whose commits a test can hold back and fail."""

import asyncio
import queue
import threading
import time

from outlast.store.commands import (
    Record,
    Submit,
)
from outlast.store.protocol import CommitUnknown
from outlast.store.sqlite.store import SQLiteStore
from outlast.store.writer import deferred_commands, group_commit_writer, write_queue
from outlast.store.writer.group_commit_writer import GroupCommitWriter
from support.waiting import WAIT_SECONDS

PATIENCE = 3600.0
"""Nothing runs out of it unless a test moves the clock."""


class Clock:
    """The time module for the writer. A test can move its monotonic clock forward."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __getattr__(self, name: str):
        return getattr(time, name)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def forward(self, seconds: float) -> None:
        self.ahead += seconds


def moved_clock(monkeypatch) -> Clock:
    """Give the writer a clock that the test can move."""
    clock = Clock()
    for module in (group_commit_writer, deferred_commands, write_queue):
        monkeypatch.setattr(module, "time", clock)
    return clock


def submit(id: str, args: str = "[]") -> Submit:
    return Submit(id, "flow", args, id, "seed")


class WatchedStore(SQLiteStore):
    """The real store in memory, with a gate before each commit and errors to raise at it."""

    def __init__(self) -> None:
        super().__init__(None)
        self.gate = threading.Event()
        self.gate.set()
        self.arrived: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.calls: list[object] = []
        """The batch of each commit, or "recover"."""
        self.plan: list[Exception | None] = []
        """What to raise instead of committing; a CommitUnknown comes after it took effect."""
        self.recovery: list[Exception | None] = []

    def commit(self, commands):
        self.arrived.put(None)
        assert self.gate.wait(WAIT_SECONDS)
        self.calls.append(list(commands))
        fault = self.plan.pop(0) if self.plan else None
        if fault is not None:
            if isinstance(fault, CommitUnknown):
                super().commit(commands)
            raise fault
        return super().commit(commands)

    def recover(self):
        self.calls.append("recover")
        fault = self.recovery.pop(0) if self.recovery else None
        if fault is not None:
            raise fault
        super().recover()


def with_writer(store, scenario, *, patience=PATIENCE, batch_max=1000, kind=GroupCommitWriter):
    """Execute `scenario(writer)` on a loop with a started writer; it is closed at the end."""

    async def main():
        writer = kind(store, asyncio.get_running_loop(), patience=patience, batch_max=batch_max)
        writer.start()
        try:
            return await asyncio.wait_for(scenario(writer), WAIT_SECONDS)
        finally:
            store.gate.set()
            await asyncio.to_thread(writer.close)

    return asyncio.run(main())


async def at_the_gate(store):
    """Wait until the writer holds a batch at the closed gate."""
    await asyncio.to_thread(store.arrived.get, True, WAIT_SECONDS)


def entry(row, seq):
    return Record(row.pk, seq, row.fence, "step", str(seq), 1.0)
