"""Track the units that a run's code is in.

A drain starts no new steps, except inside a unit, so that the unit can end.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from outlast.execution.call_site import CallSite
    from outlast.execution.definitions import EffectDefinition


class UnitScope(Protocol):
    """A unit, as the execution layer uses it."""

    name: str
    holds: bool
    """True if a drain waits for the unit."""
    members: list[CallSite]
    """The effects called in this unit and in units within it."""
    outer: UnitScope | None

    def admit(self, effect: EffectDefinition, *, needs_compensation: bool = True) -> None:
        """Raise if the unit could not compensate the effect."""


UNIT: ContextVar[UnitScope | None] = ContextVar("outlast_unit", default=None)
"""The unit that the current code is in."""


def units_around(effect: EffectDefinition, *, needs_compensation: bool = True) -> list[UnitScope]:
    """Return the units around the current code, innermost first.

    Raise if one of them could not compensate the effect.
    """
    units: list[UnitScope] = []
    unit = UNIT.get()
    while unit is not None:
        unit.admit(effect, needs_compensation=needs_compensation)
        units.append(unit)
        unit = unit.outer
    return units


def join(units: list[UnitScope], call_site: CallSite) -> tuple[str, ...]:
    """Add a call site to these units, which are given innermost first.

    Return the units' names, outermost first.
    """
    for unit in units:
        unit.members.append(call_site)
    return tuple(unit.name for unit in reversed(units))
