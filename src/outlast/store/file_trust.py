"""Protect a store's files from other users.

Write access to a store's files is control over everything in it. Their owner and root have it, and
so do the group or the world if a deliberate mode lets them in. No other user may gain it by
creating a file first: the store refuses a folder of locks made by a stranger, and follows no links.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from outlast.errors import StoreBroken

log = logging.getLogger("outlast.store")

NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
"""0 on Windows, which follows links. Creating one needs a privilege there."""
NO_WAIT = getattr(os, "O_NONBLOCK", 0)
"""Opening a FIFO without a peer would otherwise block forever. The flag has no effect on a plain
file.
"""
_NO_FILE = (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO)
"""The errors of opening a link that is not followed, a folder, and a socket or a FIFO."""
BESIDE = ("-wal", "-shm", "-journal")
"""The files that SQLite creates beside a database."""


class Owners(NamedTuple):
    """The owners of a database: its user and, if it may write the database, its group.

    `mode` is what the group may do with the files beside it.
    """

    user: int
    group: int
    mode: int


def check_names(database: Path, folder: Path) -> None:
    """Raise StoreBroken if something else has the name of a file the store creates.

    Call this before creating anything beside a database. SQLite creates its files beside the target
    of a link.
    """
    real = Path(os.path.realpath(database))
    for path in (folder, *(real.with_name(real.name + end) for end in BESIDE)):
        refuse_link(path)
    if folder.exists() and not folder.is_dir():
        raise StoreBroken(
            f"{folder}: it is not a folder, and the store keeps its locks in a folder of that "
            "name. Nothing was written. Find out what created it, then remove it."
        )


def check_beside(database: Path, folder: Path) -> None:
    """Raise StoreBroken if a file beside a database is a link, or its lock folder a stranger's.

    Call this before opening anything beside a database. The folder may belong to the database's
    owner, to root or to this user, because a container's user may change from day to day. If the
    database's group may write it, the folder may belong to that group too.
    """
    check_names(database, folder)
    if not hasattr(os, "geteuid"):
        return
    found, owned = folder.stat(), database.stat()
    if found.st_uid not in (os.geteuid(), 0, owned.st_uid) and not _is_its_groups(found, owned):
        raise StoreBroken(
            f"{folder}: it belongs to user {found.st_uid}, who owns neither the database nor "
            "this process, and could block every worker here or declare it dead. Nothing was "
            "written. If no worker is running, remove the folder. Keep the database in "
            "a folder that only you may write."
        )
    if found.st_mode & stat.S_IWOTH and not owned.st_mode & stat.S_IWOTH:
        _close_to_others(folder, found)


def owners_of(database: Path) -> Owners | None:
    """Return the owners of a database, and so of its locks.

    Return None where files have no owners (Windows).
    """
    if not hasattr(os, "geteuid"):
        return None
    found = database.stat()
    shared = found.st_mode & stat.S_IWGRP
    return Owners(
        found.st_uid, found.st_gid, found.st_mode & (stat.S_IRGRP | stat.S_IWGRP) if shared else 0
    )


def give_folder(owners: Owners | None, folder: Path) -> None:
    """Give a folder to the owners of a database, as `give` does.

    It is opened by descriptor, because its name may already point to another folder. Raise
    StoreBroken if it has become a link.
    """
    if owners is None:
        return
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | NO_FOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        raise StoreBroken(_not_plain(folder)) from None
    except PermissionError:
        # Another user owns it, so it is not for this process to give.
        return
    try:
        give(owners, fd)
    finally:
        os.close(fd)


def give(owners: Owners | None, fd: int) -> None:
    """Let the owners use what this process has created, whatever the umask.

    This takes a descriptor, because anyone who shares the database may write to its folder and
    could put a link to another file of this user under the name. What root creates goes to the
    database's owner, as SQLite does too, so that a command run as root does not lock the worker
    out. A file with a second name may be a trap and stays root's. A file whose group differs from
    the database's is not opened to that group, which does not share the database.
    """
    found = os.fstat(fd)
    if owners is None or found.st_uid != os.geteuid():
        return
    # The file system may have no owners or modes, or root may not give files away.
    with suppress(OSError):
        if found.st_uid == 0 != owners.user and (
            stat.S_ISDIR(found.st_mode) or found.st_nlink == 1
        ):
            os.fchown(fd, owners.user, owners.group)
            found = os.fstat(fd)
        mode = owners.mode | (stat.S_IXGRP if stat.S_ISDIR(found.st_mode) and owners.mode else 0)
        if found.st_gid == owners.group and found.st_mode & mode != mode:
            os.fchmod(fd, stat.S_IMODE(found.st_mode) | mode)


def warn_if_open_to_others(path: Path) -> None:
    """Warn if every user may read or write the database.

    An existing file keeps its mode, which may be deliberate. But a copy restored from a backup is
    usually open to everyone.
    """
    mode = path.stat().st_mode
    if hasattr(os, "geteuid") and mode & (stat.S_IROTH | stat.S_IWOTH):
        may = "write" if mode & stat.S_IWOTH else "read"
        log.warning(
            "%s: every user of this machine may %s it (mode %03o), and it holds arguments, results "
            "and sessions unencrypted. Run `chmod 600` on it and on the files "
            "beside it (-wal, -shm), unless this is intended.",
            path, may, stat.S_IMODE(mode),
        )  # fmt: skip


def check_own(folder: Path) -> None:
    """Raise StoreBroken if a store's folder belongs to another user and is writable by everyone."""
    if not hasattr(os, "geteuid"):
        return
    found = folder.stat()
    if found.st_uid not in (os.geteuid(), 0) and found.st_mode & stat.S_IWOTH:
        raise StoreBroken(
            f"{folder}: it belongs to user {found.st_uid}, and every user may write in it. "
            "Nothing was written. Use a folder of your own."
        )


def warn_if_world_writable(folder: Path) -> None:
    """Warn if every user may write to a store's folder."""
    found = folder.stat()
    if hasattr(os, "geteuid") and found.st_mode & stat.S_IWOTH:
        log.warning("%s: every user of this machine may write in it (mode %03o), and so decide "
                    "everything in this store. `chmod 700` "
                    "it.", folder, stat.S_IMODE(found.st_mode))  # fmt: skip


def open_plain(path: str | Path, flags: int, mode: int = 0o600) -> int:
    """Open a plain file and return its descriptor. Raise StoreBroken if it is anything else."""
    try:
        fd = os.open(path, flags | NO_FOLLOW | NO_WAIT | getattr(os, "O_CLOEXEC", 0), mode)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise StoreBroken(_not_plain(path)) from None
        raise
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise StoreBroken(_not_plain(path))


def refuse_link(path: Path) -> None:
    """Raise StoreBroken if a path is a link.

    Use it for a folder on the way to a file: opening the file would not report it.
    """
    if path.is_symlink():
        raise StoreBroken(_not_plain(path))


def _not_plain(path: str | Path) -> str:
    return (
        f"{path}: it is a link, or not a plain file, and no store creates such a thing there. "
        "Nothing was written. Find out what created it, then remove it."
    )


def _is_its_groups(found: os.stat_result, database: os.stat_result) -> bool:
    shared = bool(database.st_mode & stat.S_IWGRP) and not found.st_mode & stat.S_IWOTH
    return shared and found.st_gid == database.st_gid


def _close_to_others(folder: Path, found: os.stat_result) -> None:
    """Close the lock folder to other users, or warn if it belongs to another user.

    Only users who may write the database need access to it.
    """
    if found.st_uid == os.geteuid():
        folder.chmod(stat.S_IMODE(found.st_mode) & ~stat.S_IRWXO)
    elif os.access(folder, os.W_OK):
        log.warning("%s: every user of this machine may write in it, and block every worker here "
            "or declare it dead. `chmod o-rwx` it.", folder)  # fmt: skip
