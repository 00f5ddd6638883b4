"""Store runs in a folder of JSON lines, for volumes and for people who read their state with `cat`.

One process at a time can open it. It is the SQLite store in memory. Before it commits a
transaction, all changes are on the disk as one line of the log. Afterwards the lines go to the
journals, one per run and one per session (see `row_files`). So memory never holds what the files do
not, and an acknowledged commit is on the disk.

After a failure or an interruption between the two, the next call repairs the files first. The log
is authoritative up to the last commit that memory has. The store rewrites the journals from the
log, then empties the log.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Any, Self

from outlast.errors import StoreBroken, StoreError, StoreTooNew
from outlast.store.commands import Command
from outlast.store.file import disk
from outlast.store.file.address import path_of
from outlast.store.file.batch import Batch, Composer, Length
from outlast.store.file.folder import Folder
from outlast.store.file.gradual_sync import GradualSync
from outlast.store.file.journal_files import Journals
from outlast.store.file.load import Loader, Tail, files_in, schema_of, tails
from outlast.store.file.log import History, Log, first_line
from outlast.store.file.log_checks import report_difference, sum_of, untouched
from outlast.store.file.row_changes import SCHEMA, RowChange, RowChanges, tables
from outlast.store.protocol import CommitUnknown, left_as_it_is
from outlast.store.sqlite import connection, migrate
from outlast.store.sqlite import statements as sql
from outlast.store.sqlite.failures import translate
from outlast.store.sqlite.liveness import LocalLiveness
from outlast.store.sqlite.store import SQLiteStore

log = logging.getLogger("outlast.store")

LOG_BYTES_MAX = 4 * 1024 * 1024
"""Bytes. A longer log becomes the old log, and a new one begins."""


class FileState(Enum):
    """How the files compare with memory."""

    CURRENT = auto()
    """They agree."""
    LOG_AHEAD = auto()
    """The log may have a commit that memory does not have."""
    JOURNALS_BEHIND = auto()
    """The journals may lack a commit that the log and memory have."""


class FileStore(SQLiteStore):
    """Keep runs as plain files in a folder, with SQLite in memory as the index."""

    def __init__(self, path: str | Path, *, clock: Callable[[], float] | None = None) -> None:
        super().__init__(None, clock=clock)
        self.folder = Path(path).absolute()
        self.place = str(path)
        self._state = FileState.CURRENT
        self._old: GradualSync | None = None
        """The journals to sync before the old log can be removed. None: there is no old log."""

    @classmethod
    def at(
        cls,
        address: str,
        *,
        clock: Callable[[], float] | None = None,
        heartbeat: float = 0.2,  # noqa: ARG003
    ) -> Self:
        """Return the store at an address, not opened yet.

        `heartbeat` has no effect: no other process has the store open to check for one.
        """
        return cls(path_of(address), clock=clock)

    # -- opening

    def versions(self) -> tuple[int, int]:
        """Return the schema version of the journals (0 if there is no store) and the one that is
        known here.

        A version that only the log has is found when the store is opened.
        """
        known = migrate.version()
        try:
            if not Folder(self.folder).format():
                return 0, known
            return self._version_in_journals() or known, known
        except OSError as error:
            raise translate(error, self.place, committing=False) from error

    def _version_in_journals(self) -> int | None:
        try:
            return schema_of(self.folder, None)
        except StoreBroken:
            # After a power cut, opening repairs the journal from the log, or raises.
            return None

    def _migrate(self) -> None:
        """Fill the new database in memory from the files, and migrate it.

        No file is changed before everything is read and checked.
        """
        self._entered = Folder(self.folder)
        self._closing.append(self._entered.leave)
        self._entered.enter()
        if isinstance(self._liveness, LocalLiveness):
            self._liveness.left = self._entered.left
        self._log = Log(self.folder)
        self._closing.append(self._log.close)
        history = self._log.read()
        ends = tails(self.folder, history.parts)
        steps = migrate.migrations()
        schema = self._known_schema(schema_of(self.folder, ends.get("store.jsonl")), len(steps))
        if schema < len(steps) and not self.migrates:
            raise left_as_it_is(self.place, schema, len(steps))
        self._changes = RowChanges(self._db)
        self._db.execute(sql.BEGIN)
        self._execute(steps[:schema])
        loader = self._load(ends, history)
        # The files have rows, and no triggers.
        self._db.execute(sql.KEY_RULE)
        self._changes.watch()
        self._db.execute(sql.COMMIT)
        self._db.execute("CREATE TEMP TABLE outlast_commit (number INTEGER NOT NULL)")
        self._db.execute(
            "INSERT INTO outlast_commit VALUES (?)", (max(loader.loaded.commit, history.commit),)
        )
        self._journals = Journals(self.folder, loader.loaded.lengths, loader.loaded.row_files)
        self._batch: Batch | None = None
        self._rewriting: str | None = None
        # The store may have been open before.
        self._state = FileState.CURRENT
        self._settle_files(ends, history.torn)
        self._compose_for(schema)
        if schema < len(steps):
            self._upgrade(steps[schema:], len(steps))

    def _known_schema(self, found: int | None, known: int) -> int:
        if found is not None and found > known:
            raise StoreTooNew(
                f"{self.place}: its schema is version {found}, this Outlast supports up to "
                f"{known}. It "
                "was written by a newer Outlast: upgrade this "
                "one. Nothing was changed."
            )
        return known if found is None else found

    def _execute(self, scripts: Sequence[str]) -> None:
        for script in scripts:
            for statement in migrate.statements_of(script):
                self._db.execute(statement)

    def _load(self, ends: dict[str, Tail], history: History) -> Loader:
        loader = Loader(self.folder, tables(self._db), history.commit)
        for file in sorted({*files_in(self.folder), *ends}):
            loader.load(file, ends.get(file))
        found, known = untouched(loader.loaded.lengths, history)
        if found != known:
            raise StoreBroken(
                f"{self.place}: its log says that {known.files} journals with {known.size} bytes "
                f"have not changed since, and {found.files} with {found.size} bytes were found. "
                "Files were removed, added or truncated. Nothing was changed. Restore the folder "
                "from a copy. To continue without what is missing, remove the first line of "
                "commits.jsonl."
            )
        loader.fill(self._db)
        return loader

    def _settle_files(self, ends: dict[str, Tail], torn: int) -> None:
        """Bring the files to the state that was read, and empty the log."""
        self._log.open()
        if torn:
            log.warning(
                "%s: removed %d bytes of an incomplete last line. It was never acknowledged.",
                self._log.path,
                torn,
            )
        for file, end in ends.items():
            report_difference(self.folder / file, end)
        self._journals.restore(ends)
        self._old = None
        if self._log.size or self._log.has_old:
            self._log.empty()
        self._journals.tidy()
        self._begin_log(self._committed())

    def _begin_log(self, commit: int) -> None:
        """Write the number and size of the journals to an empty log.

        If the disk has no room for the line, log a warning and continue without it.
        """
        line = first_line(commit, self.now(), sum_of(self._journals.lengths))
        try:
            self._log.write(line)
        except OSError as error:
            if not self._log.clean:
                raise
            log.warning("%s: a missing journal will not be noticed: %s", self.place, error)
        else:
            self._log.grown(len(line))

    def _compose_for(self, schema: int) -> None:
        self._composer = Composer(
            self._db, self._changes.tables, self._journals.lengths, self._journals.row_files, schema
        )

    def _upgrade(self, scripts: Sequence[str], version: int) -> None:
        """Migrate in one commit.

        Columns that a statement adds have defaults. Rows that it changes are recorded like any
        other change.
        """
        changes = [RowChange(SCHEMA, None, {"one": 1, "version": version})]
        self._db.execute(sql.BEGIN)
        for script in scripts:
            for statement in migrate.statements_of(script):
                self._changes.unwatch()
                self._changes.watch()
                self._db.execute(statement)
                changes += self._changes.taken()
        self._changes.watch()
        self._compose_for(version)
        self._log_commit(changes, self.now())
        self._db.execute(sql.COMMIT)
        self._finish()

    # -- closing

    def close(self) -> None:
        with self._writing:
            if self._opened:
                if isinstance(self._liveness, LocalLiveness) and self._liveness.holds:
                    self._entered.note_left()
                self._put_away()
        super().close()

    def _put_away(self) -> None:
        """Sync the journals, and empty the log down to the line that describes them.

        If that fails, everything is still in the log.
        """
        try:
            self._check()
            if self._state is not FileState.CURRENT:
                self._repair()
            self._journals.sync([*self._old_files(), *self._journals.unsynced])
            self._log.empty()
            self._begin_log(self._committed())
            self._log.sync()
        except (OSError, StoreError) as error:
            log.warning(
                "%s: its log could not be emptied, and will be when it is opened: %s",
                self.place,
                error,
            )

    def after_fork(self, *, at_rest: bool) -> None:
        """Close the parent's files in a forked child.

        The child must not write, and must not keep the lock after its parent has died.
        """
        if not self._opened:
            return
        super().after_fork(at_rest=at_rest)
        self._entered.leave()
        self._log.close()
        # Closing it might wait for a thread that does not exist in the child.
        connection.inherited.append(self._db)
        self._writing = self._reading = threading.Lock()

    # -- writing

    def try_commit(self, commands: Sequence[Command]) -> list[Any] | None:
        """Commit only if one sync of the log is all the work. Return None otherwise."""
        if self._state is not FileState.CURRENT or self._old_files():
            return None
        return super().try_commit(commands)

    def _check(self) -> None:
        super()._check()
        try:
            # Always check the lock: without it another process can open the store. Check the log
            # only while no repair is due.
            is_ours = self._entered.is_there() and (
                self._state is not FileState.CURRENT or self._log.is_there()
            )
        except OSError as error:
            raise translate(error, self.place, committing=False) from error
        if not is_ours:
            raise StoreBroken(
                f"{self.place}: it was removed or replaced while in use. Nothing more is written "
                "to it. Restart the program.",
                gone=True,
            )

    def _transact(
        self, commands: Sequence[Command], *, waits: bool = True
    ) -> tuple[list[Any], list[str], bool]:
        self._repair_if_needed()
        self._changes.clear()
        done = super()._transact(commands, waits=waits)
        self._finish()
        return done

    def _before_commit(self, at: float) -> None:
        changes = self._changes.taken()
        if changes:
            self._log_commit(changes, at)

    def _log_commit(self, changes: list[RowChange], at: float) -> None:
        """Make the changes of the open transaction durable in the log.

        Raise if that fails: the caller rolls the transaction back. A failed sync raises
        CommitUnknown.
        """
        batch = self._composer.compose(changes, self._committed() + 1, at)
        self._state = FileState.LOG_AHEAD
        try:
            self._log.write(batch.line)
        except OSError:
            if self._log.clean:
                self._state = FileState.CURRENT
            raise
        self._batch = batch
        try:
            self._log.sync()
        except OSError as error:
            raise CommitUnknown(f"{self.place}: the log could not be synced ({error}).") from error
        self._db.execute("UPDATE outlast_commit SET number = ?", (batch.commit,))

    def _finish(self) -> None:
        """Add the committed batch to the journals.

        The commit is durable and acknowledged, so a failure here only marks the store for repair.
        """
        batch = self._batch
        if batch is None:
            return
        self._state = FileState.JOURNALS_BEHIND
        self._log.grown(len(batch.line))
        self._journals.settle(batch)
        try:
            self._journals.place(batch)
            self._batch = None
            self._upkeep(batch)
        except (OSError, StoreBroken) as error:
            # The next commit repairs the store or raises before it writes anything.
            log.warning(
                "%s: journals are behind the log, and will be repaired: %s", self.place, error
            )
        else:
            self._state = FileState.CURRENT

    def _committed(self) -> int:
        """Return the number of the last commit that memory has."""
        return int(self._db.execute("SELECT number FROM outlast_commit").fetchone()[0])

    # -- upkeep

    def _upkeep(self, batch: Batch) -> None:
        for file in self._journals.too_long(batch):
            self._rewriting = file
            self._journals.rewrite(file, self._composer, batch.commit, self.now())
            self._rewriting = None
        if self._old is None and self._log.size > LOG_BYTES_MAX:
            self._old = GradualSync(self._journals.unsynced, LOG_BYTES_MAX)
            self._journals.unsynced.clear()
            self._log.turn()
            self._begin_log(batch.commit)
        elif self._old is not None:
            self._journals.sync(self._old.take(len(batch.line)))
            if not self._old.left:
                self._log.drop_old()
                self._old = None

    def _old_files(self) -> list[str]:
        return [] if self._old is None else self._old.left

    # -- repair

    def recover(self) -> None:
        """Cut a commit that memory does not have off the log, and repair the journals.

        A commit that the log still has is permanent. A commit that was cut off will not come back.
        """
        with self._writing:
            self._check()
            self._repair_if_needed()

    def _repair_if_needed(self) -> None:
        if self._state is FileState.CURRENT:
            return
        try:
            self._repair()
        except OSError as error:
            raise translate(error, self.place, committing=False) from error

    def _repair(self) -> None:
        committed, batch = self._committed(), self._batch
        if batch is not None and batch.commit <= committed:
            self._journals.settle(batch)
            self._state = FileState.JOURNALS_BEHIND
        # Only the log has more than memory.
        elif self._state is FileState.LOG_AHEAD:
            self._log.cut()
            self._batch = None
            self._state = FileState.CURRENT
            return
        self._batch = None
        if self._rewriting is not None:
            data = disk.read(self.folder / self._rewriting)
            self._journals.lengths[self._rewriting] = Length(len(data), data.count(b"\n"))
            self._rewriting = None
        self._journals.unsynced.update(dict.fromkeys(self._old_files()))
        self._settle_files(tails(self.folder, self._log.read(upto=committed).parts), 0)
        self._state = FileState.CURRENT
