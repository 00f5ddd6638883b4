"""Show recorded values, errors and times to people. Text from a store may hold anything."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

from outlast.codec.exceptions import describe_error
from outlast.codec.text import one_line, safe

DECODED_MAX = 4_000
"""The longest recorded JSON that is decoded before it is shortened. Longer text is cut raw."""


def short(text: str, length: int) -> str:
    """Cut at `length` characters, the last of them an ellipsis."""
    return text if len(text) <= length else text[: max(1, length) - 1] + "…"


def readable(value: Any, indent: int | None = None) -> str:
    """Return a value as printable JSON: the same value, without terminal control characters."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.isprintable():
        return text
    # Line ends only come from the indentation, because those in strings are escaped already.
    return "".join(c if c == "\n" or c.isprintable() else _json_escape(c) for c in text)


def recorded(text: str | None, length: int | None) -> str:
    """Return recorded JSON for people, cut to `length` characters unless that is None."""
    if text is None:
        return ""
    if length is not None and len(text) > max(DECODED_MAX, 12 * length):
        return short(safe(text[: length + 1]), length)
    try:
        readable_text = readable(json.loads(text))
    except (ValueError, RecursionError):
        readable_text = safe(text)
    return readable_text if length is None else short(readable_text, length)


def recorded_error(text: str, length: int | None) -> str:
    """Return a recorded exception as `type: message`. A type of Outlast has no module."""
    readable_text = one_line(describe_error(text)).removeprefix("outlast.errors.")
    return readable_text if length is None else short(readable_text, length)


def span(seconds: float) -> str:
    """Format a duration, rounded for people."""
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
    """Format a point in time in UTC, to the second."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return "never"


def _json_escape(char: str) -> str:
    return "\\u007f" if char == "\x7f" else json.dumps(char)[1:-1]
