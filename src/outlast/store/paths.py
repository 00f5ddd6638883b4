"""Paths at which no store can be, however often it is tried: an error of the settings, and not of the store."""

from __future__ import annotations

import errno
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outlast.errors import SettingsError

_NEVER = (errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)
SHOWN = 200
"""Characters of a path in a message."""


def check_file(path: str) -> None:
    """SettingsError if no file of a store can be there. One that is not there yet is made."""
    mode = _mode_of(path, "Name a file in a folder: sqlite:////data/outlast.db.")
    if mode is None or stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise SettingsError(
            f"the store cannot be at {path[:SHOWN]}: that is a folder. Name a file in it: sqlite:///{path.rstrip('/')[:SHOWN]}/outlast.db."
        )
    raise SettingsError(
        f"the store cannot be at {path[:SHOWN]}: that is no plain file. Name one in a folder: sqlite:////data/outlast.db."
    )


def check_folder(path: str) -> None:
    """The same of a store that is a folder."""
    mode = _mode_of(path, "Name a folder of its own: file:///data/outlast.")
    if mode is not None and not stat.S_ISDIR(mode):
        raise SettingsError(
            f"the store cannot be at {path[:SHOWN]}: it is a file. The address of a file store is a folder: file:///data/outlast."
        )


@contextmanager
def making(path: Path) -> Iterator[None]:
    """Around making the folders of a store. Where a folder is there and takes none (/proc), it never will."""
    try:
        yield
    except FileNotFoundError as error:
        raise SettingsError(
            f"the store cannot be at {str(path)[:SHOWN]}: {error.filename} cannot be made there. Name another folder."
        ) from None


def _mode_of(path: str, advice: str) -> int | None:
    """Of what is there. None: nothing is, or opening it says what is wrong, and that may be mended."""
    try:
        return Path(path).stat().st_mode
    except OSError as error:
        if error.errno in _NEVER:
            raise SettingsError(
                f"the store cannot be at {path[:SHOWN]} ({error.strerror}). {advice}"
            ) from None
        return None
