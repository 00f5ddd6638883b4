"""Units, as a life sees them: a drain starts no new step, but inside a unit it does, so that the unit can end."""

from __future__ import annotations

from contextvars import ContextVar

UNIT: ContextVar[object | None] = ContextVar("outlast_unit", default=None)
"""The unit that the current code is in."""


class Units:
    """How many units ended here, and how."""

    def __init__(self) -> None:
        self.committed = self.rolled_back = 0
