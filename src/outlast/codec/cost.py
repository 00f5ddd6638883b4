"""What a step says that it cost: amounts by name (`tokens`, `usd`, …) that add up exactly.

Money in floats does not (0.1 + 0.2 is not 0.3), so amounts are decimals: a float is taken as it is written. They become floats
only where they are shown to a program.
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
"""What one step may say of one name."""
PLACES = 12
"""Decimal places that are kept: a thousandth of a billionth of a dollar."""
NAMES_MAX = 10
"""Names that one step may use."""
NAME_LENGTH_MAX = 40
UNITS_MAX = 30
"""Names in a sum over many runs (metrics, the drain report); those that come later are left out of it."""

_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_]{{0,{NAME_LENGTH_MAX - 1}}}", re.ASCII)
_READ_MAX = Decimal(10**30)
"""What is on record may be a sum."""
_exact = Context(prec=100, rounding=ROUND_HALF_EVEN)
"""A sum of a billion of the largest amounts still has all its digits."""
_place = Decimal(1).scaleb(-PLACES)
_decoder = JSONDecoder(parse_float=Decimal, parse_int=Decimal, parse_constant=Decimal)


class Cost:
    """Amounts by name. It does not change: threads may share it. None of its amounts is zero."""

    __slots__ = ("_amounts",)

    def __init__(self, amounts: Mapping[str, Decimal] | None = None) -> None:
        self._amounts: Mapping[str, Decimal] = amounts or {}

    @classmethod
    def said(cls, amounts: Mapping[str, Any]) -> Cost:
        """What a step says. Unrecordable if a name or an amount is none that can be recorded."""
        checked = {_name(name): _amount(name, value) for name, value in amounts.items()}
        cost = cls({name: amount for name, amount in checked.items() if amount})
        return cost.checked()

    @classmethod
    def read(cls, text: str | None) -> Cost:
        """As it is recorded. What is no amount (damaged, or another program's) counts as nothing: no run is to end by it."""
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

    def checked(self) -> Cost:
        """Unrecordable if it is more than one step may say."""
        if len(self._amounts) > NAMES_MAX:
            raise Unrecordable(
                f"current().cost() takes at most {NAMES_MAX} names in one step, and these are {len(self._amounts)}."
            )
        for name, amount in self:
            if amount > AMOUNT_MAX:
                raise Unrecordable(
                    f"current().cost({name}=…) takes at most {AMOUNT_MAX:,} in one step."
                )
        return self

    def plus(self, other: Cost, names_max: int | None = None) -> Cost:
        """The sum; with a limit, without the names of the other that come beyond it."""
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
        """As it is recorded: JSON, with the decimals as they are."""
        return "{" + ", ".join(f'"{name}": {_plain(amount)}' for name, amount in self) + "}"

    def document(self) -> dict[str, int | float]:
        """For programs: whole numbers as such, anything else as the nearest float."""
        return {
            name: int(amount) if amount == int(amount) else float(amount) for name, amount in self
        }

    def __str__(self) -> str:
        """For people."""
        return ", ".join(f"{_plain(amount, ',')} {name}" for name, amount in self) or "nothing"

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


def _name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Unrecordable(
            f"current().cost() takes names of at most {NAME_LENGTH_MAX} letters, digits and _, the first a letter; not {name[:80]!r}."
        )
    return name


def _amount(name: str, value: Any) -> Decimal:
    """The amount, if it is one; it may still be too large."""
    if isinstance(value, (float, Decimal)):
        # A subclass of float may show itself in another way.
        exact = value if isinstance(value, Decimal) else Decimal(float.__repr__(value))
        if exact.is_finite() and exact >= 0:
            return _rounded(min(exact, _READ_MAX))
    elif isinstance(value, bool) or not hasattr(value, "__index__"):
        raise Unrecordable(f"current().cost({name}=…) takes a number, not {type(value).__name__}.")
    elif index(value) >= 0:
        return Decimal(min(index(value), int(_READ_MAX)))
    raise Unrecordable(f"current().cost({name}=…) takes a finite number, and not a negative one.")


def _rounded(amount: Decimal) -> Decimal:
    return amount.quantize(_place, context=_exact)


def _plain(amount: Decimal, separator: str = "") -> str:
    """Without an exponent, and without zeros at its end."""
    text = format(amount, f"{separator}f")
    return text.rstrip("0").rstrip(".") if "." in text else text
