"""Parse rates: how much a period allows, such as `"90000/1m"`."""

from __future__ import annotations

import re
from typing import NamedTuple, Self

from outlast.errors import SettingsError

_RATE = re.compile(r"([0-9][0-9_,]*)\s*/\s*([0-9]+(?:\.[0-9]+)?)?\s*(ms|s|m|h|d)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
AMOUNT_MAX = 10**15
PERIOD_MIN, PERIOD_MAX = 0.1, 366 * 86_400.0


class Rate(NamedTuple):
    """An amount per period, in seconds."""

    limit: int
    period: float

    @classmethod
    def parse(cls, text: object, what: str) -> Self:
        """Parse a rate such as `500/1m`. `what` names it in errors. Raise SettingsError."""
        found = _RATE.fullmatch(text.strip()) if isinstance(text, str) else None
        if found is None:
            raise SettingsError(
                f"{what} is {text!r}: write an amount per period, such as '90000/1m' "
                "(units: ms, s, m, h, d)."
            )
        limit = int(found[1].replace("_", "").replace(",", ""))
        period = float(found[2] or 1) * _SECONDS[found[3]]
        if not 1 <= limit <= AMOUNT_MAX:
            raise SettingsError(f"{what} is {text!r}: allow 1 to {AMOUNT_MAX:,} per period.")
        if not PERIOD_MIN <= period <= PERIOD_MAX:
            raise SettingsError(f"{what} is {text!r}: a period has 100 ms to 366 days.")
        return cls(limit, period)

    def __str__(self) -> str:
        for unit, seconds in reversed(_SECONDS.items()):
            count = self.period / seconds
            if count >= 1:
                return f"{self.limit}/{count:g}{unit}"
        return f"{self.limit}/{self.period * 1000:g}ms"
