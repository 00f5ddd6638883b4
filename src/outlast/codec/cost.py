"""Costs that steps report: amounts by name (`tokens`, `usd`, …) that add up exactly.

Floats do not add up exactly (0.1 + 0.2 is not 0.3), so amounts are decimals. A float is read as it
is written. Amounts become floats only where a program reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal
from itertools import islice
from json import JSONDecoder
from operator import index
from typing import Any

from outlast.errors import Unrecordable

AMOUNT_MAX = 10**15
"""The largest amount that one step may report under one name."""
PLACES = 12
"""Decimal places that are kept: a thousandth of a billionth of a dollar."""
NAMES_MAX = 10
"""Names that one step may use."""
NAME_LENGTH_MAX = 40
UNITS_MAX = 30
"""Names in a sum over many runs (metrics, the drain report). Later names are left out of the sum.
"""

_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_]{{0,{NAME_LENGTH_MAX - 1}}}", re.ASCII)
_READ_MAX = Decimal(10**30)
"""A recorded amount may be a sum, so it may exceed AMOUNT_MAX."""
_ZERO = Decimal(0)
_exact = Context(prec=100, rounding=ROUND_HALF_EVEN)
"""A sum of a billion of the largest amounts keeps all its digits."""
_place = Decimal(1).scaleb(-PLACES)
_decoder = JSONDecoder(parse_float=Decimal, parse_int=Decimal, parse_constant=Decimal)


class Cost:
    """Amounts by name. It is immutable, so threads may share it. No amount is zero."""

    __slots__ = ("_amounts",)

    def __init__(self, amounts: Mapping[str, Decimal] | None = None) -> None:
        self._amounts: Mapping[str, Decimal] = amounts or {}

    @classmethod
    def of(cls, amounts: Mapping[str, Any], call: str = "current().cost") -> Cost:
        """Return the amounts that a program gives to `call`.

        Raise Unrecordable for an invalid name or amount.
        """
        checked = {_name(name, call): _amount(name, value, call) for name, value in amounts.items()}
        cost = cls({name: amount for name, amount in checked.items() if amount})
        return cost.checked(call)

    @classmethod
    def read(cls, text: str | None) -> Cost:
        """Read a recorded cost.

        Anything that is not an amount (damaged, or from another program) is ignored, so that no run
        fails because of it.
        """
        if text is None:
            return NOTHING
        try:
            found = _decoder.decode(text)
        except (ValueError, ArithmeticError, RecursionError):
            return NOTHING
        amounts = {}
        for name, one in islice(found.items(), UNITS_MAX) if isinstance(found, dict) else ():
            known = isinstance(one, Decimal) and one.is_finite() and 0 < one <= _READ_MAX
            if known and _NAME.fullmatch(name) and (amount := _rounded(one)):
                amounts[name] = amount
        return cls(amounts)

    def checked(self, call: str = "current().cost") -> Cost:
        """Return the cost. Raise Unrecordable if it is more than one step may report."""
        if len(self._amounts) > NAMES_MAX:
            raise Unrecordable(
                f"{call}() takes at most {NAMES_MAX} names in one step, not {len(self._amounts)}."
            )
        for name, amount in self:
            if amount > AMOUNT_MAX:
                raise Unrecordable(f"{call}({name}=…) takes at most {AMOUNT_MAX:,} in one step.")
        return self

    def plus(self, other: Cost, names_max: int | None = None) -> Cost:
        """Return the sum. Names of the other cost beyond `names_max` are left out."""
        if not other._amounts:
            return self
        amounts = dict(self._amounts)
        for name, amount in other._amounts.items():
            if name in amounts:
                amounts[name] = _exact.add(amounts[name], amount)
            elif names_max is None or len(amounts) < names_max:
                amounts[name] = amount
        return Cost(amounts)

    __add__ = plus

    def text(self) -> str:
        """Return the cost as it is recorded: JSON with exact decimals."""
        return "{" + ", ".join(f'"{name}": {plain_amount(amount)}' for name, amount in self) + "}"

    def get(self, name: str) -> Decimal:
        """Return the amount of this name, or 0."""
        return self._amounts.get(name, _ZERO)

    def document(self) -> dict[str, int | float]:
        """Return the cost for programs: integers where exact, otherwise the nearest float."""
        return {
            name: int(amount) if amount == int(amount) else float(amount) for name, amount in self
        }

    def __str__(self) -> str:
        """Return the cost for people."""
        return (
            ", ".join(f"{plain_amount(amount, ',')} {name}" for name, amount in self) or "nothing"
        )

    def __iter__(self) -> Iterator[tuple[str, Decimal]]:
        return iter(self._amounts.items())

    def __bool__(self) -> bool:
        return bool(self._amounts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cost) and self._amounts == other._amounts

    def __hash__(self) -> int:
        return hash(frozenset(self._amounts.items()))

    def __repr__(self) -> str:
        return f"<cost {self}>"


NOTHING = Cost()


def _name(name: str, call: str) -> str:
    if not _NAME.fullmatch(name):
        raise Unrecordable(
            f"{call}() takes names of at most {NAME_LENGTH_MAX} letters, digits and _, "
            f"beginning with a letter, not {name[:80]!r}."
        )
    return name


def _amount(name: str, value: Any, call: str) -> Decimal:
    """Return a valid amount as a decimal. It may still be too large."""
    if isinstance(value, (float, Decimal)):
        # A subclass of float may have another repr.
        exact = value if isinstance(value, Decimal) else Decimal(float.__repr__(value))
        if exact.is_finite() and exact >= 0:
            return _rounded(min(exact, _READ_MAX))
    elif isinstance(value, bool) or not hasattr(value, "__index__"):
        raise Unrecordable(f"{call}({name}=…) takes a number, not {type(value).__name__}.")
    elif index(value) >= 0:
        return Decimal(min(index(value), int(_READ_MAX)))
    raise Unrecordable(f"{call}({name}=…) takes a finite number of at least 0.")


def _rounded(amount: Decimal) -> Decimal:
    return amount.quantize(_place, context=_exact)


def difference(amount: Decimal, other: Decimal) -> Decimal:
    """Return `amount - other` with all digits."""
    return _exact.subtract(amount, other)


def plain_amount(amount: Decimal, separator: str = "") -> str:
    """Format an amount without an exponent and without trailing zeros."""
    text = format(amount, f"{separator}f")
    return text.rstrip("0").rstrip(".") if "." in text else text
