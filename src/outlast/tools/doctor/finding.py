"""Define the finding of a check."""

from __future__ import annotations

from collections.abc import Iterable
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
    level: Level
    what: str
    fix: str = ""
    """What to do about it."""
    where: str = ""
    """The file and the object in it, or the run, worker or queue."""
    check: str = ""
    """The name of the check. `named` fills it in."""


def named(check: str, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings of a check with its name."""
    return [one._replace(check=check) for one in findings]


def counted(count: int, thing: str) -> str:
    """Return a count with its noun: 1 run, 2 runs."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def ok(what: str, where: str = "") -> Finding:
    return Finding(Level.OK, what, "", where)


def note(what: str, fix: str = "", where: str = "") -> Finding:
    return Finding(Level.NOTE, what, fix, where)


def warning(what: str, fix: str, where: str = "") -> Finding:
    return Finding(Level.WARNING, what, fix, where)


def error(what: str, fix: str, where: str = "") -> Finding:
    return Finding(Level.ERROR, what, fix, where)
