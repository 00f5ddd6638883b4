"""The embedded store: one SQLite file, any number of processes of one host, no server.

`memory:` is this store on SQLite's in-memory database: the same statements, one connection, one process.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from importlib import resources
from pathlib import Path
from typing import Any

from outlast.errors import StoreBroken, StoreTooNew, StoreUnavailable
from outlast.store.rows import Entry, Message, RunQuery, RunRow, SessionRow, WorkerRow
from outlast.store.sqlite import statements as sql
from outlast.store.sqlite.apply import Transaction, death
from outlast.store.sqlite.bell import Bell, LocalBell
from outlast.store.sqlite.failures import translate
from outlast.store.sqlite.presence import NoPresence, Presence
from outlast.store.sqlite.turnstile import Turnstile
from outlast.store.verbs import LOUD, LOUD_AT_HOME, Verb

APPLICATION_ID = 0x4F75744C  # "OutL"
BUSY_SECONDS = 2.0
"""How long one attempt waits for a program that holds the lock; the writer tries again for longer."""


class SQLiteStore:
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

    # -- opening and closing

    def open(self) -> None:
        if self._opened:
            return
        try:
            if self.path is None:
                self._open_memory(None)
            else:
                self._open_file(self.path)
        except (sqlite3.Error, OSError) as error:
            raise translate(error, self.place, committing=False) from error
        self._opened = True
        _opened.add(self)

    def _open_memory(self, image: bytes | None) -> None:
        self._presence: Presence | NoPresence = NoPresence()
        self._bell: Bell | LocalBell = LocalBell()
        self._turnstile: Turnstile | nullcontext[None] = nullcontext()
        self._db = self._reader = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        if image is not None:
            self._db.deserialize(image)
        self._migrate()

    def _open_file(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = path.with_name(path.name + ".d")
        folder.mkdir(mode=0o700, exist_ok=True)
        # Made here, so that it is private from its first moment; -wal and -shm take its mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        self._inode = path.stat().st_ino
        self._presence = Presence(folder, self._heartbeat)
        self._bell = Bell(folder)
        self._turnstile = Turnstile(folder)
        with self._turnstile:
            self._db = self._connect(path)
            _retry_busy(lambda: self._prepare(path))
            self._migrate()
        self._reader = self._connect(path)

    def _connect(self, path: Path) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        db.execute(f"PRAGMA synchronous = {'FULL' if self._synchronous == 'full' else 'NORMAL'}")
        db.execute("PRAGMA journal_size_limit = 67108864")
        return db

    def _prepare(self, path: Path) -> None:
        mode = self._db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreUnavailable(
                f"{path}: its file system does not allow SQLite's WAL (journal mode is {mode!r}). Use a local disk, not a "
                "network file system."
            )

    def _migrate(self) -> None:
        """Forward only, each step in a transaction of its own; two processes at once are kept apart by BEGIN IMMEDIATE."""
        steps = _migrations()
        while True:
            self._db.execute(sql.BEGIN)
            try:
                version = self._db.execute("PRAGMA user_version").fetchone()[0]
                if not self._is_ours(version):
                    raise StoreBroken(
                        f"{self.place}: this SQLite database is not one of Outlast's. Use a file of its own."
                    )
                if version > len(steps):
                    raise StoreTooNew(
                        f"{self.place}: its schema is version {version}, this Outlast knows {len(steps)}. It was written by "
                        "a newer Outlast: upgrade this one. Nothing was changed."
                    )
                if version == len(steps):
                    return
                for statement in _statements(steps[version]):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self._db.execute(f"PRAGMA user_version = {version + 1}")
                self._db.execute(sql.COMMIT)
            finally:
                if self._db.in_transaction:
                    self._db.execute(sql.ROLLBACK)

    def _is_ours(self, version: int) -> bool:
        if self._db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID:
            return True
        return version == 0 and not self._db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()

    def close(self) -> None:
        if not self._opened:
            return
        self._opened = False
        self._presence.close()
        self._bell.close()
        self._db.close()
        self._reader.close()
        if isinstance(self._turnstile, Turnstile):
            self._turnstile.close()

    def after_fork(self) -> None:
        """In a forked child: let go of what the parent's life depends on; the child must open the store anew."""
        if self._opened:
            self._opened = False
            _inherited.append((self._db, self._reader, self._bell))  # closing them here could harm the parent's
            if isinstance(self._presence, Presence):
                self._presence.forget_in_child()
            if isinstance(self._turnstile, Turnstile):
                self._turnstile.close()

    # -- writing

    def now(self) -> float:
        return self._clock()

    def commit(self, verbs: Sequence[Verb]) -> list[Any]:
        with self._writing:
            self._check()
            with self._turnstile:
                outcomes, buried = self._transact(verbs)
        for worker in buried:
            self._presence.bury(worker)
        if any(isinstance(verb, LOUD) for verb in verbs):
            self._bell.ring(here=any(isinstance(verb, LOUD_AT_HOME) for verb in verbs))
        return outcomes

    def _transact(self, verbs: Sequence[Verb]) -> tuple[list[Any], list[str]]:
        db, committing = self._db, False
        try:
            db.execute(sql.BEGIN)
            transaction = Transaction(db, self.now(), self._presence)
            outcomes = transaction.apply(verbs)
            committing = True
            db.execute(sql.COMMIT)
        except (sqlite3.Error, ValueError, OverflowError) as error:
            if db.in_transaction:
                with suppress(sqlite3.Error):
                    db.execute(sql.ROLLBACK)
            raise translate(error, self.place, committing=committing) from error
        return outcomes, transaction.buried

    def recover(self) -> None:
        """Write the whole log into the database and empty it: what then is there, is; what is not, will not come back."""
        if self.path is None:
            return
        with self._writing, self._reading, self._turnstile:
            try:
                busy = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            except sqlite3.Error as error:
                raise translate(error, self.place, committing=False) from error
        if busy:
            raise StoreUnavailable(f"{self.place}: another program reads it; the log cannot be emptied yet.")

    def _check(self) -> None:
        if not self._opened:
            raise StoreUnavailable(f"{self.place}: the store is not open (closed, or inherited over a fork).")
        if self.path is not None:
            try:
                same = self.path.stat().st_ino == self._inode
            except FileNotFoundError:
                same = False
            if not same:
                raise StoreBroken(
                    f"{self.place}: the file was removed or replaced while in use. Nothing more is written to it; start again."
                )

    # -- reading

    def _read(self, statement: str, values: Any = ()) -> list[Any]:
        with self._reading:
            if not self._opened:
                raise StoreUnavailable(f"{self.place}: the store is not open (closed, or inherited over a fork).")
            try:
                return self._reader.execute(statement, values).fetchall()
            except (sqlite3.Error, UnicodeEncodeError) as error:
                raise translate(error, self.place, committing=False) from error

    def run(self, id: str) -> RunRow | None:
        rows = self._read(sql.RUN_BY_ID, (id,))
        return RunRow(*rows[0]) if rows else None

    def runs(self, query: RunQuery) -> list[RunRow]:
        values = query._asdict() | {"statuses": json.dumps(query.statuses) if query.statuses else None}
        return [RunRow(*row) for row in self._read(sql.RUNS, values)]

    def journal(self, run: int, after: int = 0, limit: int = 10_000) -> list[Entry]:
        return [Entry(*row) for row in self._read(sql.JOURNAL, (run, after, limit))]

    def messages(self, run: int, after: int = 0) -> list[Message]:
        return [Message(*row) for row in self._read(sql.MESSAGES, (run, after))]

    def workers(self) -> list[WorkerRow]:
        return [WorkerRow(*row) for row in self._read(sql.WORKERS)]

    def dead_workers(self) -> list[str]:
        now = self.now()
        return [worker for worker, until in self._read(sql.HOLDERS) if death(worker, until, now, self._presence)]

    def cancels(self, worker: str) -> list[tuple[str, str]]:
        return self._read(sql.CANCELS, (worker,))

    def session(self, id: str) -> SessionRow | None:
        rows = self._read(sql.SESSION, (id, self.now()))
        if not rows:
            return None
        version, updated, expires, _ = rows[0]
        return SessionRow(id, version, updated, expires, dict(self._read(sql.SESSION_FIELDS, (id,))))

    # -- life signs

    def listen(self, bell: Callable[[], None]) -> None:
        self._bell.listen(bell)

    def hold(self, worker: str) -> None:
        self._presence.hold(worker)

    def let_go(self, worker: str) -> None:
        self._presence.let_go(worker)

    # -- images, for tests that let a memory store outlive its objects

    def image(self) -> bytes:
        """Everything in a memory store, as bytes."""
        with self._writing:
            return self._db.serialize()

    @classmethod
    def from_image(cls, image: bytes, *, clock: Callable[[], float] | None = None) -> SQLiteStore:
        store = cls(None, clock=clock)
        store._open_memory(image)
        store._opened = True
        return store


def _migrations() -> list[str]:
    files = resources.files("outlast.store.sqlite.migrations")
    return [file.read_text() for file in sorted(files.iterdir(), key=lambda f: f.name) if file.name.endswith(".sql")]


def _statements(script: str) -> list[str]:
    statements: list[str] = []
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    return statements


def _retry_busy(action: Callable[[], None]) -> None:
    """Switching a new file to WAL fails at once, time-out or not, when another process opens it too."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


_opened: weakref.WeakSet[SQLiteStore] = weakref.WeakSet()
_inherited: list[Any] = []


def _after_fork_in_child() -> None:
    for store in list(_opened):
        store.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
