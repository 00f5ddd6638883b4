"""Make the commands of a process durable, in groups.

There is one writer per process. It takes everything that waits, makes it durable in one
transaction, and delivers each outcome. Meanwhile the next batch gathers, so a hundred runs cost
little more than one.

The writer is a thread, so a blocked event loop cannot stop it. It writes commands in the order of
`enqueue`. Only a worker's own signs of life (`execute_urgent`) overtake, never a command of a run:
a release that overtook a result would lose it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from queue import Empty, SimpleQueue
from typing import Any

from outlast.errors import StoreError, StoreUnavailable
from outlast.store.commands import Command
from outlast.store.commit_metrics import CommitMetrics, Commits, count_failure
from outlast.store.deadline import until
from outlast.store.protocol import BadValue, Blocked, CommitUnknown, Store
from outlast.store.writer.deferred_commands import DeferredCommands
from outlast.store.writer.loop_commits import LATER, LoopCommits
from outlast.store.writer.pending_command import (
    PendingCommand,
    deliver_outcomes,
    split_expired,
    subject_of,
)
from outlast.store.writer.store_health import StoreHealth
from outlast.store.writer.write_queue import CommitPace, UrgentQueue, WriteQueue
from outlast.telemetry.error_text import format_error, redact

log = logging.getLogger("outlast.writer")

ATTEMPT_SECONDS_MIN = 2.0
"""What an attempt gets even if a deadline is nearer: this process may have been paused rather than
the store.
"""
BLOCKED_SECONDS = 0.2
"""The minimum number of seconds between two tries of blocked commands."""
BLOCKED_SHARE = 4
"""Blocked commands wait this many times what the last try took, so they use at most a fifth of the
writer's time.
"""


class WriterState(IntEnum):
    OPEN = 0
    CLOSING = 1
    """The queued commands are written, and nothing is retried for long."""
    CLOSED = 2
    """The thread has ended. Later commands fail."""


class GroupCommitWriter:
    """Write commands in groups from a thread of its own.

    Call `enqueue` and `execute` on the loop, and `execute_urgent` from any thread but the loop's.
    """

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        *,
        patience: float,
        batch_max: int,
        metered: bool = True,
        log_values: int = 0,
    ) -> None:
        self._store = store
        self._loop = loop
        self._patience = patience
        self._log_values = log_values
        self._queue = WriteQueue()
        self._urgent = UrgentQueue()
        self._deferred = DeferredCommands()
        self._health = StoreHealth()
        self._pace = CommitPace(batch_max)
        self._metrics = CommitMetrics(metered=metered)
        self._on_loop = LoopCommits(store, self._pace, self._health, self._metrics)
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._idle = False
        self._state = WriterState.OPEN
        self._thread = threading.Thread(target=self._work, name="outlast-writer", daemon=True)

    @property
    def commits(self) -> tuple[Commits, ...]:
        """Return the commit statistics of each committing thread; empty if they are not counted."""
        return self._metrics.by_thread

    @property
    def batches(self) -> int:
        """Return how many batches were written or tried."""
        return self._metrics.batches

    @property
    def commands(self) -> int:
        """Return how many commands these batches had."""
        return self._metrics.commands

    # -- called by the engine

    def start(self) -> None:
        self._thread.start()

    def enqueue(
        self, command: Command, done: Callable[[Command, Any], None], *, alone: bool = False
    ) -> None:
        """Queue a command. `done(command, outcome)` is called on the loop, in the same order.

        `alone` says that nothing in flight could enqueue another command before this one is
        written. Then there is nothing to gather, and the command may be written at once.
        """
        if (
            alone
            and self._idle
            and not (self._queue or self._health.outcome_unknown or self._deferred)
        ):
            outcome = self._on_loop.write(command)
            if outcome is not LATER:
                self._loop.call_soon(done, command, outcome)
                return
        self._queue.append(PendingCommand(command, done, time.monotonic() + self._patience))
        if self._idle:
            self._idle = False
            self._wake.put(None)
        if self._state is WriterState.CLOSED:
            self._refuse_rest()

    async def execute(self, command: Command, *, alone: bool = False) -> Any:
        """Write a command and return its result or a Refused. Raise a StoreError.

        `alone` is that of `enqueue`.
        """
        future: asyncio.Future[Any] = self._loop.create_future()

        def done(_: Command, outcome: Any) -> None:
            if not future.done():
                if isinstance(outcome, StoreError):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)

        self.enqueue(command, done, alone=alone)
        return await future

    def execute_urgent(self, command: Command, timeout: float | None = None) -> Any:
        """Write a command ahead of the others, from a thread.

        Return its result or a Refused, and raise a StoreError. StoreUnavailable also says that
        there was no answer within `timeout` seconds; the command may still be written. Use it only
        for a worker's own signs of life.
        """
        outcomes: SimpleQueue[Any] = SimpleQueue()
        deadline = time.monotonic() + min(self._patience, timeout or self._patience)
        done = lambda _, outcome: outcomes.put(outcome)  # noqa: E731
        self._urgent.append(PendingCommand(command, done, deadline, in_thread=True))
        if self._idle:
            self._idle = False
            self._wake.put(None)
        try:
            outcome = outcomes.get(timeout=timeout)
        except Empty:
            raise StoreUnavailable(f"no answer within {timeout:.3g} s") from None
        if isinstance(outcome, StoreError):
            raise outcome
        return outcome

    def close(self) -> None:
        """Write the queued commands, then end the thread."""
        if self._state is WriterState.OPEN:
            self._state = WriterState.CLOSING
        self._wake.put(None)
        self._thread.join()

    def _refuse_rest(self) -> None:
        """Fail the commands that were enqueued after the thread had ended."""
        error = StoreUnavailable("Outlast is closed: nothing more is written.")
        for waiting in self._queue.take_all():
            self._loop.call_soon(waiting.done, waiting.command, error)

    # -- the thread

    def _work(self) -> None:
        while True:
            batch = self._gather()
            if batch:
                self._attempt(batch)
            elif self._state is not WriterState.OPEN and not (self._queue or self._urgent):
                self._fail(
                    self._deferred.take_all(),
                    StoreUnavailable("the app was closed before a lock was released."),
                )
                self._state = WriterState.CLOSED
                # Commands were enqueued between the last check and the line above.
                if self._queue:
                    self._loop.call_soon_threadsafe(self._refuse_rest)
                return

    def _gather(self) -> list[PendingCommand]:
        """Wait for something to write, and return the next batch.

        Urgent commands go first, one at a time, then the queue. Deferred commands return to the
        head of the queue when their next try is due.
        """
        if not self._queue and not self._urgent:
            self._rest()
        if self._deferred:
            self._fail(self._deferred.take_expired(), self._deferred.error)
            self._queue.put_back(self._deferred.take_due())
        if self._urgent:
            expired = self._urgent.take_expired()
            self._fail(expired, self._health.failure or self._urgent.blocked_by)
        if self._urgent and (not self._queue or self._urgent.goes_first()):
            return self._urgent.take(1)
        taken = self._queue.take(self._pace.batch_max())
        if not self._deferred:
            return taken
        return [waiting for waiting in taken if not self._deferred.joins(waiting)]

    def _rest(self) -> None:
        """Sleep until there is something to write, or the next try of a deferred command is due."""
        self._idle = True
        # `enqueue` checks the flag after it has appended, so whichever is second sees what the
        # first did.
        closing = self._state is not WriterState.OPEN and self._deferred
        if not self._queue and not self._urgent and not closing:
            timeout = self._deferred.seconds_left() if self._deferred else None
            with suppress(Empty):
                self._wake.get(timeout=timeout)
        self._idle = False

    def _attempt(self, batch: list[PendingCommand]) -> None:
        """Write a batch once.

        Commands that could not be written return to the head of their queue, or are deferred.
        """
        source = self._urgent if batch[0].in_thread else self._queue
        started = time.monotonic()
        if self._health.failure is not None:
            expired, batch = split_expired(batch, started)
            self._fail(expired, self._health.failure)
            if not batch:
                return
        commands = [waiting.command for waiting in batch]
        self._metrics.batches += 1
        self._metrics.commands += len(commands)
        try:
            with until(max(batch[0].deadline, started + ATTEMPT_SECONDS_MIN)):
                outcomes = self._commit(commands)
        except Exception as error:
            count_failure(self._metrics.on_thread, error)
            self._handle_failure(batch, source, error, time.monotonic() - started)
        else:
            self._answered()
            self._deliver(batch, outcomes)

    def _commit(self, commands: list[Command]) -> list[Any]:
        """Make commands durable, after recovering from an unknown outcome. Update the statistics.

        Repeating commands is safe: each command's contract says what a repeat does.
        """
        if self._health.outcome_unknown:
            self._store.recover()
        started = time.perf_counter()
        outcomes = self._store.commit(commands)
        seconds = time.perf_counter() - started
        self._pace.keep(seconds, len(commands))
        if self._metrics.on_thread is not None:
            self._metrics.on_thread.add(outcomes, seconds)
        return outcomes

    def _answered(self) -> None:
        """Note that the store works."""
        self._health.answered()
        self._urgent.failed = False

    def _deliver(self, batch: list[PendingCommand], outcomes: list[Any]) -> None:
        if not batch:
            return
        # The calling thread waits for the outcome, so deliver it from this thread.
        if batch[0].in_thread:
            deliver_outcomes(batch, outcomes)
            return
        try:
            self._loop.call_soon_threadsafe(deliver_outcomes, batch, outcomes)
        except RuntimeError:
            # The loop was closed, so no task is left to receive the outcomes.
            log.debug("The loop is closed, so %d outcomes were not delivered.", len(batch))

    # -- failed attempts

    def _handle_failure(
        self, batch: list[PendingCommand], source: WriteQueue, error: Exception, seconds: float
    ) -> None:
        """Retry, isolate or give up a batch, depending on the error. The attempt took `seconds`."""
        if isinstance(error, BadValue):
            self._answered()
            if len(batch) > 1:
                source.put_back_singly(batch)
            else:
                self._deliver(batch, [error])
        elif isinstance(error, Blocked):
            self._health.blocked()
            self._isolate(batch, source, error, seconds)
        elif isinstance(error, (StoreUnavailable, CommitUnknown)):
            self._postpone(batch, source, error)
        elif isinstance(error, StoreError):
            self._deliver(batch, [error] * len(batch))
        else:
            # The store itself is faulty. If this thread ended, every caller would wait forever.
            log.error("The store failed.", exc_info=redact(error, self._log_values))
            text = format_error(error, self._log_values)
            unknown = StoreUnavailable(
                f"the store failed: {text}. Whether the last batch was written is not known."
            )
            self._deliver(batch, [unknown] * len(batch))

    def _postpone(self, batch: list[PendingCommand], source: WriteQueue, error: StoreError) -> None:
        """Return a batch to its queue after a failed attempt, and pause.

        Commands that would be past their deadline after the pause fail now.
        """
        if isinstance(error, CommitUnknown):
            for waiting in batch:
                waiting.unsure = True
        self._health.failed(error)
        self._urgent.failed = source is self._urgent
        if self._health.is_lasting:
            log.warning("Could not write to the store, and will try again: %s", error)
        source.put_back(batch)
        closing = self._state is not WriterState.OPEN
        then = math.inf if closing else time.monotonic() + self._health.pause
        for queue in (self._urgent, self._queue):
            expired, left = split_expired(queue.take_all(), then)
            queue.put_back(left)
            self._fail(expired, error)
        if not closing:
            time.sleep(self._health.pause)
            self._health.lengthen_pause()

    def _isolate(
        self, batch: list[PendingCommand], source: WriteQueue, error: Blocked, seconds: float
    ) -> None:
        """Defer the commands whose rows are locked, and return the others to the queue.

        If the store does not know which they are, the commands are written one at a time. If that
        finds nothing but locks, the problem is not single rows, and the store counts as
        unavailable.
        """
        again_at = time.monotonic() + max(BLOCKED_SECONDS, seconds * BLOCKED_SHARE)
        if batch[0].in_thread:
            source.put_back(batch)
            self._urgent.defer(error, again_at)
            if not self._queue:
                time.sleep(BLOCKED_SECONDS)
            return
        if self._health.all_is_blocked() and not error.subjects:
            self._postpone(batch, source, error)
            return
        held_up = [waiting for waiting in batch if subject_of(waiting) in error.subjects]
        if not held_up and len(batch) > 1:
            source.put_back_singly(batch)
            return
        self._deferred.add(held_up or batch, error, again_at)
        source.put_back([waiting for waiting in batch if waiting not in held_up] if held_up else [])

    def _fail(self, batch: list[PendingCommand], error: StoreError) -> None:
        """Give up a batch and deliver StoreUnavailable for each command."""
        if not batch:
            return
        log.error("Gave up writing %d commands: %s", len(batch), error)
        unknown = f"{error} Whether the last batch was written is not known."
        for in_thread in (True, False):
            given_up = [waiting for waiting in batch if waiting.in_thread is in_thread]
            # Create new errors without a cause: the driver's error may contain values.
            errors = [StoreUnavailable(unknown if one.unsure else str(error)) for one in given_up]
            self._deliver(given_up, errors)
