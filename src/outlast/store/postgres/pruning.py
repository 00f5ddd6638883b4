"""Split a Prune into calls that stay short, and continue where the last one stopped."""

from __future__ import annotations

from typing import Any

from outlast.store.commands import Command, Prune

PART = 50
"""Runs or sessions that one call deletes. A larger Prune takes several calls to keep each one
short.
"""


class PruneParts:
    """Remember how much one call deletes, and where the last Prune stopped."""

    def __init__(self) -> None:
        self._size = PART
        self._last: Prune | None = None
        self._stopped_at: Any = None

    def part(self, command: Command) -> Any:
        """Return the command, limited to what one call may delete.

        Prunes of items stay whole because items have no journals, and prunes by id because they are
        handled at once.
        """
        if type(command) is not Prune or command.items or command.ids:
            return command
        return command._replace(limit=min(command.limit, self._size))

    def shrink(self) -> bool:
        """Delete one run per call from now on. Return False if that is so already."""
        if self._size == 1:
            return False
        self._size = 1
        return True

    def position_of(self, command: Prune) -> Any:
        """Return where the last Prune like this one stopped. The next one continues there."""
        return self._stopped_at if self._last == command._replace(limit=0) else None

    def stopped(self, command: Prune, position: Any) -> None:
        self._last = command._replace(limit=0)
        self._stopped_at = position
