"""Inspect the folder of a store that is a file: rights, space and mount."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlast.tools.doctor.host import Mount, folder_of, mount_of


@dataclass(frozen=True, slots=True)
class Folder:
    """The location of a store that is a file."""

    path: Path
    exists: bool
    writable: bool
    """Whether this user may write the store, its folder and the files beside it."""
    free: int
    size: int
    mount: Mount | None
    """None where the system does not report it."""
    open_to_others: tuple[str, ...] = ()
    """Paths that every user of this machine may read or write.

    These are the database, the files and folders beside it, or the folder of a file store.
    """
    read_only: bool = False
    """Whether this user may read but not write the store itself.

    It belongs to another user, or the mount is read-only.
    """


def store_folder(store: Any) -> Folder:
    """Return what this user may do in the store's folder, and how much room there is."""
    path = Path(getattr(store, "path", None) or store.folder).absolute()
    # A link may lead to another file system.
    real = Path(os.path.realpath(path))
    try:
        there = folder_of(real)
        room = os.statvfs(there) if hasattr(os, "statvfs") else None
        exists = path.exists()
    # A parent folder is closed to this user.
    except OSError:
        return Folder(path, exists=False, writable=False, free=-1, size=-1, mount=mount_of(real))
    read_only = exists and os.access(real, os.R_OK) and not os.access(real, os.W_OK)
    return Folder(
        path,
        exists,
        _is_writable(real, there),
        room.f_bavail * room.f_frsize if room else -1,
        room.f_blocks * room.f_frsize if room else -1,
        mount_of(there),
        _open_to_others(real),
        read_only,
    )


def _open_to_others(path: Path) -> tuple[str, ...]:
    """Return the store's paths whose modes let other users in. Missing files will be private."""
    if not hasattr(os, "geteuid"):
        return ()
    rights = {one: one.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH) for one in _files_of(path)}
    return tuple(str(one) for one, others in rights.items() if others)


def _is_writable(path: Path, there: Path) -> bool:
    """Return whether this user may write the store, its folder and what lies beside a database.

    The first user of the database created -wal, -shm and the lock folder. That may be another user.
    """
    return os.access(there, os.W_OK | os.X_OK) and all(
        os.access(one, os.W_OK) for one in _files_of(path)
    )


def _files_of(path: Path) -> list[Path]:
    """Return the existing paths of a store.

    These are the file or folder itself, and what lies beside a database.
    """
    named = (path.with_name(f"{path.name}{end}") for end in ("", "-wal", "-shm", ".d"))
    return [one for one in named if one.exists()]
