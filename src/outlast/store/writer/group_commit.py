"""Write the commands of a process to its store in groups.

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
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from queue import Empty, SimpleQueue
from typing import Any

from outlast.errors import StoreError, StoreUnavailable
from outlast.store.commands import (
    Command,
    Record,
    SaveProgress,
    Send,
    Settle,
    Submit,
    UpdateSession,
)
from outlast.store.commit_metrics import Commits
from outlast.store.deadline import until
from outlast.store.protocol import BadValue, Blocked, CommitUnknown, Store
from outlast.store.writer.deferred import DeferredCommands
from outlast.store.writer.pending import PendingCommand, split_expired, subject_of, take_all
from outlast.telemetry.error_text import format_error, redact

log = logging.getLogger("outlast.writer")

BATCH_SECONDS = 0.01
"""How many seconds one transaction should take at most. A drain or a renewal has to wait for it."""
BATCH_MIN = 50
"""How many commands are written together no matter how long it takes."""
BATCH_CHARACTERS = 8_000_000
"""How many characters of text are written together, unless one command alone has more. Servers
limit the size of a request.
"""
HERE_SECONDS = 0.001
"""How many seconds commits may take for one to be made on the loop itself."""
PAUSE_MIN, PAUSE_MAX = 0.01, 1.0
"""Seconds between two attempts while the store fails: the first pause, and the longest."""
WARN_PAUSE = 0.5
"""Each failed attempt is logged once the pause exceeds this."""
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
BLOCKED_MAX = 3
"""If more single commands than this are blocked in a row, the whole store counts as blocked."""
_LATER: Any = object()


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
        self._log_values = log_values
        self._store, self._loop = store, loop
        self._here: Commits | None = Commits() if metered else None
        self._there: Commits | None = Commits() if metered else None
        """Statistics of the commits on the loop itself, and of those on the thread. Each counts its
        own.
        """
        self._outside = Context()
        """The context of commits on the loop, so that they are not part of a run or its trace."""
        self._patience, self._batch_max = patience, batch_max
        self._queue: deque[PendingCommand] = deque()
        self._urgent: deque[PendingCommand] = deque()
        self._blocked = DeferredCommands()
        self._blocked_in_a_row = 0
        self._singly = 0
        """How many commands at the head of the queue are written one at a time, to find the faulty
        one.
        """
        self._failure: StoreError | None = None
        """Why the last attempt failed. None while the store works."""
        self._urgent_failed = False
        """Whether the last attempt was of an urgent command and failed. Then the others go next."""
        self._urgent_blocked_by: StoreError = Blocked()
        self._retry_urgent_at = 0.0
        """When a blocked urgent command is tried again while others wait."""
        self._pause = PAUSE_MIN
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._idle = False
        self._closing = False
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="outlast-writer", daemon=True)
        self._try = getattr(store, "try_commit", None)
        self._suspect = False
        """Whether the outcome of a commit is unknown."""
        self._pace = 0.0
        """The moving average of the seconds a commit takes."""
        self._command_pace = 0.0
        """The moving average of the seconds per command, in large batches."""
        self.batches = 0
        self.commands = 0

    @property
    def commits(self) -> tuple[Commits, ...]:
        """Return the commit statistics of each committing thread; empty if they are not counted."""
        return () if self._here is None or self._there is None else (self._here, self._there)

    def start(self) -> None:
        self._thread.start()

    def enqueue(
        self, command: Command, done: Callable[[Command, Any], None], *, alone: bool = False
    ) -> None:
        """Queue a command. `done(command, outcome)` is called on the loop, in the same order.

        `alone` says that nothing in flight could enqueue another command before this one is
        written. Then there is nothing to gather. If the disk is fast and no other writer is in the
        way, the command is written at once, because two thread switches cost as much as an fsync.
        """
        here = self._idle and not (self._queue or self._suspect or self._blocked)
        if alone and here and self._pace < HERE_SECONDS:
            outcome = self._write_here(command)
            if outcome is not _LATER:
                self._loop.call_soon(done, command, outcome)
                return
        self._queue.append(PendingCommand(command, done, time.monotonic() + self._patience))
        if self._idle:
            self._idle = False
            self._wake.put(None)
        if self._closed:
            self._refuse_rest()

    def _refuse_rest(self) -> None:
        """Fail the commands that were enqueued after the thread had ended."""
        error = StoreUnavailable("Outlast is closed: nothing more is written.")
        for waiting in _take(self._queue, len(self._queue)):
            self._loop.call_soon(waiting.done, waiting.command, error)

    def _write_here(self, command: Command) -> Any:
        started = time.perf_counter()
        try:
            outcomes = self._outside.run(self._try, [command]) if self._try is not None else None
        except StoreError as error:
            _count_failure(self._here, error)
            log.debug("left to the writer's thread, which can wait: %s", error)
            self._suspect = self._suspect or isinstance(error, CommitUnknown)
            return _LATER
        if outcomes is None:
            return _LATER
        seconds = time.perf_counter() - started
        self._keep_pace(seconds)
        self.batches += 1
        self.commands += 1
        if self._here is not None:
            self._here.add(outcomes, seconds)
        return outcomes[0]

    def _keep_pace(self, seconds: float) -> None:
        self._pace += (seconds - self._pace) / 8

    async def execute(self, command: Command) -> Any:
        """Write a command and return its result or a Refused. Raise a StoreError."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def done(_: Command, outcome: Any) -> None:
            if not future.done():
                if isinstance(outcome, StoreError):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)

        self.enqueue(command, done)
        return await future

    def execute_urgent(self, command: Command, timeout: float | None = None) -> Any:
        """Write a command ahead of the others, from a thread.

        Return its result or a Refused, and raise a StoreError. Use it only for a worker's own signs
        of life.
        """
        outcomes: SimpleQueue[Any] = SimpleQueue()
        deadline = time.monotonic() + min(self._patience, timeout or self._patience)
        done = lambda _, outcome: outcomes.put(outcome)  # noqa: E731
        self._urgent.append(PendingCommand(command, done, deadline, in_thread=True))
        if self._idle:
            self._idle = False
            self._wake.put(None)
        outcome = outcomes.get(timeout=timeout)
        if isinstance(outcome, StoreError):
            raise outcome
        return outcome

    def close(self) -> None:
        """Write the queued commands, then end the thread."""
        self._closing = True
        self._wake.put(None)
        self._thread.join()

    def _work(self) -> None:
        while True:
            batch = self._gather()
            if batch:
                self._attempt(batch)
            elif self._closing and not (self._queue or self._urgent):
                self._fail(
                    self._blocked.take_all(),
                    StoreUnavailable("the app was closed before a lock was released."),
                )
                self._closed = True
                # Commands were enqueued between the last check and the line above.
                if self._queue:
                    self._loop.call_soon_threadsafe(self._refuse_rest)
                return

    def _gather(self) -> list[PendingCommand]:
        """Wait for something to write, and return the next batch.

        Urgent commands go first, one at a time, then the queue, up to `batch_max` and
        `BATCH_SECONDS`. Blocked commands return to the head of the queue when their next try is
        due.
        """
        if not self._queue and not self._urgent:
            self._rest()
        if self._blocked:
            self._fail(self._blocked.take_expired(), self._blocked.error)
            self._queue.extendleft(reversed(self._blocked.take_due()))
        if self._urgent:
            self._expire_urgent()
        waits = self._queue and (self._urgent_failed or time.monotonic() < self._retry_urgent_at)
        if self._urgent and not waits:
            return _take(self._urgent, 1)
        count_max = self._batch_max
        if self._singly:
            count_max = 1
            self._singly -= 1
        elif self._command_pace * count_max > BATCH_SECONDS:
            count_max = max(BATCH_MIN, int(BATCH_SECONDS / self._command_pace))
        taken = _take(self._queue, count_max)
        return (
            [waiting for waiting in taken if not self._blocked.joins(waiting)]
            if self._blocked
            else taken
        )

    def _rest(self) -> None:
        """Sleep until there is something to write, or the next try of a blocked command is due."""
        self._idle = True
        # `enqueue` checks the flag after it has appended, so whichever is second sees what the
        # first did.
        if not self._queue and not self._urgent and not (self._closing and self._blocked):
            timeout = self._blocked.seconds_left() if self._blocked else None
            with suppress(Empty):
                self._wake.get(timeout=timeout)
        self._idle = False

    def _attempt(self, batch: list[PendingCommand]) -> None:
        """Write a batch once.

        Commands that could not be written return to the head of their queue, or are deferred.
        """
        source = self._urgent if batch[0].in_thread else self._queue
        started = time.monotonic()
        if self._failure is not None and not (
            batch := self._unexpired(batch, started, self._failure)
        ):
            return
        commands = [waiting.command for waiting in batch]
        self.batches += 1
        self.commands += len(commands)
        try:
            with until(max(batch[0].deadline, started + ATTEMPT_SECONDS_MIN)):
                outcomes = self._commit(commands)
        except BadValue as error:
            _count_failure(self._there, error)
            self._answered()
            if len(batch) > 1:
                self._one_by_one(batch, source)
            else:
                self._deliver(batch, [error])
        except Blocked as error:
            _count_failure(self._there, error)
            self._suspect = False
            self._isolate(batch, source, error, time.monotonic() - started)
        except (StoreUnavailable, CommitUnknown) as error:
            _count_failure(self._there, error)
            self._postpone(batch, source, error)
        except StoreError as error:
            _count_failure(self._there, error)
            self._deliver(batch, [error] * len(batch))
        except Exception as error:
            # The store itself is faulty. If this thread ended, every caller would wait forever.
            _count_failure(self._there, error)
            log.error("the store failed", exc_info=redact(error, self._log_values))
            text = format_error(error, self._log_values)
            unknown = StoreUnavailable(
                f"the store failed: {text}. Whether the last batch was written is not known."
            )
            self._deliver(batch, [unknown] * len(batch))
        else:
            self._answered()
            self._deliver(batch, outcomes)

    def _commit(self, commands: list[Command]) -> list[Any]:
        """Commit commands, after recovering from an unknown outcome, and update the statistics.

        Repeating commands is safe: each command's contract says what a repeat does.
        """
        if self._suspect:
            self._store.recover()
        started = time.perf_counter()
        outcomes = self._store.commit(commands)
        seconds = time.perf_counter() - started
        self._keep_pace(seconds)
        if self._there is not None:
            self._there.add(outcomes, seconds)
        if len(commands) > BATCH_MIN:
            self._command_pace += (seconds / len(commands) - self._command_pace) / 8
        return outcomes

    def _answered(self) -> None:
        """Note that the store works."""
        self._suspect, self._failure, self._urgent_failed, self._pause = (
            False,
            None,
            False,
            PAUSE_MIN,
        )
        self._blocked_in_a_row = 0

    def _one_by_one(self, batch: list[PendingCommand], source: deque[PendingCommand]) -> None:
        """Return a batch to its queue, to be written one command at a time."""
        source.extendleft(reversed(batch))
        self._singly = len(batch)

    def _postpone(
        self, batch: list[PendingCommand], source: deque[PendingCommand], error: StoreError
    ) -> None:
        """Return a batch to its queue after a failed attempt, and pause.

        Commands that would be past their deadline after the pause fail now.
        """
        if isinstance(error, CommitUnknown):
            self._suspect = True
            for waiting in batch:
                waiting.unsure = True
        self._failure, self._urgent_failed = error, source is self._urgent
        if self._pause > WARN_PAUSE:
            log.warning("trying again: %s", error)
        source.extendleft(reversed(batch))
        then = math.inf if self._closing else time.monotonic() + self._pause
        for queue in (self._urgent, self._queue):
            expired, left = split_expired(take_all(queue), then)
            queue.extendleft(reversed(left))
            self._fail(expired, error)
        if not self._closing:
            time.sleep(self._pause)
            self._pause = min(self._pause * 2, PAUSE_MAX)

    def _unexpired(
        self, batch: list[PendingCommand], now: float, error: StoreError
    ) -> list[PendingCommand]:
        expired, left = split_expired(batch, now)
        self._fail(expired, error)
        return left

    def _fail(self, batch: list[PendingCommand], error: StoreError) -> None:
        """Give up a batch and deliver StoreUnavailable for each command."""
        if not batch:
            return
        log.error("gave up writing %d verbs: %s", len(batch), error)
        unknown = f"{error} Whether the last batch was written is not known."
        for in_thread in (True, False):
            given_up = [waiting for waiting in batch if waiting.in_thread is in_thread]
            # Create new errors without a cause: the driver's error may contain values.
            errors = [StoreUnavailable(unknown if one.unsure else str(error)) for one in given_up]
            self._deliver(given_up, errors)

    # -- commands blocked by a locked row

    def _isolate(
        self,
        batch: list[PendingCommand],
        source: deque[PendingCommand],
        error: Blocked,
        seconds: float,
    ) -> None:
        """Defer the commands whose rows are locked, and return the others to the queue.

        If the store does not know which they are, the commands are written one at a time. If that
        finds nothing but locks, the problem is not single rows, and the store counts as
        unavailable.
        """
        again_at = time.monotonic() + max(BLOCKED_SECONDS, seconds * BLOCKED_SHARE)
        if batch[0].in_thread:
            source.extendleft(batch)
            self._urgent_blocked_by, self._retry_urgent_at = error, again_at
            if not self._queue:
                time.sleep(BLOCKED_SECONDS)
            return
        self._blocked_in_a_row += 1
        if not error.subjects and self._blocked_in_a_row > BLOCKED_MAX:
            self._postpone(batch, source, error)
            return
        held_up = [waiting for waiting in batch if subject_of(waiting) in error.subjects]
        if not held_up and len(batch) > 1:
            self._one_by_one(batch, source)
            return
        self._blocked.add(held_up or batch, error, again_at)
        rest = [waiting for waiting in batch if waiting not in held_up] if held_up else []
        source.extendleft(reversed(rest))

    def _expire_urgent(self) -> None:
        """Fail the urgent commands that are past their deadline."""
        now, expired = time.monotonic(), []
        while self._urgent and self._urgent[0].deadline <= now:
            expired.append(self._urgent.popleft())
        self._fail(expired, self._failure or self._urgent_blocked_by)

    def _deliver(self, batch: list[PendingCommand], outcomes: list[Any]) -> None:
        if not batch:
            return
        # The calling thread waits for the outcome, so deliver it from this thread.
        if batch[0].in_thread:
            _tell(batch, outcomes)
            return
        try:
            self._loop.call_soon_threadsafe(_tell, batch, outcomes)
        except RuntimeError:
            # The loop was closed, so no task is left to receive the outcomes.
            log.debug("the loop is closed; %d outcomes were not delivered", len(batch))


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
        while self._queue or self._blocked:
            if batch := self._gather():
                self._attempt(batch)


def _count_failure(commits: Commits | None, error: Exception) -> None:
    if commits is not None:
        unknown = "unknown" if isinstance(error, CommitUnknown) else "fault"
        kind = "unavailable" if isinstance(error, StoreUnavailable) else unknown
        commits.failed("bad_value" if isinstance(error, BadValue) else kind)


def _take(queue: deque[PendingCommand], count_max: int) -> list[PendingCommand]:
    taken: list[PendingCommand] = []
    room = BATCH_CHARACTERS
    for _ in range(min(len(queue), count_max)):
        room -= _characters(queue[0].command)
        if room < 0 and taken:
            break
        taken.append(queue.popleft())
    return taken


def _characters(command: Command) -> int:
    """Return roughly how long a command's texts are. Only frequent commands are measured."""
    if isinstance(command, Record):
        return (len(command.value) if command.value else 0) + (
            len(command.args) if command.args else 0
        )
    if isinstance(command, (Submit, Settle, SaveProgress, Send)):
        return sum(len(part) for part in command if isinstance(part, str))
    if isinstance(command, UpdateSession):
        appended = (value for append in command.appends.values() for value in append.values)
        return sum(map(len, appended)) + sum(
            len(value) for value in command.fields.values() if value
        )
    return 0


def _tell(batch: list[PendingCommand], outcomes: list[Any]) -> None:
    for waiting, outcome in zip(batch, outcomes, strict=True):
        try:
            waiting.done(waiting.command, outcome)
        except Exception:
            # A callback that fails must not keep the others from their outcomes.
            log.exception(
                "the outcome of %s could not be delivered", type(waiting.command).__name__
            )
