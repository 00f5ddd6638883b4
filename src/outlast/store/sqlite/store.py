"""Implement the embedded store: one SQLite file, many processes on one host, no server.

`memory:` is this store on SQLite's in-memory database: the same statements, but one connection and
one process.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from outlast.errors import StoreBroken, StoreError, StoreUnavailable
from outlast.store import file_trust, fork_guard
from outlast.store.commands import Command, Drain
from outlast.store.deadline import CALL_SECONDS
from outlast.store.sqlite import connection, dispatch, migrate
from outlast.store.sqlite import statements as sql
from outlast.store.sqlite.connection import retry_busy
from outlast.store.sqlite.failures import translate
from outlast.store.sqlite.fair_lock import FairWriteLock, NoWriteLock
from outlast.store.sqlite.files import OpenFiles, SharedFiles, log_kept
from outlast.store.sqlite.liveness import Liveness, LocalLiveness
from outlast.store.sqlite.notifier import LocalNotifier, Notifier
from outlast.store.sqlite.opening import (
    check_library,
    folder_of,
    open_read_only,
    prepare_file,
    version_of,
)
from outlast.store.sqlite.pruning import PruneCursor
from outlast.store.sqlite.read_only import ReadOnlyDatabase, may_write
from outlast.store.sqlite.reads import Reads
from outlast.store.sqlite.transaction import Transaction
from outlast.store.sqlite.workers import Holder, death
from outlast.store.topics import Topic, news_of

T = TypeVar("T")


class SQLiteStore(Reads):
    """Keep runs, entries and queues in a SQLite database, in a file or in memory."""

    # 18 attributes: what was given, the locks and connections for writing and reading, and
    # what protects the file.

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
        self._prune_cursor = PruneCursor()
        self._files: OpenFiles | None = None
        """The files of an open database. None in memory."""
        self._read_only: ReadOnlyDatabase | None = None
        """The database, if this process may only read it."""
        self._lost: StoreBroken | None = None
        """Why nothing can be read or written now: see `_give_up`."""
        self._closing: list[Callable[[], None]] = []
        """Closes what was opened, in reverse order."""

    # -- opening and closing

    def versions(self) -> tuple[int, int]:
        return 0 if self.path is None else version_of(self.path, self.place), migrate.version()

    def open(self) -> None:
        if self._opened:
            return
        check_library(self.place)
        self._lost = None
        self._read_only = None
        try:
            if self.path is None:
                self._open_memory()
            else:
                self._open_file(self.path)
        except BaseException as error:
            self._drop()
            if isinstance(error, (sqlite3.Error, OSError)):
                raise translate(error, self.place, committing=False) from error
            raise
        self._opened = True
        fork_guard.watch(self)

    def _open_memory(self) -> None:
        self._liveness: Liveness | LocalLiveness = LocalLiveness()
        self._notifier: Notifier | LocalNotifier = LocalNotifier()
        self._write_lock: FairWriteLock | NoWriteLock = NoWriteLock()
        self._db = self._connect_memory()
        self._reader = self._db
        self._closing = [self._db.close, self._liveness.close, self._notifier.close]
        self._migrate()

    def _connect_memory(self) -> sqlite3.Connection:
        return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)

    def _open_file(self, path: Path) -> None:
        if not self.migrates and path.exists() and not may_write(path):
            self._open_read_only(path)
            return
        folder, owners = prepare_file(path, self.place)
        self._write_lock = FairWriteLock(folder, owners)
        # Release the worker's lock last. Until then no other process creates a new -wal or -shm.
        self._liveness = Liveness(folder, self._heartbeat, owners)
        self._closing += [self._write_lock.close, self._liveness.close]
        with self._write_lock:
            shared = SharedFiles(folder, path, self.place, owners)
            self._closing.append(shared.close)
            with log_kept(path, self.place):
                shared.check()
                self._db = self._connect(path)
                self._closing.append(self._db.close)
                retry_busy(lambda: self._prepare(path))
                # Check again: the files may have been replaced just before SQLite opened them.
                shared.check()
            self._migrate()
            self._reader = self._connect(path, read_only=True)
            self._closing.append(self._reader.close)
            # Make the reader open the log, too.
            self._reader.execute("SELECT 1 FROM sqlite_schema").fetchone()
            self._files = OpenFiles(path, self.place, self._db, shared)
            shared.publish()
            self._closing[-3:] = [self._close_connections]
        # A transaction waits in `retry_busy`, or not at all.
        self._db.execute("PRAGMA busy_timeout = 0")
        self._reader.execute(f"PRAGMA busy_timeout = {int(connection.BUSY_SECONDS * 1000)}")
        self._notifier = Notifier(folder, owners)
        self._closing.append(self._notifier.close)
        # Warn last: a process that waits for a store opens it again and again.
        file_trust.warn_if_open_to_others(path)

    def _open_read_only(self, path: Path) -> None:
        """Open a database that this process may not write. A commit raises StoreUnavailable."""
        self._read_only = open_read_only(path, self.place)
        self._liveness = Liveness(folder_of(path), self._heartbeat)
        self._notifier = LocalNotifier()
        self._write_lock = NoWriteLock()
        self._closing = [self._liveness.close]

    def _close_connections(self) -> None:
        files, self._files = self._files, None
        if files is not None:
            files.close_with(self._db, self._reader, lost=self._lost is not None)

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
            self._close_connections()

    def _connect(self, path: Path, *, read_only: bool = False) -> sqlite3.Connection:
        return connection.connect_durably(path, self._synchronous, read_only=read_only)

    def _prepare(self, path: Path) -> None:
        # Check first: a file that is not Outlast's, or too new, must stay unchanged.
        migrate.check(self._db, self.place)
        connection.switch_to_wal(self._db, path)

    def _migrate(self) -> None:
        migrate.migrate(self._db, self.place, allowed=self.migrates)

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
        files = self._files
        if files is not None:
            files.close()
            files.shared.close()
        if at_rest:
            self._db.close()
            self._reader.close()
        else:
            # Closing would roll back, which would harm the parent's transaction.
            connection.lost_inodes.update(() if files is None else (files.inode,))
            connection.inherited.append((self._db, self._reader))
            self._writing = threading.Lock()
            self._reading = threading.Lock()
        self._notifier.forget_in_child()
        self._liveness.forget_in_child()
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
                outcomes, *_ = self._transact(commands, waits=False)
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
                outcomes, swept, notifies = self._transact(commands)
        for worker in swept:
            self._liveness.remove(worker)
        self._notifier.notify(news_of(kinds, notifies=notifies))
        return outcomes

    def _transact(
        self, commands: Sequence[Command], *, waits: bool = True
    ) -> tuple[list[Any], list[str], bool]:
        """Commit, and return the outcomes, the dead workers, and whether to notify.

        With `waits`, wait for a program that holds the lock.
        """
        db = self._db
        files = self._files
        committing = False
        try:
            if files is not None:
                files.before_commit()
            if waits:
                retry_busy(lambda: db.execute(sql.BEGIN))
            else:
                db.execute(sql.BEGIN)
            transaction = Transaction(db, self.now(), self._liveness, self._prune_cursor)
            outcomes = dispatch.apply(transaction, commands)
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
                found = self._as_store_error(error, committing=committing)
            if isinstance(found, StoreBroken) and found.gone and files is not None:
                self._give_up(found)
            if found is error:
                raise
            raise found from error
        self._prune_cursor = transaction.prune_cursor
        return outcomes, transaction.swept, transaction.notifies

    def _before_commit(self, at: float) -> None:
        """Do what must precede a commit: the file store writes its log here.

        If this raises, nothing was written.
        """

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
                f"{self.place}: another program is reading it, so the log cannot be emptied yet."
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

    def _as_store_error(self, error: Exception, *, committing: bool) -> StoreError:
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
        with self._reading:
            self._check_open()
            try:
                if self._read_only is not None:
                    return self._read_only.query(action)
                return action(self._reader)
            except (sqlite3.Error, UnicodeEncodeError, OverflowError) as error:
                raise self._as_store_error(error, committing=False) from error

    # -- liveness and notification

    def dead_workers(self) -> list[str]:
        # A worker calls this at every heartbeat, so an idle worker notices lost files, too.
        self._check_files()
        now = self.now()
        return [
            holder.worker
            for holder in (Holder(*row) for row in self._read(sql.HOLDERS))
            if death(holder.worker, holder.until, now, self._liveness)
        ]

    def listen(self, on_change: Callable[[], None], topic: Topic = Topic.CHANGES) -> None:
        try:
            self._notifier.listen(on_change, topic)
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
