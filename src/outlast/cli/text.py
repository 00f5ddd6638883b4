"""Text for people. Whatever comes from a store may hold anything: here it loses its power over a terminal."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from typing import Any, NoReturn

from outlast.codec.exceptions import describe_error
from outlast.codec.text import iso, one_line, safe

__all__ = [
    "DECODED_MAX",
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

DECODED_MAX = 4_000
"""Characters of recorded JSON that are decoded to be shown short; of longer ones the raw text is cut."""

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])", re.ASCII)
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def short(text: str, length: int) -> str:
    """Cut at `length` characters, the last of them an ellipsis."""
    return text if len(text) <= length else text[: max(1, length) - 1] + "…"


def readable(value: Any, indent: int | None = None) -> str:
    """A value as JSON that people can read and no terminal obeys: still JSON, still the same value."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.isprintable():
        return text
    # A line end can only come from the indentation: those in strings are escaped already.
    return "".join(c if c == "\n" or c.isprintable() else _json_escape(c) for c in text)


def recorded(text: str | None, length: int | None) -> str:
    """Recorded JSON for people, cut at `length` characters unless that is None."""
    if text is None:
        return ""
    if length is not None and len(text) > max(DECODED_MAX, 12 * length):
        return short(safe(text), length)
    try:
        shown = readable(json.loads(text))
    except (ValueError, RecursionError):
        shown = safe(text)
    return shown if length is None else short(shown, length)


def recorded_error(text: str, length: int | None) -> str:
    """A recorded exception as `type: message`."""
    shown = one_line(describe_error(text))
    return shown if length is None else short(shown, length)


def parse_json(text: str) -> Any:
    """What somebody has typed, as JSON: without NaN and the infinities, which are none. ValueError or RecursionError otherwise."""
    return json.loads(text, parse_constant=_no_constant)


def parse_age(text: str) -> float:
    """`30s`, `5m`, `2h`, `7d`, `1w`, or several together (`1h30m`), in seconds. ValueError otherwise."""
    compact = text.strip().lower()
    parts = _AGE.findall(compact)
    if not parts or _AGE.sub("", compact).strip():
        raise ValueError(f"{safe(text)!r} is not an age: write 30s, 5m, 2h, 7d or 1h30m.")
    return math.fsum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)


def span(seconds: float) -> str:
    """A length of time, as exactly as a person wants it."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, rest_size, rest_unit in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // rest_size
            return f"{whole // size} {unit}" + (f" {rest} {rest_unit}" if rest else "")
    return f"{whole} s"


def moment(seconds: float) -> str:
    """A point in time, UTC, to the second."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return "never"


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _json_escape(char: str) -> str:
    return "\\u007f" if char == "\x7f" else json.dumps(char)[1:-1]
