"""Helpers for the tests of faults of the file store."""

import os
import shutil

from file_history import (
    dump,
    opened,
)


def as_opened_elsewhere(store, tmp_path) -> dict:
    """Return what a process finds that opens a copy of the folder as it is now."""
    copy = tmp_path / "copy"
    shutil.copytree(store.folder, copy, ignore=shutil.ignore_patterns("lock"))
    other = opened(copy)
    found = dump(other)
    other.close()
    shutil.rmtree(copy)
    return found


def failing(numbers, error):
    """Operations with these numbers fail; a write has been done by half then."""
    count = [0]

    def meddle(name, path, act, *args):
        count[0] += 1
        if count[0] in numbers:
            if name == "write":
                act(args[0][: len(args[0]) // 2])
            raise OSError(error, os.strerror(error))
        return act()

    return meddle, count
