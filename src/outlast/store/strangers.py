"""What others put beside a store's files, or may do to them.

Who may write a store's files may decide everything in it: their owner, root, and the group or the world that a deliberate mode lets in.
Somebody else must not become one of these by being there first: a folder of locks made by a stranger is refused, and no link is
followed.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from pathlib import Path

from outlast.errors import StoreBroken

log = logging.getLogger("outlast.store")

NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
"""Where links are followed (Windows), making one needs a privilege."""
LINK = (errno.ELOOP, errno.EMLINK)
"""What opening a link says that is not followed."""
_NO_FILE = (*LINK, errno.EISDIR, errno.ENXIO)
"""The same of a folder and of a socket."""
BESIDE = ("-wal", "-shm", "-journal")
"""What SQLite makes beside a database."""


def check_beside(database: Path, folder: Path) -> None:
    """Before anything beside a database is opened: StoreBroken if it is a link, or a folder of locks that a stranger has made.

    The folder may be of whoever owns the database, of root and of this user: in a container the user may be another one today than it was
    yesterday. Where the database is its group's to write, the folder may be that group's too.
    """
    for path in (folder, *(database.with_name(database.name + end) for end in BESIDE)):
        if path.is_symlink():
            raise StoreBroken(_link(path))
    if not hasattr(os, "geteuid"):
        return
    found, owned = folder.stat(), database.stat()
    if found.st_uid not in (os.geteuid(), 0, owned.st_uid) and not _is_its_groups(found, owned):
        raise StoreBroken(
            f"{folder}: it belongs to user {found.st_uid}, who owns neither the database nor this process, and could hold up or declare dead every worker "
            "here. Nothing was written. If no worker runs, remove it; and keep the database in a folder that only you may write."
        )
    if found.st_mode & stat.S_IWOTH and not owned.st_mode & stat.S_IWOTH:
        _close_to_others(folder, found)


def say_if_open_to_others(path: Path) -> None:
    """A file that exists keeps its mode: it may be meant so. But a copy restored from a backup is open to everybody as a rule."""
    mode = path.stat().st_mode
    if hasattr(os, "geteuid") and mode & (stat.S_IROTH | stat.S_IWOTH):
        may = "write" if mode & stat.S_IWOTH else "read"
        log.warning(
            "%s: every user of this machine may %s it (mode %03o), and arguments, results and sessions are in it as they are. `chmod 600` it, with what "
            "lies beside it (-wal, -shm), unless that is meant.",
            path, may, stat.S_IMODE(mode),
        )  # fmt: skip


def check_own(folder: Path) -> None:
    """Of a store that is a folder: StoreBroken if it is somebody else's and everybody may write in it."""
    if not hasattr(os, "geteuid"):
        return
    found = folder.stat()
    if found.st_uid not in (os.geteuid(), 0) and found.st_mode & stat.S_IWOTH:
        raise StoreBroken(
            f"{folder}: it belongs to user {found.st_uid}, and everybody may write in it. Nothing was written. Use a folder of your own."
        )


def open_plain(path: str | Path, flags: int, mode: int = 0o600) -> int:
    """A descriptor of a plain file. StoreBroken if there is a link, or anything else, by that name."""
    try:
        fd = os.open(path, flags | NO_FOLLOW | getattr(os, "O_CLOEXEC", 0), mode)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise StoreBroken(_link(path)) from None
        raise
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise StoreBroken(_link(path))


def _link(path: str | Path) -> str:
    return f"{path}: it is a link, or no plain file, which no store makes there. Nothing was written. Find out who has made it, then remove it."


def _is_its_groups(found: os.stat_result, database: os.stat_result) -> bool:
    shared = bool(database.st_mode & stat.S_IWGRP) and not found.st_mode & stat.S_IWOTH
    return shared and found.st_gid == database.st_gid


def _close_to_others(folder: Path, found: os.stat_result) -> None:
    """Nobody but whoever may write the database has anything to do in its folder of locks."""
    if found.st_uid == os.geteuid():
        folder.chmod(stat.S_IMODE(found.st_mode) & ~stat.S_IRWXO)
    elif os.access(folder, os.W_OK):
        log.warning("%s: every user of this machine may write in it, and hold up or declare dead every worker here. `chmod o-rwx` it.", folder)  # fmt: skip
