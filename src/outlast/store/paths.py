"""Reject paths at which no store can ever be.

Retrying cannot help there, so this is an error in the settings and not in the store.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outlast.errors import SettingsError

_NEVER = (errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)
SHOWN = 200
"""How many characters of a path a message shows."""


def check_file(path: str) -> None:
    """Raise SettingsError if a store's file cannot be at this path. A missing file is fine."""
    mode = _mode_of(path, "Name a file in a folder: sqlite:////data/outlast.db.")
    if mode is None or stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise SettingsError(
            f"the store cannot be at {path[:SHOWN]}: that is a folder. Name a file in it: "
            f"sqlite:///{path.rstrip('/')[:SHOWN]}/outlast.db."
        )
    raise SettingsError(
        f"the store cannot be at {path[:SHOWN]}: that is not a plain file. Name one in a folder: "
        "sqlite:////data/outlast.db."
    )


def check_folder(path: str) -> None:
    """Raise SettingsError if a store's folder cannot be at this path. A missing folder is fine."""
    mode = _mode_of(path, "Name a folder of its own: file:///data/outlast.")
    if mode is not None and not stat.S_ISDIR(mode):
        raise SettingsError(
            f"the store cannot be at {path[:SHOWN]}: it is a file. The address of a file store "
            "is a folder: file:///data/outlast."
        )


@contextmanager
def making(path: Path) -> Iterator[None]:
    """Create the folders of a store in this block. Raise SettingsError if that can never work.

    An existing folder in which nothing can be created (/proc) reports a missing file.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise SettingsError(
            f"the store cannot be at {str(path)[:SHOWN]}: {error.filename} cannot be made "
            "there. Name another folder."
        ) from None


def _mode_of(path: str, advice: str) -> int | None:
    """Return the mode of what is at a path, or raise SettingsError if nothing can be there.

    None means that nothing is there, or that opening reports an error that can be fixed.
    """
    try:
        return Path(path).stat().st_mode
    except OSError as error:
        if error.errno in _NEVER:
            raise SettingsError(
                f"the store cannot be at {path[:SHOWN]} ({error.strerror}). {advice}"
            ) from None
        return None
