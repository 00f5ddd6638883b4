"""Check a database file, and create it and its folder, before a store connects to it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from outlast.errors import SettingsError, StoreUnavailable
from outlast.store import file_trust
from outlast.store.file_trust import Owners
from outlast.store.paths import making
from outlast.store.protocol import left_as_it_is
from outlast.store.sqlite import connection, migrate
from outlast.store.sqlite.failures import translate
from outlast.store.sqlite.files import check_log_is_there, log_kept
from outlast.store.sqlite.read_only import ReadOnlyDatabase, may_write

SQLITE_VERSION_MIN = (3, 37)
"""The first version with STRICT tables."""


def check_library(place: str) -> None:
    """Raise SettingsError if Python's SQLite library is too old."""
    if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
        raise SettingsError(
            f"{place}: Python's SQLite library is version {sqlite3.sqlite_version}, and "
            "Outlast needs 3.37 or later. Use a newer Python or operating system, or another "
            "store."
        )


def folder_of(path: Path) -> Path:
    """Return the folder beside a database. It holds its locks and notifications."""
    return path.with_name(path.name + ".d")


def version_of(path: Path, place: str) -> int:
    """Return the schema version of a database file, or 0 if there is none.

    Raise StoreBroken for a file that is not Outlast's.
    """
    try:
        if not path.stat().st_size:
            return 0
        if not may_write(path):
            check_log_is_there(path, place)
            database = ReadOnlyDatabase(path, place)
            return database.query(lambda db: migrate.version_of(db, place))
        with log_kept(path, place), closing(connection.connect(path, "mode=ro")) as db:
            return migrate.version_of(db, place)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except (sqlite3.Error, OSError) as error:
        raise translate(error, place, committing=False) from error


def prepare_file(path: Path, place: str) -> tuple[Path, Owners | None]:
    """Create a database file and its folder, or check those that exist.

    Return the folder, and who may own its files. Nothing is created beside a file that is not
    Outlast's.
    """
    # Opening reports an unavailable file too, or gets past it.
    with suppress(StoreUnavailable):
        version_of(path, place)
    folder = folder_of(path)
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
    if path.stat().st_ino in connection.lost_inodes:
        raise StoreUnavailable(
            f"{place}: this process was forked in the middle of a write to it. "
            "Start it with spawn instead of fork."
        )
    return folder, owners


def open_read_only(path: Path, place: str) -> ReadOnlyDatabase:
    """Return a database that this process may not write. Raise if its schema is not current."""
    file_trust.check_names(path, folder_of(path))
    check_log_is_there(path, place)
    database = ReadOnlyDatabase(path, place)
    version = database.query(lambda db: migrate.check(db, place))
    if version < migrate.version():
        raise left_as_it_is(place, version, migrate.version())
    return database
