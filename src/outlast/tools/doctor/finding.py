"""Define the finding of a check."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"
    """The check could not be made, or the finding is worth knowing."""
    WARNING = "warning"
    ERROR = "error"
    """A promise of Outlast does not hold in this setup."""


class Finding(NamedTuple):
    check: str
    level: Level
    what: str
    fix: str = ""
    """What to do about it."""
    where: str = ""
    """The file and the object in it, or the run, worker or queue."""


def counted(count: int, thing: str) -> str:
    """Return a count with its noun: 1 run, 2 runs."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def ok(check: str, what: str, where: str = "") -> Finding:
    return Finding(check, Level.OK, what, "", where)


def note(check: str, what: str, fix: str = "", where: str = "") -> Finding:
    return Finding(check, Level.NOTE, what, fix, where)


def warning(check: str, what: str, fix: str, where: str = "") -> Finding:
    return Finding(check, Level.WARNING, what, fix, where)


def error(check: str, what: str, fix: str, where: str = "") -> Finding:
    return Finding(check, Level.ERROR, what, fix, where)
