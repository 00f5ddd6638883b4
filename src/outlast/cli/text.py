"""Format text for people, and read what they type."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from outlast.codec.readable import (
    DECODED_MAX,
    moment,
    readable,
    recorded,
    recorded_error,
    short,
    span,
)
from outlast.codec.text import iso, one_line, safe

__all__ = [
    "DECODED_MAX",
    "counted",
    "iso",
    "moment",
    "one_line",
    "parse_age",
    "readable",
    "recorded",
    "recorded_error",
    "safe",
    "short",
    "span",
]

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])", re.ASCII)
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def counted(number: int, noun: str) -> str:
    """Return a count with its noun: 1 run, 2 runs."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def parse_json(text: str) -> Any:
    """Parse JSON that a user typed. NaN and the infinities are not JSON.

    Raise ValueError or RecursionError if it cannot be parsed.
    """
    return json.loads(text, parse_constant=_no_constant)


def parse_age(text: str) -> float:
    """Return the seconds in `30s`, `5m`, `2h`, `7d`, `1w` or `1h30m`, or raise ValueError."""
    compact = text.strip().lower()
    parts = _AGE.findall(compact)
    if not parts or _AGE.sub("", compact).strip():
        raise ValueError(f"{safe(text)!r} is not an age: write 30s, 5m, 2h, 7d or 1h30m.")
    return math.fsum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
