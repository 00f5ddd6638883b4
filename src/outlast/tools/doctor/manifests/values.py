"""Look up values in YAML of unknown shape, and parse durations and variables in them.

What is missing, or of another shape, is empty.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

Table = dict[str, Any]

ELSEWHERE = "<elsewhere>"
"""The value of a variable that is in another file or a secret."""
_VARIABLE = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<bare>[A-Za-z_]\w*)"
    r"|\{(?P<name>[A-Za-z_]\w*)(?:(?P<mark>:?[-+?])(?P<rest>[^{}]*))?\})"
)
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(
    r"(\d+(?:\.\d*)?|\.\d+)\s*"
    r"(us|ms|s(?:ec(?:onds?)?)?|m(?:in(?:utes?)?)?|h(?:r|ours?)?|d(?:ays?)?|w(?:eeks?)?|)"
    r"(?![a-z])\s*",
    re.ASCII,
)


def get(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def table(value: Any, *path: str) -> Table:
    found = get(value, *path)
    return found if isinstance(found, dict) else {}


def items(value: Any, *path: str) -> list[Any]:
    found = get(value, *path)
    return found if isinstance(found, list) else []


def tables(value: Any, *path: str) -> list[Table]:
    return [one for one in items(value, *path) if isinstance(one, dict)]


def text(value: Any, *path: str) -> str:
    """Return a scalar as text. Empty for a list or a table."""
    found = get(value, *path)
    if isinstance(found, bool):
        return str(found).lower()
    return str(found) if isinstance(found, (str, int, float)) else ""


def words(value: Any, *path: str) -> tuple[str, ...]:
    return tuple(text(word) for word in items(value, *path))


def seconds_of(value: object) -> float | None:
    """Return the seconds of 65, 65s, 1m5s or 1min 5s. None if the value is not readable."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return None if math.isnan(value) else float(value)
    if not isinstance(value, str) or not value.strip():
        return None
    if _DURATION.sub("", value).strip():
        return math.inf if value.strip() == "infinity" else None
    parts = _DURATION.findall(value)
    return sum(float(number) * _UNITS.get(unit, _UNITS[unit[:1] or "s"]) for number, unit in parts)


def expand(text: str, known: Mapping[str, str] = {}) -> str:
    """Expand $NAME, ${NAME} and ${NAME:-default}, as compose and Docker write them.

    ELSEWHERE stands for a value that only the environment has.
    """

    def value(found: re.Match[str]) -> str:
        if found["escaped"]:
            return "$"
        default = found["rest"] if (found["mark"] or "").endswith("-") else ELSEWHERE
        return known.get(found["bare"] or found["name"], default)

    return _VARIABLE.sub(value, text)


def value_of(text: str, known: Mapping[str, str] = {}) -> str:
    """Expand a whole value. Return ELSEWHERE if any part of it is unknown."""
    found = expand(text, known)
    return ELSEWHERE if ELSEWHERE in found else found
