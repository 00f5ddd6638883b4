"""Units, as a life sees them: a drain starts no new step, but inside a unit it does, so that the unit can end."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from outlast.api.effect import EffectBase
    from outlast.execution.call_site import CallSite


class UnitScope(Protocol):
    """A unit, as replay sees it."""

    name: str
    holds: bool
    """A drain waits for it."""
    members: list[CallSite]
    """The effects that were called in it, and in units within it."""
    outer: UnitScope | None

    def admit(self, effect: EffectBase[..., Any], *, needs_compensation: bool = True) -> None:
        """Raise, if the effect could not be undone with it."""


UNIT: ContextVar[UnitScope | None] = ContextVar("outlast_unit", default=None)
"""The unit that the current code is in."""


class Units:
    """How many units ended here, and how."""

    def __init__(self) -> None:
        self.committed = self.rolled_back = 0


def units_around(
    effect: EffectBase[..., Any], *, needs_compensation: bool = True
) -> list[UnitScope]:
    """The units that the current code is in, innermost first. Raises if one of them could not undo the effect."""
    units: list[UnitScope] = []
    unit = UNIT.get()
    while unit is not None:
        unit.admit(effect, needs_compensation=needs_compensation)
        units.append(unit)
        unit = unit.outer
    return units


def join(units: list[UnitScope], call_site: CallSite) -> None:
    """Make what is done at a place part of these units, which are given innermost first."""
    call_site.units = tuple(unit.name for unit in reversed(units))
    for unit in units:
        unit.members.append(call_site)
