"""Report what a crash test did, or which promise broke."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

R = TypeVar("R")


class Broke(AssertionError):
    """A promise was broken. The message says which, and how to see it again."""


@dataclass
class CrashReport(Generic[R]):
    """Report what `crash_everywhere` did. `result` is the undisturbed one."""

    result: R | None = None
    error: str | None = None
    writes: int = 0
    acts: int = 0
    """How many acts of effects a crash can hit, including those of compensations."""
    crashes: int = 0
    lives: int = 0
    redone: list[str] = field(default_factory=list)
    """Steps that were executed again because a crash hit them before they were recorded."""
