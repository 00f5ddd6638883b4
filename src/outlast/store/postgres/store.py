"""Store runs on a PostgreSQL server (14 or later).

Any number of processes on any number of hosts can share it. Every batch is one call of a
server-side function, so no transaction stays open while a client computes: see
`functions/10_commit.sql`.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

import psycopg

from outlast.errors import StoreUnavailable
from outlast.store import fork_guard
from outlast.store.commands import (
    LOUD,
    LOUD_AT_HOME,
    Command,
    Drain,
    Prune,
    SubmitMany,
    Sweep,
    Swept,
)
from outlast.store.deadline import CALL_SECONDS, acquired, time_left
from outlast.store.postgres import migrate
from outlast.store.postgres import statements as sql
from outlast.store.postgres.address import Address, parse
from outlast.store.postgres.connection import CALL, RECORD, Connection
from outlast.store.postgres.dispatch import Call, call, record_values
from outlast.store.postgres.failures import AGAIN, LOCKED, SHUT_OUT, at_opening, translate, words
from outlast.store.postgres.listener import Listener
from outlast.store.postgres.locked_rows import blocked_message, locked_subjects
from outlast.store.postgres.outcomes import Answer
from outlast.store.postgres.pruning import PruneParts
from outlast.store.postgres.reads import Reads
from outlast.store.postgres.scan_cursors import ScanCursorCache
from outlast.store.postgres.statements import StatementNames
from outlast.store.protocol import BadValue, Blocked, CommitUnknown, left_as_it_is
from outlast.store.rows import (
    QueueRow,
    RunRow,
)

log = logging.getLogger("outlast.store")

HERE_SECONDS = 0.25
"""How long a commit on the event loop may take before the thread that may block handles it."""
LOCK_WAIT_HERE = 0.005
"""How long a commit on the event loop waits for each lock."""
LOCK_WAITS = (0.3, 1.0, 2.0)
"""How long each attempt of a batch waits for a row lock. The next attempt follows only if the rows
are free again. Outlast holds row locks for milliseconds; another program may hold them for minutes.
"""
CANCELLED = "57014"
LONG_CALLS = 2.5
"""The bound, in multiples of `call_timeout`, on a batch that deletes or submits thousands of rows.
It exceeds the server's bound on every statement (SERVER_SHARE), so the server answers first.
"""
LISTING_SECONDS = 60.0
"""The bound on listing the queues, a query that reads every run."""
MIGRATION_SECONDS = 600.0
"""The bound on one step of a migration."""
AGAIN_MAX = 6
"""How often a call is attempted before a deadlock counts as an error."""
RECOVER_SECONDS_MAX = 5
"""How long `recover` waits for a lost call that still executes in the server."""


class PostgresStore(Reads):
    """Keep runs, entries and queues in one schema of a PostgreSQL database."""

    # Over 15 attributes: the address and clock that were given, one connection and lock each for
    # writing and reading, and the parts that `open` builds.

    migrates = True
    call_timeout = CALL_SECONDS

    def __init__(
        self, address: Address, *, clock: Callable[[], float] | None = None, heartbeat: float = 0.2
    ) -> None:
        self.address = address
        self.place = address.place
        self._clock = clock
        self._heartbeat = heartbeat
        self._named = StatementNames(migrate.quoted(address.schema), migrate.version())
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._listing = threading.Lock()
        self._opened = False
        self._ahead = 0.0
        """The server's clock minus this process's monotonic clock."""

    @classmethod
    def at(
        cls, address: str, *, clock: Callable[[], float] | None = None, heartbeat: float = 0.2
    ) -> PostgresStore:
        """Return the store at an address, not opened yet.

        Raise SettingsError for a bad address.
        """
        return cls(parse(address), clock=clock, heartbeat=heartbeat)

    # -- opening and closing

    def open(self) -> None:
        if self._opened:
            return
        calls = {CALL: self._named(sql.COMMIT), RECORD: self._named(sql.RECORD)}
        self._writer = Connection(self.address, calls, self.call_timeout)
        self._reader = Connection(self.address, seconds_max=self.call_timeout)
        self._id = uuid4().hex
        self._epoch = 0
        self._scan_cursors = ScanCursorCache()
        ways = (self._beat_reading, self._beat_writing)
        self._listener = Listener(
            self.address, self._heartbeat, self._named, ways, self.call_timeout
        )
        self._notifier = self._listener.notifier
        self._liveness = self._listener.liveness
        self._liveness.on_time = self._learn
        self._prunes = PruneParts()
        try:
            if self.address.migrate and self.migrates:
                if not migrate.check(self._writer):
                    self.migrate()
            elif (
                not self.migrates
                and (there := migrate.current(self._writer)[0]) < migrate.version()
            ):
                raise left_as_it_is(self.place, there, migrate.version())
            elif not migrate.check(self._writer):
                raise StoreUnavailable(self._unmigrated())
            self._learn(self._writer.execute(self._named(sql.NOW))[0][0])
        except BaseException as error:
            self._writer.drop()
            if isinstance(error, (psycopg.Error, OSError)):
                raise at_opening(error, self.address) from error
            raise
        self._opened = True
        fork_guard.watch(self)

    def _unmigrated(self) -> str:
        name = self.address.schema
        if not migrate.current(self._writer)[0]:
            return (
                f"{self.place}: there is no schema {name} of Outlast's in this database. "
                "Check its name, "
                "or run `outlast migrate`, which makes it."
            )
        return f"{self.place}: its schema {name} is not of this release. Run `outlast migrate`."

    def versions(self) -> tuple[int, int]:
        """Return the schema version in the database (0 if there is none) and the one this release
        knows.

        The store need not be open.
        """
        db = Connection(self.address)
        try:
            return migrate.current(db)[0], migrate.version()
        except (psycopg.Error, OSError) as error:
            raise at_opening(error, self.address) from error
        finally:
            db.drop()

    def script(self) -> str:
        """Return the SQL that `migrate` would execute in an empty database, for another role to
        execute.
        """
        return migrate.script(self.address.schema, self.address.schema_owner)

    def migrate(self) -> None:
        """Bring the schema to this release's version, even if the address says `migrate=no`.

        Raise StoreTooNew for a newer schema, StoreUnavailable if the server cannot be used.
        """
        db = Connection(self.address, seconds_max=MIGRATION_SECONDS)
        try:
            migrate.migrate(db)
        except (psycopg.Error, OSError) as error:
            raise at_opening(error, self.address) from error
        finally:
            db.drop()

    def _begin_epoch(self) -> None:
        db = self._writer.db()
        with db.transaction():
            db.execute(f"SET LOCAL lock_timeout = '{RECOVER_SECONDS_MAX}s'")
            self._epoch = self._writer.execute(self._named(sql.EPOCH), (self._id,))[0][0]

    def close(self) -> None:
        if not self._opened:
            return
        # Wait for a commit or a read in flight.
        with self._writing:
            self._opened = False
        with self._reading:
            pass
        with self._listing:
            pass
        self._listener.close()
        # If this fails, the server forgets the writer in time.
        with suppress(psycopg.Error):
            if self._epoch and self._writer.is_usable:
                self._writer.execute(self._named(sql.GONE), (self._id,))
        self._writer.drop()
        self._reader.drop()

    def locks(self) -> list[threading.Lock]:
        return [self._writing, self._reading, self._listing]

    def after_fork(self, *, at_rest: bool) -> None:
        """Drop the parent's sessions in a forked child. The child must open the store again."""
        if not self._opened:
            return
        self._opened = False
        for db in (self._writer, self._reader):
            db.forget_in_child()
        self._listener.forget_in_child()
        if not at_rest:
            self._writing = threading.Lock()
            self._reading = threading.Lock()
            self._listing = threading.Lock()

    # -- writing

    def now(self) -> float:
        return self._clock() if self._clock is not None else self._ahead + time.monotonic()

    def _learn(self, now: float) -> None:
        self._ahead = now - time.monotonic()

    def _at(self) -> float | None:
        """Return the time to send with a call. None means the server's own time."""
        return None if self._clock is None else self._clock()

    def try_commit(self, commands: Sequence[Command]) -> list[Any] | None:
        """Commit if no lock is in the way, in this process or in the server.

        Return None if one is, or if no prepared session is open: nothing was written. Wait at most
        HERE_SECONDS for the server, then raise CommitUnknown.
        """
        if not self._writing.acquire(blocking=False):
            return None
        try:
            self._check_open()
            if not self._writer.is_prepared:
                return None
            if self._recorded(commands, HERE_SECONDS):
                return [None]
            answer = self._commit(commands, HERE_SECONDS)
        finally:
            self._writing.release()
        return None if answer is None else self._whole(answer)

    def commit(self, commands: Sequence[Command]) -> list[Any]:
        if not commands:
            return []
        with self._writing:
            self._check_open()
            if self._recorded(commands):
                return [None]
            answer = self._commit(commands)
        # Only a commit on the event loop gives up.
        assert answer is not None
        outcomes = self._whole(answer)
        kinds = set(map(type, commands))
        if Prune in kinds:
            self._finish_prunes(commands, outcomes)
        rings = answer.rings or any(
            _has_news(outcome) for outcome in outcomes if kinds & {Sweep, Drain}
        )
        if rings or not kinds.isdisjoint(LOUD):
            self._notify(here=rings or not kinds.isdisjoint(LOUD_AT_HOME))
        return outcomes

    def _finish_prunes(self, commands: Sequence[Command], outcomes: list[int]) -> None:
        """Delete what the first call left, part by part, and stop after `call_timeout`.

        A Prune that stops early has deleted something: its caller repeats it until nothing is left.
        """
        deadline = time.monotonic() + time_left(self.call_timeout)
        for number, command in enumerate(commands):
            if type(command) is not Prune:
                continue
            more, count = command, outcomes[number]
            while count == self._prunes.part(more).limit and outcomes[number] < command.limit:
                if time.monotonic() > deadline:
                    return
                more = command._replace(limit=command.limit - outcomes[number])
                count = self._prune_more(more)
                outcomes[number] += count

    def _prune_more(self, prune: Prune) -> int:
        try:
            with self._writing:
                self._check_open()
                answer = self._commit([prune])
        except Blocked as error:
            log.debug("%s: the rest is pruned by the next call: %s", self.place, error)
            return 0
        except StoreUnavailable as error:
            # The batch is written, and may be committed again.
            raise CommitUnknown(str(error)) from error
        assert answer is not None
        count: int = answer.outcomes[0]
        return count

    def _whole(self, answer: Answer) -> list[Any]:
        """Return the outcomes, with the rows that were too long for the answer.

        Raise CommitUnknown if those rows cannot be read: the batch is committed, and repeating it
        returns them.
        """
        if answer.late:
            try:
                rows = self._read(sql.RUNS_BY_PK, (list(answer.late),))
            except StoreUnavailable as error:
                # The batch is committed. A repeat returns the outcomes.
                raise CommitUnknown(str(error)) from error
            if not answer.fill([RunRow(*row) for row in rows]):
                raise CommitUnknown(f"{self.place}: a run was pruned while it was joined.")
        return answer.outcomes

    def _recorded(self, commands: Sequence[Command], seconds: float | None = None) -> bool:
        """Try to write a lone new entry with one plain statement.

        Return False if it wrote nothing; the full commit then finds out why.
        """
        if len(commands) != 1 or not self._writer.is_prepared:
            return False
        values = record_values(commands[0], self._id, self._epoch)
        if values is None:
            return False
        try:
            return self._writer.record(values, seconds)
        except psycopg.Error as error:
            if self._writer.is_usable:
                return False
            raise translate(error, self.address, sent=True, usable=False) from error

    def _commit(self, commands: Sequence[Command], seconds: float | None = None) -> Answer | None:
        """Call the commit function. Repeat the call after a deadlock or a short lock wait.

        `seconds` bounds the call on the event loop. With it, return None if a lock or a deadlock
        stopped the call: nothing was written. Raise Blocked if another program keeps a row locked.
        """
        scan_cursors = self._scan_cursors.now()
        sent = self._encode(commands, scan_cursors)
        lock_waits = iter(self._lock_waits() if seconds is None else [LOCK_WAIT_HERE])
        lock_wait = next(lock_waits)
        long = seconds is None and not {Prune, SubmitMany}.isdisjoint(map(type, commands))
        seconds_max = self.call_timeout * LONG_CALLS if long else seconds
        turn = 1
        while True:
            try:
                answer = self._call(sent, lock_wait, seconds_max)
            except psycopg.Error as error:
                definite = self._writer.is_usable
                if definite and seconds is not None and error.sqlstate in (*AGAIN, LOCKED):
                    return None
                if definite and error.sqlstate in AGAIN and turn < AGAIN_MAX:
                    time.sleep(random.uniform(0.0, 0.001 * 2**turn))  # noqa: S311
                    turn += 1
                    continue
                too_long = long and (not definite or error.sqlstate == CANCELLED)
                if too_long and self._prunes.shrink() and definite:
                    sent = self._encode(commands, scan_cursors)
                    continue
                if definite and error.sqlstate in (LOCKED, CANCELLED):
                    locked = self._locked(commands)
                    longer = next(lock_waits, None) if len(commands) > 1 else None
                    if locked or longer is None:
                        message = blocked_message(self.place, error, self.address)
                        raise Blocked(message, locked) from error
                    lock_wait = longer
                    continue
                if definite and error.sqlstate == SHUT_OUT and turn < AGAIN_MAX:
                    self._renew_epoch()
                    turn += 1
                    continue
                raise translate(error, self.address, sent=True, usable=definite) from error
            break
        if self._clock is None:
            self._learn(answer.now)
        for scan in answer.scans:
            self._scan_cursors.learn(*scan, answer.now, floored=scan_cursors is not None)
        for command, place in zip(
            (command for command in commands if type(command) is Prune), answer.places, strict=True
        ):
            self._prunes.stopped(command, place)
        return answer

    def _encode(self, commands: Sequence[Command], scan_cursors: Any) -> Call:
        parts = [self._prunes.part(command) for command in commands]
        return call(parts, scan_cursors, self._prunes.position_of)

    def _locked(self, commands: Sequence[Command]) -> frozenset[tuple[str, Any]]:
        try:
            return locked_subjects(self._writer, self._named, commands)
        except psycopg.Error as error:
            usable = self._writer.is_usable
            raise translate(error, self.address, sent=False, usable=usable) from error

    def _lock_waits(self) -> list[float]:
        """Return how long each attempt waits for a row lock. The server gives up before the client
        does.
        """
        most = time_left(self.call_timeout) / 2
        return [wait for wait in LOCK_WAITS if wait <= most] or [most]

    def _call(self, sent: Call, lock_wait: float, seconds: float | None) -> Answer:
        try:
            self._writer.db()
            # A store that only reads needs no epoch, nor the right to write.
            if not self._epoch:
                self._begin_epoch()
        except (psycopg.Error, OSError) as error:
            raise translate(error, self.address, sent=False, usable=False) from error
        at = self._at()
        words = (
            self._id,
            str(self._epoch),
            None if at is None else repr(at),
            f"{max(1, int(lock_wait * 1000))}ms",
            sent.runs,
            sent.needs,
            sent.groups,
        )
        try:
            values = [None if word is None else word.encode() for word in words]
        except UnicodeEncodeError as error:
            raise BadValue(str(error)) from error
        return Answer(self._writer.call(values, seconds), sent.shape)

    def _renew_epoch(self) -> None:
        """Register under a new id after the server forgot this writer in a long silence.

        The new writer has nothing in flight.
        """
        self._id = uuid4().hex
        try:
            self._begin_epoch()
        except psycopg.Error as error:
            raise translate(error, self.address, sent=False, usable=True) from error

    def recover(self) -> None:
        """Shut out the call whose outcome is unknown.

        What the call has committed stays. From now on it can commit nothing more.
        """
        with self._writing:
            self._check_open()
            self._writer.drop()
            try:
                self._begin_epoch()
            except (psycopg.Error, OSError) as error:
                self._writer.drop()
                raise translate(error, self.address, sent=False, usable=False) from error

    def _check_open(self) -> None:
        if not self._opened:
            raise StoreUnavailable(
                f"{self.place}: the store is not open (closed, or inherited over a fork)."
            )

    # -- reading

    def _read(self, statement: str, values: Any = None, **words: str) -> list[Any]:
        named = self._named(statement, **words)
        with acquired(self._reading, self.call_timeout, self.place):
            self._check_open()
            for turn in range(2):
                was_open = self._reader.is_open
                try:
                    return self._reader.execute(named, values)
                except (psycopg.Error, OSError, UnicodeEncodeError) as error:
                    if was_open and turn == 0 and not self._reader.is_usable:
                        # The connection was lost since the last read: retry on a new one.
                        continue
                    raise translate(
                        error, self.address, sent=False, usable=self._reader.is_usable
                    ) from error
        raise AssertionError("the second turn returns or raises")

    def queues(self) -> list[QueueRow]:
        """Return a row per queue.

        The query reads every run, so it has its own connection: other reads must not wait for it.
        """
        with acquired(self._listing, LISTING_SECONDS, self.place):
            self._check_open()
            db = Connection(self.address, seconds_max=LISTING_SECONDS)
            try:
                return [
                    QueueRow(*row) for row in db.execute(self._named(sql.QUEUES), (self._at(),))
                ]
            except (psycopg.Error, OSError) as error:
                raise translate(error, self.address, sent=False, usable=False) from error
            finally:
                db.drop()

    # -- liveness and notification

    def dead_workers(self) -> list[str]:
        return [worker for (worker,) in self._read(sql.DYING, (self._at(),))]

    def listen(self, on_change: Callable[[], None]) -> None:
        self._notifier.listen(on_change)

    def _notify(self, *, here: bool) -> None:
        if here:
            self._notifier.notify_local()
        if self._listener.is_running:
            self._notifier.notify()
            return
        # The commit stands. A lost notification is no failure.
        with suppress(StoreUnavailable):
            self._read(sql.NOTIFY, (self._notifier.channel,))

    def acquire_liveness(self, worker: str) -> None:
        self._liveness.acquire(worker)

    def release_liveness(self, worker: str) -> None:
        self._liveness.release(worker)

    def _beat_reading(self, workers: list[str]) -> bool:
        return self._beat(self._reading, self._reader, workers)

    def _beat_writing(self, workers: list[str]) -> bool:
        return self._beat(self._writing, self._writer, workers)

    def _beat(self, lock: threading.Lock, db: Connection, workers: list[str]) -> bool:
        """Send a heartbeat over this connection. Return False if it is busy, closed or broken."""
        if not lock.acquire(timeout=self._heartbeat / 10):
            return False
        try:
            if not self._opened or not db.is_usable:
                return False
            db.execute(self._named(sql.HEART), (workers, self._heartbeat, None))
        except (psycopg.Error, OSError) as error:
            log.debug("a heartbeat goes over another connection: %s", words(error, self.address))
            return False
        finally:
            lock.release()
        return True


def _has_news(outcome: Any) -> bool:
    """Return whether a Sweep found dead workers or a Drain released something."""
    return (
        bool(outcome.workers)
        if isinstance(outcome, Swept)
        else isinstance(outcome, tuple) and bool(outcome)
    )
