"""Store runs on a PostgreSQL server (14 or later).

Any number of processes on any number of hosts can share it. Every batch is one call of a
server-side function, so no transaction stays open while a client computes: see
`functions/10_commit.sql`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psycopg

from outlast.errors import StoreUnavailable
from outlast.store import fork_guard
from outlast.store.commands import Command, Drain, Prune, Sweep, Swept
from outlast.store.deadline import CALL_SECONDS, acquired, time_left
from outlast.store.postgres import migrate
from outlast.store.postgres import statements as sql
from outlast.store.postgres.address import Address, parse
from outlast.store.postgres.batch_committer import BatchCommitter
from outlast.store.postgres.connection import CALL, RECORD, Connection
from outlast.store.postgres.failures import at_opening, description, translate
from outlast.store.postgres.listener import Listener
from outlast.store.postgres.outcomes import Answer
from outlast.store.postgres.reads import Reads
from outlast.store.postgres.scan_cursors import ScanCursorCache
from outlast.store.postgres.server_clock import ServerClock
from outlast.store.postgres.statements import StatementNames
from outlast.store.protocol import Blocked, CommitUnknown, left_as_it_is
from outlast.store.rows import QueueRow, RunRow
from outlast.store.topics import News, Topic, news_of

log = logging.getLogger("outlast.store")

HERE_SECONDS = 0.25
"""How long a commit on the event loop may take before the thread that may block handles it."""
LISTING_SECONDS = 60.0
"""The bound on listing the queues, a query that reads every run."""
MIGRATION_SECONDS = 600.0
"""The bound on one step of a migration."""


class PostgresStore(Reads):
    """Keep runs, entries and queues in one schema of a PostgreSQL database."""

    # 16 attributes: the address and clock, one connection and lock each for writing and reading,
    # and the parts that `open` builds.

    migrates = True
    call_timeout = CALL_SECONDS

    def __init__(
        self, address: Address, *, clock: Callable[[], float] | None = None, heartbeat: float = 0.2
    ) -> None:
        self.address = address
        self.place = address.place
        self._clock = ServerClock(clock)
        self._heartbeat = heartbeat
        self._named = StatementNames(migrate.quoted(address.schema), migrate.version())
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._listing = threading.Lock()
        self._opened = False

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
        self._scan_cursors = ScanCursorCache()
        self._committer = BatchCommitter(
            self._writer, self.address, self._named, self._clock, self._scan_cursors
        )
        beats = (self._beat_reading, self._beat_writing)
        self._listener = Listener(
            self.address, self._heartbeat, self._named, beats, self.call_timeout
        )
        self._notifier = self._listener.notifier
        self._liveness = self._listener.liveness
        self._liveness.on_time = self._clock.learn
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
            self._clock.learn(self._writer.execute(self._named(sql.NOW))[0][0])
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
        self._committer.close()
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
        return self._clock.now()

    def _at(self) -> float | None:
        return self._clock.to_send()

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
            if self._committer.try_record(commands, HERE_SECONDS):
                return [None]
            answer = self._committer.commit(commands, self.call_timeout, HERE_SECONDS)
        finally:
            self._writing.release()
        return None if answer is None else self._whole(answer)

    def commit(self, commands: Sequence[Command]) -> list[Any]:
        if not commands:
            return []
        with self._writing:
            self._check_open()
            if self._committer.try_record(commands):
                return [None]
            answer = self._committer.commit(commands, self.call_timeout)
        # Only a commit on the event loop gives up.
        assert answer is not None
        outcomes = self._whole(answer)
        kinds = set(map(type, commands))
        if Prune in kinds:
            self._finish_prunes(commands, outcomes)
        notifies = answer.notifies or any(
            _has_news(outcome) for outcome in outcomes if kinds & {Sweep, Drain}
        )
        self._notify(news_of(kinds, notifies=notifies))
        return outcomes

    def _finish_prunes(self, commands: Sequence[Command], outcomes: list[int]) -> None:
        """Delete what the first call left, part by part, and stop after `call_timeout`.

        A Prune that stops early has deleted something: its caller repeats it until nothing is left.
        """
        deadline = time.monotonic() + time_left(self.call_timeout)
        prunes = self._committer.prunes
        for number, command in enumerate(commands):
            if type(command) is not Prune:
                continue
            more, count = command, outcomes[number]
            while count == prunes.part(more).limit and outcomes[number] < command.limit:
                if time.monotonic() > deadline:
                    return
                more = command._replace(limit=command.limit - outcomes[number])
                count = self._prune_more(more)
                outcomes[number] += count

    def _prune_more(self, prune: Prune) -> int:
        try:
            with self._writing:
                self._check_open()
                answer = self._committer.commit([prune], self.call_timeout)
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

    def recover(self) -> None:
        """Shut out the call whose outcome is unknown.

        What the call has committed stays. From now on it can commit nothing more.
        """
        with self._writing:
            self._check_open()
            self._committer.recover()

    def _check_open(self) -> None:
        if not self._opened:
            raise StoreUnavailable(
                f"{self.place}: the store is not open (closed, or inherited over a fork)."
            )

    # -- reading

    def _read(self, statement: str, values: Any = None, **fragments: str) -> list[Any]:
        named = self._named(statement, **fragments)
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

    def listen(self, on_change: Callable[[], None], topic: Topic = Topic.CHANGES) -> None:
        self._notifier.listen(on_change, topic)

    def _notify(self, news: News) -> None:
        self._notifier.notify_local(news.here)
        if self._listener.is_running:
            self._notifier.notify(news.elsewhere)
            return
        # The commit stands. A lost notification is no failure.
        with suppress(StoreUnavailable):
            for topic in news.elsewhere:
                self._read(sql.NOTIFY, (self._notifier.channel(topic),))

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
            log.debug(
                "Sending heartbeats over another connection: %s", description(error, self.address)
            )
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
