"""Translate SQLite's errors into the store's.

Each error was provoked and examined (full disk, injected EIO, read-only, garbage). Before COMMIT
every error is definite: the transaction is gone and nothing else was executed. Of COMMIT's own
errors only FULL and BUSY are definite. After any other, such as a failed fsync, the rows may
reappear after a crash although no reader sees them now.
"""

from __future__ import annotations

import errno
import sqlite3

from outlast.errors import StoreBroken, StoreError, StoreUnavailable
from outlast.store.protocol import BadValue, CommitUnknown

BAD_VALUES = (
    UnicodeEncodeError,
    OverflowError,
    sqlite3.ProgrammingError,
    sqlite3.InterfaceError,
    sqlite3.DataError,
    # None or NaN where a value is required.
    sqlite3.IntegrityError,
)

_ADVICE = {
    sqlite3.SQLITE_BUSY: "another program holds its lock. End the program that keeps a "
    "transaction open, then try again.",
    sqlite3.SQLITE_LOCKED: "another program holds its lock. End the program that keeps a "
    "transaction open, then try again.",
    sqlite3.SQLITE_FULL: "the disk is full. Make room (`outlast prune --older-than 7d` may "
    "help), then try again.",
    sqlite3.SQLITE_READONLY: "it is read-only. Check the mount and the owner of the file and "
    "its folder.",
    sqlite3.SQLITE_IOERR: "reading or writing failed. Check the disk, its quota and its "
    "file-size limit.",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened. Check that its folder exists and may be "
    "written, and who owns what lies beside it (-wal, -shm).",
    sqlite3.SQLITE_PERM: "access is not permitted. Check the owner of the file and its folder.",
}
_BROKEN = {
    sqlite3.SQLITE_CORRUPT: "it is damaged. Restore a copy, or save what can be read with "
    "`sqlite3 FILE .recover`.",
    sqlite3.SQLITE_NOTADB: "it is not a SQLite database. Check the address.",
}
_ERRNO = {
    errno.EROFS: sqlite3.SQLITE_READONLY,
    errno.EACCES: sqlite3.SQLITE_PERM,
    errno.EPERM: sqlite3.SQLITE_PERM,
    errno.ENOSPC: sqlite3.SQLITE_FULL,
    errno.EDQUOT: sqlite3.SQLITE_FULL,
    errno.EIO: sqlite3.SQLITE_IOERR,
    errno.EFBIG: sqlite3.SQLITE_IOERR,
}
"""The operating system's errors, from the files beside the database."""


def translate(error: Exception, place: str, *, committing: bool) -> StoreError:
    """Return the store's error for one of sqlite3 or the system, raised before COMMIT or by it."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, BAD_VALUES) or isinstance(error.__context__, BAD_VALUES):
        # After an earlier failure, sqlite3 reports a value it cannot bind as that failure.
        return BadValue(str(error.__context__ or error))
    if str(error).startswith("Could not decode"):
        return StoreBroken(f"{place}: a text in it is damaged ({error}).")
    code = getattr(error, "sqlite_errorcode", _ERRNO.get(getattr(error, "errno", 0) or 0, 0)) & 0xFF
    if code in _BROKEN:
        return StoreBroken(f"{place}: {_BROKEN[code]} ({error})")
    # A missing table or column has no code of its own.
    if code == sqlite3.SQLITE_ERROR and str(error).startswith("no such "):
        return StoreBroken(
            f"{place}: a table of Outlast is missing, or lacks a column: another program changed "
            f"it. Restore a copy. ({error})"
        )
    if committing and code not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY):
        return CommitUnknown(f"{place}: the commit failed ({error}).")
    advice = _ADVICE.get(code, "it cannot be used now.")
    return StoreUnavailable(
        f"{place}: {advice} Nothing acknowledged is lost; the runs are resumable. ({error})"
    )
