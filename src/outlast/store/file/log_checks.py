"""Compare the journals with what the log says of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from outlast.store.file import disk
from outlast.store.file.batch import Length
from outlast.store.file.load import Tail
from outlast.store.file.log import History, Part, Sum

log = logging.getLogger("outlast.store")


def sum_of(lengths: Mapping[str, Length]) -> Sum:
    """Return the number and size of these journals."""
    return Sum(len(lengths), sum(length.size for length in lengths.values()))


def untouched(lengths: dict[str, Length], history: History) -> tuple[Sum, Sum]:
    """Sum up the journals that the log does not mention: as they are, and as they were at its
    start.

    Both are the same if the log does not say how it started.
    """
    first: dict[str, Part] = {}
    for part in history.parts:
        first.setdefault(part.file, part)
    found = sum_of({file: length for file, length in lengths.items() if file not in first})
    if history.begun is None:
        return found, found
    before = [part for part in first.values() if part.start or part.lines is None]
    # The length of a removed file is unknown.
    if any(part.lines is None for part in before):
        return found, Sum(history.begun.files - len(before), found.size)
    return found, Sum(
        history.begun.files - len(before), history.begun.size - sum(part.start for part in before)
    )


def report_difference(path: Path, end: Tail) -> None:
    """Log a warning if a journal's end differs from the log in more than missing last lines."""
    there = disk.read(path)[end.start :] if path.exists() else b""
    if (
        end.data is not None
        and there
        and not (end.data.startswith(there) and there.endswith(b"\n"))
    ):
        log.warning(
            "%s: its end did not match the log. %d bytes were truncated and rewritten from the "
            "log.",
            path,
            len(there),
        )
