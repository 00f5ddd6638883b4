"""Implement the embedded store: one SQLite file, many processes on one host, no server.

`memory:` is this store on SQLite's in-memory database: the same statements, but one connection and
one process.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from outlast.errors import StoreBroken, StoreError, StoreTooNew, StoreUnavailable
from outlast.store import file_trust, fork
from outlast.store.commands import LOUD, LOUD_AT_HOME, SESSION, Command, Drain
from outlast.store.deadline import CALL_SECONDS, time_left
from outlast.store.paths import making
from outlast.store.protocol import claimable_of, left_as_it_is
from outlast.store.rows import (
    DELAYED,
    Claimable,
    DrainRow,
    Entry,
    Message,
    QueueRow,
    RunQuery,
    RunRow,
    SessionQuery,
    SessionRow,
    WorkerRow,
    sessions_of,
)
from outlast.store.sqlite import statements as sql
from outlast.store.sqlite.apply import PruneCursor, Transaction, mended, ready_workflows
from outlast.store.sqlite.failures import translate
from outlast.store.sqlite.fair_lock import FairWriteLock, NoWriteLock
from outlast.store.sqlite.files import OpenFiles, SharedFiles, check_log_is_there, log_kept
from outlast.store.sqlite.liveness import LivenessLocks, LocalLiveness
from outlast.store.sqlite.notify import FifoNotifier, LocalNotifier
from outlast.store.sqlite.read_only import ReadOnlyDatabase, may_write
from outlast.store.sqlite.workers import Holder, death

T = TypeVar("T")
APPLICATION_ID = 0x4F75744C  # "OutL"
BUSY_SECONDS = 2.0
"""How many seconds one attempt waits for a program that holds the lock. The writer retries for
longer.
"""


class SQLiteStore:
    migrates = True
    call_timeout = CALL_SECONDS

    def __init__(
        self,
        path: str | Path | None,
        *,
        clock: Callable[[], float] | None = None,
        synchronous: str = "full",
        heartbeat: float = 0.2,
    ) -> None:
        self.path = None if path is None else Path(path).absolute()
        self.place = "memory:" if self.path is None else str(path)
        self._clock = clock or time.time
        self._synchronous = synchronous
        self._heartbeat = heartbeat
        self._writing = threading.Lock()
        self._reading = threading.Lock() if path is not None else self._writing
        self._opened = False
        self._place = PruneCursor()
        self._files: OpenFiles | None = None
        """The files of an open database. None in memory."""
        self._read_only: ReadOnlyDatabase | None = None
        """The database, if this process may only read it."""
        self._lost: StoreBroken | None = None
        """Why nothing can be read or written any more: see `_give_up`."""
        self._closing: list[Callable[[], None]] = []
        """Closes what was opened, in reverse order."""

    # -- opening and closing

    def versions(self) -> tuple[int, int]:
        known = len(_migrations())
        try:
            if self.path is None or not self.path.stat().st_size:
                return 0, known
            if not may_write(self.path):
                check_log_is_there(self.path, self.place)
                database = ReadOnlyDatabase(self.path, self.place, BUSY_SECONDS)
                return database.query(lambda db: _version_of(db, self.place)), known
            with (
                log_kept(self.path, self.place),
                closing(
                    sqlite3.connect(
                        f"{self.path.as_uri()}?mode=ro", uri=True, timeout=time_left(BUSY_SECONDS)
                    )
                ) as db,
            ):
                return _version_of(db, self.place), known
        except (FileNotFoundError, NotADirectoryError):
            return 0, known
        except (sqlite3.Error, OSError) as error:
            raise translate(error, self.place, committing=False) from error

    def open(self) -> None:
        if self._opened:
            return
        self._lost = self._read_only = None
        try:
            if self.path is None:
                self._open_memory(None)
            else:
                self._open_file(self.path)
        except BaseException as error:
            self._drop()
            if isinstance(error, (sqlite3.Error, OSError)):
                raise translate(error, self.place, committing=False) from error
            raise
        self._opened = True
        fork.watch(self)

    def _open_memory(self, image: bytes | None) -> None:
        self._liveness: LivenessLocks | LocalLiveness = LocalLiveness()
        self._notifier: FifoNotifier | LocalNotifier = LocalNotifier()
        self._write_lock: FairWriteLock | NoWriteLock = NoWriteLock()
        self._db = self._reader = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False
        )
        if image is not None:
            self._db.deserialize(image)
        self._closing = [self._db.close, self._liveness.close, self._notifier.close]
        self._migrate()

    def _open_file(self, path: Path) -> None:
        if not self.migrates and path.exists() and not may_write(path):
            self._open_read_only(path)
            return
        # Opening reports this too, or gets past it.
        with suppress(StoreUnavailable):
            # Raise for a file that is not Outlast's before anything is created beside it.
            self.versions()
        folder = path.with_name(path.name + ".d")
        file_trust.check_names(path, folder)
        with making(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        # Create the file here, so that it is private from the start; -wal and -shm take its mode.
        # An existing file is not opened: closing any descriptor of it would drop the locks that
        # SQLite holds on it elsewhere in this process.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        file_trust.check_beside(path, folder)
        owners = file_trust.owners_of(path)
        file_trust.give_folder(owners, folder)
        self._inode = path.stat().st_ino
        if self._inode in _lost_inodes:
            raise StoreUnavailable(
                f"{self.place}: this process was forked in the middle of a write to it; start it anew, by spawn."
            )
        self._write_lock = FairWriteLock(folder, owners)
        # Release the worker's lock last. Until then no other process creates a new -wal or -shm.
        self._liveness = LivenessLocks(folder, self._heartbeat, owners)
        self._closing += [self._write_lock.close, self._liveness.close]
        with self._write_lock:
            self._shared_files = SharedFiles(folder, path, self.place, owners)
            self._closing.append(self._shared_files.close)
            with log_kept(path, self.place):
                self._shared_files.check()
                self._db = self._connect(path)
                self._closing.append(self._db.close)
                _retry_busy(lambda: self._prepare(path))
                # Check again: the files may have been replaced just before SQLite opened them.
                self._shared_files.check()
            self._migrate()
            self._reader = self._connect(path, read_only=True)
            self._closing.append(self._reader.close)
            # Make the reader open the log, too.
            self._reader.execute("SELECT 1 FROM sqlite_schema").fetchone()
            self._files = OpenFiles(path, self.place, self._db)
            self._shared_files.publish()
            self._closing[-3:] = [self._close_files]
        # A transaction waits in `_retry_busy`, or not at all.
        self._db.execute("PRAGMA busy_timeout = 0")
        self._reader.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
        self._notifier = FifoNotifier(folder, owners)
        self._closing.append(self._notifier.close)
        # Warn last: a process that waits for a store opens it again and again.
        file_trust.say_if_open_to_others(path)

    def _open_read_only(self, path: Path) -> None:
        """Open a database that this process may not write. A commit raises StoreUnavailable."""
        folder = path.with_name(path.name + ".d")
        file_trust.check_names(path, folder)
        check_log_is_there(path, self.place)
        self._inode = path.stat().st_ino
        database = ReadOnlyDatabase(path, self.place, BUSY_SECONDS)
        version, known = database.query(self._check_schema), len(_migrations())
        if version < known:
            raise left_as_it_is(self.place, version, known)
        self._read_only = database
        self._liveness, self._notifier = LivenessLocks(folder, self._heartbeat), LocalNotifier()
        self._write_lock = NoWriteLock()
        self._closing = [self._liveness.close]

    def _close_files(self) -> None:
        """Close the connections of a database whose files are in place.

        A process that opens the database from now on shares the files with these connections, or
        creates new ones after the last connection has removed them.
        """
        if self._lost is None:
            self._shared_files.close()
        self._close_connections()
        self._shared_files.close()

    def _close_connections(self) -> None:
        """Close both connections. SQLite then copies the log into the database and removes it.

        Only a connection that may write does so, and only if it is the last one of all processes.
        Where the copy would do harm, the read-only connection closes last.
        """
        files, self._files = self._files, None
        if files is None:
            return
        last, first = (
            (self._db, self._reader) if files.may_checkpoint() else (self._reader, self._db)
        )
        files.close()
        first.close()
        last.close()

    def _give_up(self, error: StoreBroken) -> None:
        """Close the connections at once after a file was lost. The caller holds `_writing`.

        If only the log's name is gone, SQLite still has the log and copies it into the database, so
        acknowledged commits are saved. This cannot wait for `close`, which a process that ends in a
        hurry never reaches.
        """
        with self._reading:
            self._lost = error
            if self._files is not None and self._files.may_checkpoint():
                # Closing copies the log only in the last of all processes, so do it here.
                with suppress(sqlite3.Error):
                    self._db.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
            self._close_files()

    def _connect(self, path: Path, *, read_only: bool = False) -> sqlite3.Connection:
        mode = "ro" if read_only else "rw"
        db = sqlite3.connect(
            f"{path.as_uri()}?mode={mode}",
            uri=True,
            timeout=time_left(BUSY_SECONDS),
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            db.execute(
                f"PRAGMA synchronous = {'FULL' if self._synchronous == 'full' else 'NORMAL'}"
            )
            db.execute("PRAGMA journal_size_limit = 67108864")
            # A file may come from anywhere.
            db.execute("PRAGMA trusted_schema = OFF")
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, path: Path) -> None:
        # Check first: a file that is not Outlast's, or too new, must stay unchanged.
        self._check_schema(self._db)
        mode = self._db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreUnavailable(
                f"{path}: its file system does not allow SQLite's WAL (journal mode is {mode!r}). Use a local disk, not a "
                "network file system."
            )

    def _migrate(self) -> None:
        """Migrate forward, each step in its own transaction.

        BEGIN IMMEDIATE keeps two processes apart. Raise NoStore or OlderStore if the store must not
        be migrated.
        """
        steps = _migrations()
        while True:
            _retry_busy(lambda: self._db.execute(sql.BEGIN))
            try:
                version = self._check_schema(self._db)
                if version == len(steps):
                    return
                if not self.migrates:
                    raise left_as_it_is(self.place, version, len(steps))
                for statement in _statements(steps[version]):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self._db.execute(f"PRAGMA user_version = {version + 1}")
                self._db.execute(sql.COMMIT)
            finally:
                if self._db.in_transaction:
                    self._db.execute(sql.ROLLBACK)

    def _check_schema(self, db: sqlite3.Connection) -> int:
        """Return the schema's version.

        Raise StoreTooNew or StoreBroken if this Outlast cannot use it.
        """
        version, known = _version_of(db, self.place), len(_migrations())
        if version > known:
            raise StoreTooNew(
                f"{self.place}: its schema is version {version}, this Outlast knows {known}. It was written by "
                "a newer Outlast: upgrade this one. Nothing was changed."
            )
        return version

    def close(self) -> None:
        if not self._opened:
            return
        # Wait for a commit or a read in progress.
        with self._writing:
            self._opened = False
        with self._reading:
            pass
        self._drop()

    def _drop(self) -> None:
        while self._closing:
            self._closing.pop()()

    def locks(self) -> list[threading.Lock]:
        return [self._writing] if self._reading is self._writing else [self._writing, self._reading]

    def after_fork(self, *, at_rest: bool) -> None:
        """Release in a forked child what the parent depends on.

        The child must open the store again.
        """
        if not self._opened:
            return
        self._opened = False
        self._closing.clear()
        if self.path is None or self._read_only is not None:
            return
        if self._files is not None:
            self._files.close()
        self._shared_files.close()
        if at_rest:
            self._db.close()
            self._reader.close()
        else:
            # Closing would roll back, which would harm the parent's transaction.
            _lost_inodes.add(self._inode)
            _inherited.append((self._db, self._reader))
            self._writing, self._reading = threading.Lock(), threading.Lock()
        if isinstance(self._notifier, FifoNotifier):
            self._notifier.forget_in_child()
        if isinstance(self._liveness, LivenessLocks):
            self._liveness.forget_in_child()
        if isinstance(self._write_lock, FairWriteLock):
            self._write_lock.close()

    # -- writing

    def now(self) -> float:
        return self._clock()

    def try_commit(self, commands: Sequence[Command]) -> list[Any] | None:
        """Commit if no other writer is in the way. Otherwise write nothing and return None.

        It may still wait for the disk.
        """
        if not self._writing.acquire(blocking=False):
            return None
        try:
            self._check()
            if not self._write_lock.try_enter():
                return None
            try:
                outcomes, *_ = self._transact(commands, patience=0.0)
            finally:
                self._write_lock.__exit__()
        finally:
            self._writing.release()
        return outcomes

    def commit(self, commands: Sequence[Command]) -> list[Any]:
        kinds = set(map(type, commands))
        with self._writing:
            self._check()
            with self._write_lock.urgently() if Drain in kinds else self._write_lock:
                outcomes, buried, rings = self._transact(commands)
        for worker in buried:
            self._liveness.remove(worker)
        if rings or not kinds.isdisjoint(LOUD):
            self._notifier.notify(here=rings or not kinds.isdisjoint(LOUD_AT_HOME))
        return outcomes

    def _transact(
        self, commands: Sequence[Command], patience: float = BUSY_SECONDS
    ) -> tuple[list[Any], list[str], bool]:
        db, files, committing = self._db, self._files, False
        try:
            if files is not None:
                files.before_commit()
            if patience:
                _retry_busy(lambda: db.execute(sql.BEGIN))
            else:
                db.execute(sql.BEGIN)
            transaction = Transaction(db, self.now(), self._liveness, self._place)
            outcomes = transaction.apply(commands)
            self._before_commit(transaction.now)
            committing = True
            db.execute(sql.COMMIT)
            if files is not None:
                files.after_commit()
        except BaseException as error:
            if db.in_transaction:
                with suppress(sqlite3.Error):
                    db.execute(sql.ROLLBACK)
            found: BaseException = error
            if isinstance(error, (sqlite3.Error, OSError, ValueError, OverflowError)):
                found = self._meaning(error, committing=committing)
            if isinstance(found, StoreBroken) and found.gone and files is not None:
                self._give_up(found)
            if found is error:
                raise
            raise found from error
        self._place = transaction.place
        return outcomes, transaction.buried, transaction.rings

    def _before_commit(self, at: float) -> None:
        """Do what must precede a commit. If this raises, nothing was written."""

    def recover(self) -> None:
        """Write the whole log into the database and empty it, which makes every outcome definite.

        What is in the database afterwards is durable, and what is not will not come back. Raise
        StoreUnavailable while another program reads the database.
        """
        if self.path is None:
            return
        with self._writing, self._reading, self._write_lock:
            self._check_open()
            try:
                if self._files is not None:
                    self._files.check()
                busy = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            except (sqlite3.Error, OSError) as error:
                raise translate(error, self.place, committing=False) from error
        if busy:
            raise StoreUnavailable(
                f"{self.place}: another program reads it; the log cannot be emptied yet."
            )

    def _check(self) -> None:
        """Raise StoreUnavailable or StoreBroken if nothing can be committed."""
        self._check_open()
        self._check_writable()

    def _check_writable(self) -> None:
        if self._read_only is not None:
            raise StoreUnavailable(
                f"{self.place}: this user may only read it. Nothing was written. "
                "Check the mount and the owner of the file and its folder."
            )

    def _check_files(self) -> None:
        """Raise StoreBroken if the database, `-wal` or `-shm` was removed or replaced."""
        try:
            if self._files is not None:
                self._files.check()
        except StoreBroken as error:
            # Keep other processes from opening the database: that could create a log for a moment.
            with self._writing, self._write_lock:
                self._give_up(error)
            raise
        except OSError as error:
            raise translate(error, self.place, committing=False) from error

    def _meaning(self, error: Exception, *, committing: bool) -> StoreError:
        """Return the store's error for one of sqlite3 or the system. Lost files explain any."""
        try:
            if self._files is not None:
                self._files.check()
        except StoreBroken as gone:
            return gone
        except OSError:
            pass
        return translate(error, self.place, committing=committing)

    def _check_open(self) -> None:
        if self._lost is not None:
            raise StoreBroken(str(self._lost), gone=True)
        if not self._opened:
            raise StoreUnavailable(
                f"{self.place}: the store is not open (closed, or inherited over a fork)."
            )

    # -- reading

    def _query(self, action: Callable[[sqlite3.Connection], T]) -> T:
        return action(self._reader) if self._read_only is None else self._read_only.query(action)

    def _read(self, statement: str, values: Any = ()) -> list[Any]:
        with self._reading:
            self._check_open()
            try:
                return self._query(lambda db: db.execute(statement, values).fetchall())
            except (sqlite3.Error, UnicodeEncodeError, OverflowError) as error:
                raise self._meaning(error, committing=False) from error

    def run(self, id: str) -> RunRow | None:
        rows = self._read(sql.RUN_BY_ID, (id,))
        return mended(RunRow(*rows[0])) if rows else None

    def runs(self, query: RunQuery) -> list[RunRow]:
        statuses = json.dumps(query.statuses) if query.statuses else None
        delayed = DELAYED in query.statuses
        values = query._asdict() | {"statuses": statuses, "delayed": delayed, "now": self.now()}
        return [RunRow(*row) for row in self._read(sql.RUNS, values)]

    def journal(self, run: int, after: int = 0, limit: int = 10_000) -> list[Entry]:
        return [Entry(*row) for row in self._read(sql.JOURNAL, (run, after, limit))]

    def last_seq(self, run: int) -> int:
        return int(self._read(sql.LAST_SEQ, (run,))[0][0])

    def has_dealt(self, id: str) -> bool:
        return bool(self._read(sql.HAS_DEALT, {"id": id}))

    def done(self, run: int, keys: Sequence[str]) -> dict[str, str | None]:
        return dict(self._read(sql.DONE, (run, json.dumps(list(keys)))))

    def done_count(self, run: int) -> int:
        return int(self._read(sql.DONE_COUNT, (run,))[0][0])

    def history(self, run: int) -> list[Entry]:
        return [Entry(*row) for row in self._read(sql.HISTORY, (run,))]

    def messages(self, run: int, after: int = 0) -> list[Message]:
        return [Message(*row) for row in self._read(sql.MESSAGES, (run, after))]

    def progress(self, run: int) -> dict[str, str]:
        return dict(self._read(sql.PROGRESS, (run,)))

    def workers(self) -> list[WorkerRow]:
        return [WorkerRow(*row) for row in self._read(sql.WORKERS)]

    def asked(self, worker: str) -> str | None:
        rows = self._read(sql.ASKED, (worker,))
        return rows[0][0] if rows else None

    def drains(self, limit: int = 20) -> list[DrainRow]:
        rows = self._read(sql.DRAINS, (limit,))
        seconds: dict[str, list[float]] = {row[0]: [] for row in rows}
        # A damaged file may have anything there.
        known = [worker for worker in seconds if isinstance(worker, str)]
        for drain, took in self._read(sql.RECOVERIES, (json.dumps(known),)):
            seconds[drain].append(took)
        return [DrainRow._make((*row, tuple(seconds[row[0]]))) for row in rows]

    def durations(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[float]]:
        found: dict[tuple[str, str], list[float]] = {
            (workflow, step): [] for workflow, step in pairs
        }
        for workflow, step, seconds in self._read(sql.DURATIONS, (json.dumps(list(found)),)):
            found[workflow, step].append(seconds)
        return found

    def measured(self) -> list[tuple[str, str]]:
        return self._read(sql.MEASURED_PAIRS)

    def dead_workers(self) -> list[str]:
        # A worker calls this at every heartbeat, so an idle worker notices lost files, too.
        self._check_files()
        now = self.now()
        return [
            holder.worker
            for holder in (Holder(*row) for row in self._read(sql.HOLDERS, {"now": now}))
            if holder.is_damaged or death(holder.worker, holder.until, now, self._liveness)
        ]

    def peek(self, queues: tuple[str, ...], workflows: tuple[str, ...]) -> Claimable:
        def read(db: sqlite3.Connection) -> tuple[float | None, set[str], set[str]]:
            due: float | None = db.execute(sql.NEXT_DUE).fetchone()[0]
            ready, suspect = (
                {name for queue in queues for name in ready_workflows(db, queue, number)}
                for number in (1, 2)
            )
            return due, ready, suspect

        with self._reading:
            self._check_open()
            try:
                due, ready, suspect = self._query(read)
            except sqlite3.Error as error:
                raise translate(error, self.place, committing=False) from error
        return claimable_of(ready, suspect, due, self.now(), workflows)

    def queues(self) -> list[QueueRow]:
        return [QueueRow(*row) for row in self._read(sql.QUEUES, {"now": self.now()})]

    def depth(self, queue: str) -> int:
        rows = self._read(sql.DEPTH, {"queue": queue, "now": self.now()})
        queued, delayed = rows[0] if rows else (0, 0)
        # A damaged file may have anything in place of the count. A submission takes that as 0, too.
        return max(0, queued - delayed) if isinstance(queued, int) else 0

    def held(self, worker: str) -> list[tuple[int, int, str]]:
        return self._read(sql.HOLDS, (worker,))

    def cancels(self, worker: str) -> list[tuple[str, str]]:
        return self._read(sql.CANCELS, (worker,))

    def session(self, id: str, space: str = SESSION) -> SessionRow | None:
        found = sessions_of(
            self._read(sql.SESSION_WITH_FIELDS, {"space": space, "session": id, "now": self.now()})
        )
        return found[0] if found else None

    def items(
        self, session: str, field: str, last: int | None = None, space: str = SESSION
    ) -> list[str]:
        values = {
            "space": space, "session": session, "field": field, "last": -1 if last is None else last, "now": self.now(),
        }  # fmt: skip
        return [value for (value,) in reversed(self._read(sql.SESSION_ITEMS, values))]

    def sessions(self, query: SessionQuery) -> list[SessionRow]:
        updated, id = query.before or (math.inf, "")
        values = {**query._asdict(), "before_updated": updated, "before_id": id, "now": self.now()}
        return sessions_of(self._read(sql.SESSIONS, values))

    # -- liveness and notification

    def listen(self, on_change: Callable[[], None]) -> None:
        try:
            self._notifier.listen(on_change)
        except OSError as error:
            raise translate(error, self.place, committing=False) from error

    def acquire_liveness(self, worker: str) -> None:
        self._check_writable()
        try:
            self._liveness.acquire(worker)
        except OSError as error:
            raise translate(error, self.place, committing=False) from error

    def release_liveness(self, worker: str) -> None:
        self._liveness.release(worker)

    def die(self) -> None:
        """Close the store as a killed process would, for tests.

        Its locks are released, and nothing is cleaned up.
        """
        self._liveness.die()
        self.close()

    # -- images, for tests that let a memory store outlive its objects

    def image(self) -> bytes:
        """Return the content of a memory store as bytes."""
        with self._writing:
            return self._db.serialize()

    def reopen(self, id: str) -> None:
        """Make an ended run claimable as it stands, so that its journal can be replayed once more.

        If the run was compensated, the replay is of its compensation.
        """
        with self._writing:
            self._db.execute(sql.REOPEN, (id,))

    @classmethod
    def from_image(cls, image: bytes, *, clock: Callable[[], float] | None = None) -> SQLiteStore:
        store = cls(None, clock=clock)
        store._open_memory(image)
        store._opened = True
        return store


def _version_of(db: sqlite3.Connection, place: str) -> int:
    """Return the schema's version, or 0 if the database is empty.

    Raise StoreBroken if the database is not Outlast's.
    """
    # Keep this order. Another process may be committing all three together, and a reader that sees
    # one of the first sees the last.
    filled = db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is not None
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    ours = db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    if not ours and (version or filled):
        raise StoreBroken(
            f"{place}: this SQLite database is not one of Outlast's. Use a file of its own."
        )
    return version


@cache
def _migrations() -> list[str]:
    files = resources.files("outlast.store.sqlite.migrations")
    return [
        file.read_text()
        for file in sorted(files.iterdir(), key=lambda f: f.name)
        if file.name.endswith(".sql")
    ]


def _statements(script: str) -> list[str]:
    statements: list[str] = []
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    return statements


def _retry_busy(action: Callable[[], Any]) -> None:
    """Repeat an action while the database is busy, for BUSY_SECONDS at most.

    SQLite's own time-out is off: it does not cover the switch to WAL, and a commit that must not
    wait cannot use it.
    """
    deadline = 0.0
    while True:
        try:
            action()
        except sqlite3.OperationalError as error:
            deadline = deadline or time.monotonic() + time_left(BUSY_SECONDS)
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.002)
        else:
            return


_inherited: list[Any] = []
_lost_inodes: set[int] = set()
"""Files whose locks this forked process cannot know."""
