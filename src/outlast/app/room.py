"""The room: what this process has in hand, and whether a suspect has it to itself.

A suspect is a run whose last worker died while it executed and had recorded nothing. It executes alone until it has: if it
kills this process too, nobody else is harmed or blamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outlast.replay.life import Life


class Room:
    def __init__(self, lives: Mapping[str, Life]) -> None:
        self._lives = lives
        self.items: set[str] = set()
        """Items in hand."""
        self.pending: set[str] = set()
        """Claimed, and not begun yet."""
        self.acked = False
        """Items were acked here, which the store remembers for a while and then may forget."""
        self.alone: str | None = None
        """The suspect that has the room to itself."""
        self.yielding: set[object] = set()
        """Claimers that want the hands empty for a suspect of theirs: nothing more is claimed, by nobody here."""

    @property
    def closed(self) -> bool:
        """Nothing may be claimed now."""
        return bool(self.yielding) or self.alone is not None

    def has(self, id: str) -> bool:
        return id in self._lives or id in self.items or id in self.pending

    def is_empty(self, but: Iterable[str] = ()) -> bool:
        """Whether nothing is in hand, some runs aside."""
        return not (self._lives.keys() | self.items | self.pending).difference(but)

    def line(self, parent: str | None) -> list[str]:
        """A run's ancestors that execute here: they wait for it, and are no company."""
        line: list[str] = []
        while parent is not None and parent in self._lives:
            line.append(parent)
            parent = self._lives[parent].row.parent
        return line

    def take(self, id: str) -> None:
        """A suspect comes in."""
        self.alone = id
        self.yielding.clear()

    def leave(self, id: str) -> None:
        """It has left, or is no suspect any more."""
        if self.alone == id:
            self.alone = None
