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
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from outlast.errors import StoreBroken

log = logging.getLogger("outlast.store")

NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
"""Where links are followed (Windows), making one needs a privilege."""
NO_WAIT = getattr(os, "O_NONBLOCK", 0)
"""For a FIFO, which is opened for ever where nobody is at its other end. It means nothing to a plain file."""
_NO_FILE = (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO)
"""What opening says of a link that is not followed, of a folder, and of a socket or a FIFO."""
BESIDE = ("-wal", "-shm", "-journal")
"""What SQLite makes beside a database."""


class Owners(NamedTuple):
    """Whose a database is: its user's and, where they may write it, its group's. `mode` is what these may do with the files beside it."""

    user: int
    group: int
    mode: int


def check_names(database: Path, folder: Path) -> None:
    """Before anything is made beside a database: StoreBroken if something else is in its place. SQLite makes its own beside what a link leads to."""
    real = Path(os.path.realpath(database))
    for path in (folder, *(real.with_name(real.name + end) for end in BESIDE)):
        refuse_link(path)
    if folder.exists() and not folder.is_dir():
        raise StoreBroken(
            f"{folder}: it is no folder, and the locks of the store belong into one of that name. Nothing was written. Find out who has made it, then remove it."
        )


def check_beside(database: Path, folder: Path) -> None:
    """Before anything beside a database is opened: StoreBroken if it is a link, or a folder of locks that a stranger has made.

    The folder may be of whoever owns the database, of root and of this user: in a container the user may be another one today than it was
    yesterday. Where the database is its group's to write, the folder may be that group's too.
    """
    check_names(database, folder)
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


def owners_of(database: Path) -> Owners | None:
    """Of a database, so of its locks too. None where files have no owners (Windows)."""
    if not hasattr(os, "geteuid"):
        return None
    found = database.stat()
    shared = found.st_mode & stat.S_IWGRP
    return Owners(
        found.st_uid, found.st_gid, found.st_mode & (stat.S_IRGRP | stat.S_IWGRP) if shared else 0
    )


def give_folder(owners: Owners | None, folder: Path) -> None:
    """As `give`. By a descriptor: by its name it could be another one already. StoreBroken if it is a link by now."""
    if owners is None:
        return
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | NO_FOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        raise StoreBroken(_not_plain(folder)) from None
    except PermissionError:
        return  # it is somebody else's, and nothing of this process's to give
    try:
        give(owners, fd)
    finally:
        os.close(fd)


def give(owners: Owners | None, made: int) -> None:
    """Let them use what this process has made, whatever the umask.

    By a descriptor: whoever shares the database may write in its folder, and could lay a link to something else of this user's under the name meanwhile.
    What root makes belongs to the database's owner, as what SQLite makes for root does: a look as root must not shut out the worker. A file that
    has a second name may be somebody's trap, and stays root's. What has another group than the database is not opened to it: that one does not share it.
    """
    found = os.fstat(made)
    if owners is None or found.st_uid != os.geteuid():
        return
    with suppress(
        OSError
    ):  # a file system without owners or modes, or a root that may not give away
        if found.st_uid == 0 != owners.user and (
            stat.S_ISDIR(found.st_mode) or found.st_nlink == 1
        ):
            os.fchown(made, owners.user, owners.group)
            found = os.fstat(made)
        mode = owners.mode | (stat.S_IXGRP if stat.S_ISDIR(found.st_mode) and owners.mode else 0)
        if found.st_gid == owners.group and found.st_mode & mode != mode:
            os.fchmod(made, stat.S_IMODE(found.st_mode) | mode)


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


def say_if_everybody_writes(folder: Path) -> None:
    """In a folder of one's own."""
    found = folder.stat()
    if hasattr(os, "geteuid") and found.st_mode & stat.S_IWOTH:
        log.warning("%s: every user of this machine may write in it (mode %03o), and so decide everything in this store. `chmod 700` it.", folder, stat.S_IMODE(found.st_mode))  # fmt: skip


def open_plain(path: str | Path, flags: int, mode: int = 0o600) -> int:
    """A descriptor of a plain file. StoreBroken if there is a link, or anything else, by that name."""
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
    """StoreBroken if that is what it is: a folder in the way to a file, of which opening says nothing."""
    if path.is_symlink():
        raise StoreBroken(_not_plain(path))


def _not_plain(path: str | Path) -> str:
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
