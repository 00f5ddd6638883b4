"""The embedded store: one SQLite file, any number of processes of one host, no server.

`memory:` is this store on SQLite's in-memory database: the same statements, one connection, one process.
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
from typing import Any

from outlast.errors import StoreBroken, StoreTooNew, StoreUnavailable
from outlast.store import fork, strangers
from outlast.store.paths import making
from outlast.store.protocol import left_as_it_is, outlook
from outlast.store.rows import (
    DrainRow,
    Entry,
    Message,
    Outlook,
    QueueRow,
    RunQuery,
    RunRow,
    SessionQuery,
    SessionRow,
    WorkerRow,
    sessions_of,
)
from outlast.store.sqlite import statements as sql
from outlast.store.sqlite.apply import Place, Transaction, mended, ready_workflows
from outlast.store.sqlite.bell import Bell, LocalBell
from outlast.store.sqlite.failures import translate
from outlast.store.sqlite.presence import NoPresence, Presence
from outlast.store.sqlite.turnstile import NoTurnstile, Turnstile
from outlast.store.sqlite.workers import Holder, death
from outlast.store.verbs import LOUD, LOUD_AT_HOME, SESSION, Drain, Verb

APPLICATION_ID = 0x4F75744C  # "OutL"
BUSY_SECONDS = 2.0
"""How long one attempt waits for a program that holds the lock; the writer tries again for longer."""


class SQLiteStore:
    migrates = True

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
        self._place = Place()
        self._closing: list[Callable[[], None]] = []
        """What was opened and must be closed, last first."""

    # -- opening and closing

    def versions(self) -> tuple[int, int]:
        known = len(_migrations())
        try:
            if self.path is None or not self.path.stat().st_size:
                return 0, known
            with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as db:
                return _version_of(db, self.place), known
        except (FileNotFoundError, NotADirectoryError):
            return 0, known
        except (sqlite3.Error, OSError) as error:
            raise translate(error, self.place, committing=False) from error

    def open(self) -> None:
        if self._opened:
            return
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
        self._presence: Presence | NoPresence = NoPresence()
        self._bell: Bell | LocalBell = LocalBell()
        self._turnstile: Turnstile | NoTurnstile = NoTurnstile()
        self._db = self._reader = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        if image is not None:
            self._db.deserialize(image)
        self._closing = [self._db.close, self._presence.close, self._bell.close]
        self._migrate()

    def _open_file(self, path: Path) -> None:
        with suppress(StoreUnavailable):  # which opening says, or gets over
            self.versions()  # a file that is not ours, or not for us: then nothing is made beside it
        folder = path.with_name(path.name + ".d")
        strangers.check_names(path, folder)
        with making(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        # Made here, so that it is private from its first moment; -wal and -shm take its mode. One that exists is not opened:
        # closing any descriptor of it would drop the locks that SQLite holds on it elsewhere in this process.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        strangers.check_beside(path, folder)
        owners = strangers.owners_of(path)
        strangers.give_folder(owners, folder)
        self._inode = path.stat().st_ino
        if self._inode in _lost_inodes:
            raise StoreUnavailable(
                f"{self.place}: this process was forked in the middle of a write to it; start it anew, by spawn."
            )
        self._turnstile = Turnstile(folder, owners)
        self._closing.append(self._turnstile.close)
        with self._turnstile:
            self._db = self._connect(path)
            self._closing.append(self._db.close)
            _retry_busy(lambda: self._prepare(path))
            self._migrate()
        self._reader = self._connect(path)
        self._db.execute(
            "PRAGMA busy_timeout = 0"
        )  # a transaction waits as `_retry_busy` says, or not at all
        self._presence = Presence(folder, self._heartbeat, owners)
        self._bell = Bell(folder, owners)
        self._closing += [self._reader.close, self._presence.close, self._bell.close]
        strangers.say_if_open_to_others(path)  # last: whoever waits for a store opens it again and again

    def _connect(self, path: Path) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            db.execute(f"PRAGMA synchronous = {'FULL' if self._synchronous == 'full' else 'NORMAL'}")
            db.execute("PRAGMA journal_size_limit = 67108864")
            db.execute("PRAGMA trusted_schema = OFF")  # a file may come from anywhere
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, path: Path) -> None:
        self._check_schema()  # first: a file that is not ours, or not for us, stays as it is
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
            _retry_busy(lambda: self._db.execute(sql.BEGIN))
            try:
                version = self._check_schema()
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

    def _check_schema(self) -> int:
        """Its version, if this Outlast may write to it."""
        version, known = _version_of(self._db, self.place), len(_migrations())
        if version > known:
            raise StoreTooNew(
                f"{self.place}: its schema is version {version}, this Outlast knows {known}. It was written by "
                "a newer Outlast: upgrade this one. Nothing was changed."
            )
        return version

    def close(self) -> None:
        if not self._opened:
            return
        with self._writing:  # after a commit or a read that is under way
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
        """In a forked child: let go of what the parent's life depends on; the child must open the store anew."""
        if not self._opened:
            return
        self._opened = False
        self._closing.clear()
        if self.path is None:
            return
        if at_rest:
            self._db.close()
            self._reader.close()
        else:  # rolling back would harm the parent's transaction
            _lost_inodes.add(self._inode)
            _inherited.append((self._db, self._reader))
            self._writing, self._reading = threading.Lock(), threading.Lock()
        if isinstance(self._bell, Bell):
            self._bell.forget_in_child()
        if isinstance(self._presence, Presence):
            self._presence.forget_in_child()
        if isinstance(self._turnstile, Turnstile):
            self._turnstile.close()

    # -- writing

    def now(self) -> float:
        return self._clock()

    def try_commit(self, verbs: Sequence[Verb]) -> list[Any] | None:
        """Commit if that can be done without waiting for anybody; None if not, and then nothing was written.

        What it may still wait for is the disk.
        """
        if not self._writing.acquire(blocking=False):
            return None
        try:
            self._check()
            if not self._turnstile.try_enter():
                return None
            try:
                outcomes, *_ = self._transact(verbs, patience=0.0)
            finally:
                self._turnstile.__exit__()
        finally:
            self._writing.release()
        return outcomes

    def commit(self, verbs: Sequence[Verb]) -> list[Any]:
        kinds = set(map(type, verbs))
        with self._writing:
            self._check()
            with self._turnstile.urgently() if Drain in kinds else self._turnstile:
                outcomes, buried, rings = self._transact(verbs)
        for worker in buried:
            self._presence.bury(worker)
        if rings or not kinds.isdisjoint(LOUD):
            self._bell.ring(here=rings or not kinds.isdisjoint(LOUD_AT_HOME))
        return outcomes

    def _transact(
        self, verbs: Sequence[Verb], patience: float = BUSY_SECONDS
    ) -> tuple[list[Any], list[str], bool]:
        db, committing = self._db, False
        try:
            if patience:
                _retry_busy(lambda: db.execute(sql.BEGIN))
            else:
                db.execute(sql.BEGIN)
            transaction = Transaction(db, self.now(), self._presence, self._place)
            outcomes = transaction.apply(verbs)
            self._before_commit(transaction.now)
            committing = True
            db.execute(sql.COMMIT)
        except BaseException as error:
            if db.in_transaction:
                with suppress(sqlite3.Error):
                    db.execute(sql.ROLLBACK)
            if isinstance(error, (sqlite3.Error, OSError, ValueError, OverflowError)):
                raise translate(error, self.place, committing=committing) from error
            raise
        self._place = transaction.place
        return outcomes, transaction.buried, transaction.rings

    def _before_commit(self, at: float) -> None:
        """What must be done before a transaction counts; if it raises, nothing was written."""

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

    def _check_open(self) -> None:
        if not self._opened:
            raise StoreUnavailable(f"{self.place}: the store is not open (closed, or inherited over a fork).")

    def _check(self) -> None:
        self._check_open()
        if self.path is not None:
            try:
                same = os.stat(self.path).st_ino == self._inode  # noqa: PTH116 - twice as quick, at every commit
            except FileNotFoundError:
                same = False
            if not same:
                raise StoreBroken(
                    f"{self.place}: the file was removed or replaced while in use. Nothing more is written to it; start again.",
                    gone=True,
                )

    # -- reading

    def _read(self, statement: str, values: Any = ()) -> list[Any]:
        with self._reading:
            self._check_open()
            try:
                return self._reader.execute(statement, values).fetchall()
            except (sqlite3.Error, UnicodeEncodeError, OverflowError) as error:
                raise translate(error, self.place, committing=False) from error

    def run(self, id: str) -> RunRow | None:
        rows = self._read(sql.RUN_BY_ID, (id,))
        return mended(RunRow(*rows[0])) if rows else None

    def runs(self, query: RunQuery) -> list[RunRow]:
        values = query._asdict() | {"statuses": json.dumps(query.statuses) if query.statuses else None}
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
        known = [worker for worker in seconds if isinstance(worker, str)]  # whatever a file has there
        for drain, took in self._read(sql.RECOVERIES, (json.dumps(known),)):
            seconds[drain].append(took)
        return [DrainRow._make((*row, tuple(seconds[row[0]]))) for row in rows]

    def durations(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[float]]:
        found: dict[tuple[str, str], list[float]] = {(workflow, step): [] for workflow, step in pairs}
        for workflow, step, seconds in self._read(sql.DURATIONS, (json.dumps(list(found)),)):
            found[workflow, step].append(seconds)
        return found

    def measured(self) -> list[tuple[str, str]]:
        return self._read(sql.MEASURED_PAIRS)

    def dead_workers(self) -> list[str]:
        now = self.now()
        return [
            holder.worker
            for holder in (Holder(*row) for row in self._read(sql.HOLDERS, {"now": now}))
            if holder.is_damaged or death(holder.worker, holder.until, now, self._presence)
        ]

    def look(self, queues: tuple[str, ...], workflows: tuple[str, ...]) -> Outlook:
        with self._reading:
            try:
                self._check_open()
                due: float | None = self._reader.execute(sql.NEXT_DUE).fetchone()[0]
                ready, suspect = (
                    {name for queue in queues for name in ready_workflows(self._reader, queue, number)}
                    for number in (1, 2)
                )
            except sqlite3.Error as error:
                raise translate(error, self.place, committing=False) from error
        return outlook(ready, suspect, due, self.now(), workflows)

    def queues(self) -> list[QueueRow]:
        return [QueueRow(*row) for row in self._read(sql.QUEUES, {"now": self.now()})]

    def depth(self, queue: str) -> int:
        rows = self._read(sql.QUEUE, (queue,))
        queued = rows[0][0] if rows else 0
        return queued if isinstance(queued, int) else 0  # as whoever submits takes what a file has there

    def held(self, worker: str) -> list[tuple[int, int, str]]:
        return self._read(sql.HOLDS, (worker,))

    def cancels(self, worker: str) -> list[tuple[str, str]]:
        return self._read(sql.CANCELS, (worker,))

    def session(self, id: str, space: str = SESSION) -> SessionRow | None:
        found = sessions_of(
            self._read(sql.SESSION_WITH_FIELDS, {"space": space, "session": id, "now": self.now()})
        )
        return found[0] if found else None

    def items(self, session: str, field: str, last: int | None = None, space: str = SESSION) -> list[str]:
        values = {
            "space": space, "session": session, "field": field, "last": -1 if last is None else last, "now": self.now(),
        }  # fmt: skip
        return [value for (value,) in reversed(self._read(sql.SESSION_ITEMS, values))]

    def sessions(self, query: SessionQuery) -> list[SessionRow]:
        updated, id = query.before or (math.inf, "")
        values = {**query._asdict(), "before_updated": updated, "before_id": id, "now": self.now()}
        return sessions_of(self._read(sql.SESSIONS, values))

    # -- life signs

    def listen(self, bell: Callable[[], None]) -> None:
        self._bell.listen(bell)

    def hold(self, worker: str) -> None:
        self._presence.hold(worker)

    def let_go(self, worker: str) -> None:
        self._presence.let_go(worker)

    def die(self) -> None:
        """For tests: close it as a killed process does, which lets go of its locks and cleans nothing up."""
        self._presence.die()
        self.close()

    # -- images, for tests that let a memory store outlive its objects

    def image(self) -> bytes:
        """Everything in a memory store, as bytes."""
        with self._writing:
            return self._db.serialize()

    def reopen(self, id: str) -> None:
        """Make an ended run claimable as it stands, so that its journal can be replayed once more; of one that was undone, the undo."""
        with self._writing:
            self._db.execute(sql.REOPEN, (id,))

    @classmethod
    def from_image(cls, image: bytes, *, clock: Callable[[], float] | None = None) -> SQLiteStore:
        store = cls(None, clock=clock)
        store._open_memory(image)
        store._opened = True
        return store


def _version_of(db: sqlite3.Connection, place: str) -> int:
    """Of the schema of a database that is ours, or empty (0)."""
    # In this order: they are committed together, maybe just now by another process, and whoever sees one of the first sees the last.
    filled = db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is not None
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    ours = db.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    if not ours and (version or filled):
        raise StoreBroken(f"{place}: this SQLite database is not one of Outlast's. Use a file of its own.")
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
    """SQLite's own time-out is switched off: it does not serve the switch to WAL, and one who must not wait cannot use it."""
    deadline = 0.0
    while True:
        try:
            action()
        except sqlite3.OperationalError as error:
            deadline = deadline or time.monotonic() + BUSY_SECONDS
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.002)
        else:
            return


_inherited: list[Any] = []
_lost_inodes: set[int] = set()
"""Files whose state of locks this forked process cannot know."""
