"""The writer: one a process. It takes everything that waits, makes it durable in one transaction, and tells each
waiter; meanwhile the next batch gathers. So a hundred runs cost little more than one.

It is a thread, so a blocked event loop cannot stop it. Verbs are written in the order of `put`; only a worker's own signs of
life (`urgent`) overtake, never a verb of a run, because a release that overtook a result would lose it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context
from queue import SimpleQueue
from typing import Any, TypeAlias

from outlast.errors import StoreError, StoreUnavailable
from outlast.store.protocol import BadValue, CommitUnknown, Store
from outlast.store.verbs import Keep, Record, Save, Send, Settle, Submit, Verb
from outlast.telemetry.meters import Commits
from outlast.telemetry.values import told, veiled

log = logging.getLogger("outlast.writer")

BATCH_SECONDS = 0.01
"""What one transaction should take at the most: who waits for the store, to drain or to renew, waits for it."""
BATCH_MIN = 50
"""Verbs that are written together however long it takes."""
BATCH_CHARACTERS = 8_000_000
"""Of texts written together, unless one verb alone has more: servers take no request of any size."""
HERE_SECONDS = 0.001
"""How quick commits must be for one to be made on the loop itself."""
_LATER: Any = object()


Waiting: TypeAlias = tuple[Verb, Callable[[Verb, Any], None]]
"""A verb, and what to call with it and its outcome: a result, a Refused, or a StoreError."""


class Writer:
    """`put` and `ask` from the loop, `call` from any thread but the loop's."""

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
        """What was committed on the loop itself, and by the thread: each counts for itself."""
        self._outside = Context()
        """For commits on the loop: what they do is no part of what a run does, nor of its trace."""
        self._patience, self._batch_max = patience, batch_max
        self._queue: deque[Waiting] = deque()
        self._urgent: deque[Waiting] = deque()
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._idle = False
        self._closing = False
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="outlast-writer", daemon=True)
        self._try = getattr(store, "try_commit", None)
        self._suspect = False
        """A commit on the loop itself left its outcome unknown."""
        self._pace = 0.0
        """Seconds that a commit takes of late."""
        self._verb_pace = 0.0
        """The same for one of its verbs, in large batches."""
        self.batches = 0
        self.verbs = 0

    @property
    def commits(self) -> tuple[Commits, ...]:
        """What was committed, by each thread that does; nothing if that is not counted."""
        return () if self._here is None or self._there is None else (self._here, self._there)

    def start(self) -> None:
        self._thread.start()

    def put(self, verb: Verb, done: Callable[[Verb, Any], None], *, alone: bool = False) -> None:
        """Have a verb written; `done(verb, outcome)` is called on the loop, in the order of `put`.

        `alone` says that nothing else is under way that could put a verb before this one is written: then there is nothing
        to gather, and where the disk is quick and nobody is in the way it is written here and now. Two thread switches
        cost as much as an fsync.
        """
        if alone and self._idle and not self._queue and not self._suspect and self._pace < HERE_SECONDS:
            outcome = self._write_here(verb)
            if outcome is not _LATER:
                self._loop.call_soon(done, verb, outcome)
                return
        self._queue.append((verb, done))
        if self._idle:
            self._idle = False
            self._wake.put(None)
        if self._closed:
            self._refuse_rest()

    def _refuse_rest(self) -> None:
        """The thread has ended: whoever comes now is told so."""
        error = StoreUnavailable("Outlast is closed: nothing more is written.")
        for verb, done in _take(self._queue, len(self._queue)):
            self._loop.call_soon(done, verb, error)

    def _write_here(self, verb: Verb) -> Any:
        started = time.perf_counter()
        try:
            outcomes = self._outside.run(self._try, [verb]) if self._try is not None else None
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
        self.verbs += 1
        if self._here is not None:
            self._here.add(outcomes, seconds)
        return outcomes[0]

    def _keep_pace(self, seconds: float) -> None:
        self._pace += (seconds - self._pace) / 8

    async def ask(self, verb: Verb) -> Any:
        """Have a verb written and wait for its result. A StoreError is raised; a Refused is returned."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def done(_: Verb, outcome: Any) -> None:
            if not future.done():
                if isinstance(outcome, StoreError):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)

        self.put(verb, done)
        return await future

    def call(self, verb: Verb, timeout: float | None = None) -> Any:
        """The same from a thread, ahead of what waits. For a worker's own signs of life only."""
        outcomes: SimpleQueue[Any] = SimpleQueue()
        self._urgent.append((verb, lambda _, outcome: outcomes.put(outcome)))
        if self._idle:
            self._idle = False
            self._wake.put(None)
        outcome = outcomes.get(timeout=timeout)
        if isinstance(outcome, StoreError):
            raise outcome
        return outcome

    def close(self) -> None:
        """Write what waits, then end."""
        self._closing = True
        self._wake.put(None)
        self._thread.join()

    def _work(self) -> None:
        while True:
            batch, urgent = self._gather()
            if batch:
                outcomes = self._write([verb for verb, _ in batch])
                if urgent:  # who asked from a thread is told in this one
                    _tell(batch[:urgent], outcomes[:urgent])
                    batch, outcomes = batch[urgent:], outcomes[urgent:]
                self._deliver(batch, outcomes)
            elif self._closing:
                self._closed = True
                if self._queue:  # put between the last look and the line above
                    self._loop.call_soon_threadsafe(self._refuse_rest)
                return

    def _gather(self) -> tuple[list[Waiting], int]:
        """What waits, up to `batch_max` and `BATCH_SECONDS`, and how many of it are urgent: these go alone, and first."""
        if not self._queue and not self._urgent:
            self._idle = True
            # `put` looks at the flag after it has appended: whoever is second sees what the first did.
            if not self._queue and not self._urgent:
                self._wake.get()
            self._idle = False
        urgent = _take(self._urgent, self._batch_max)
        if urgent:
            return urgent, len(urgent)
        count_max = self._batch_max
        if self._verb_pace * count_max > BATCH_SECONDS:
            count_max = max(BATCH_MIN, int(BATCH_SECONDS / self._verb_pace))
        return _take(self._queue, count_max), 0

    def _write(self, verbs: list[Verb]) -> list[Any]:
        self.batches += 1
        self.verbs += len(verbs)
        try:
            return self._persist(verbs)
        except BadValue as error:
            _count_failure(self._there, error)
            if len(verbs) == 1:
                return [error]
            return [self._write([verb])[0] for verb in verbs]
        except StoreUnavailable as error:  # counted at every attempt
            return [error] * len(verbs)
        except StoreError as error:
            _count_failure(self._there, error)
            return [error] * len(verbs)
        except (
            Exception
        ) as error:  # a fault of the store's own; without the thread every waiter would wait for ever
            _count_failure(self._there, error)
            log.error("the store failed", exc_info=veiled(error, self._log_values))
            said = told(error, self._log_values)
            return [
                StoreUnavailable(
                    f"the store failed: {said}. Whether the last batch was written is not known."
                )
            ] * len(verbs)

    def _persist(self, verbs: list[Verb]) -> list[Any]:
        """Until it is definite, or patience ends. The same verbs again is safe: each says what a repeat does."""
        deadline, pause, unknown = time.monotonic() + self._patience, 0.01, self._suspect
        while True:
            try:
                if unknown:
                    self._store.recover()
                started = time.perf_counter()
                outcomes = self._store.commit(verbs)
            except (StoreUnavailable, CommitUnknown) as error:
                unknown = self._suspect = unknown or isinstance(error, CommitUnknown)
                _count_failure(self._there, error)
                if time.monotonic() + pause > deadline or self._closing:
                    log.error("gave up writing: %s", error)
                    raise StoreUnavailable(
                        f"{error} Whether the last batch was written is not known." if unknown else str(error)
                    ) from None  # the cause of a driver's may have values in it
                if pause > 0.5:
                    log.warning("trying again: %s", error)
            else:
                self._suspect = False
                seconds = time.perf_counter() - started
                self._keep_pace(seconds)
                if self._there is not None:
                    self._there.add(outcomes, seconds)
                if len(verbs) > BATCH_MIN:
                    self._verb_pace += (seconds / len(verbs) - self._verb_pace) / 8
                return outcomes
            time.sleep(pause)
            pause = min(pause * 2, 1.0)

    def _deliver(self, batch: list[Waiting], outcomes: list[Any]) -> None:
        if not batch:
            return
        try:
            self._loop.call_soon_threadsafe(_tell, batch, outcomes)
        except RuntimeError:  # the loop was closed under us: nobody is left to tell
            log.debug("the loop is closed; %d outcomes were not delivered", len(batch))


class InlineWriter(Writer):
    """For tests on a virtual clock: commits on the loop itself, so that nothing depends on threads."""

    def start(self) -> None:
        self._scheduled = False

    def put(self, verb: Verb, done: Callable[[Verb, Any], None], *, alone: bool = False) -> None:  # noqa: ARG002
        self._queue.append((verb, done))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def call(self, verb: Verb, timeout: float | None = None) -> Any:  # noqa: ARG002
        outcome = self._write([verb])[0]
        if isinstance(outcome, StoreError):
            raise outcome
        return outcome

    def close(self) -> None:
        self._flush()

    def _flush(self) -> None:
        self._scheduled = False
        batch = _take(self._queue, self._batch_max)
        if batch:
            self._deliver(batch, self._write([verb for verb, _ in batch]))
            if self._queue:
                self._scheduled = True
                self._loop.call_soon(self._flush)


def _count_failure(commits: Commits | None, error: Exception) -> None:
    if commits is not None:
        unknown = "unknown" if isinstance(error, CommitUnknown) else "fault"
        kind = "unavailable" if isinstance(error, StoreUnavailable) else unknown
        commits.failed("bad_value" if isinstance(error, BadValue) else kind)


def _take(queue: deque[Waiting], count_max: int) -> list[Waiting]:
    taken: list[Waiting] = []
    room = BATCH_CHARACTERS
    for _ in range(min(len(queue), count_max)):
        room -= _characters(queue[0][0])
        if room < 0 and taken:
            break
        taken.append(queue.popleft())
    return taken


def _characters(verb: Verb) -> int:
    """How long a verb's texts are, about: of those verbs of which many may wait."""
    if isinstance(verb, Record):
        return (len(verb.value) if verb.value else 0) + (len(verb.args) if verb.args else 0)
    if isinstance(verb, (Submit, Settle, Save, Send)):
        return sum(len(part) for part in verb if isinstance(part, str))
    if isinstance(verb, Keep):
        appended = (value for append in verb.appends.values() for value in append.values)
        return sum(map(len, appended)) + sum(len(value) for value in verb.fields.values() if value)
    return 0


def _tell(batch: list[Waiting], outcomes: list[Any]) -> None:
    for (verb, done), outcome in zip(batch, outcomes, strict=True):
        try:
            done(verb, outcome)
        except Exception:  # one that fails must not keep the others from hearing
            log.exception("the outcome of %s could not be delivered", type(verb).__name__)
