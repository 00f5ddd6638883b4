"""Text that may hold anything, as a terminal or a log may have it: it loses its power over them."""

from __future__ import annotations

from datetime import UTC, datetime

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}


def safe(text: str) -> str:
    """Everything that is not a printable character (controls, escapes, bidirectional marks, line ends) as an escape."""
    return (
        text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)
    )


def one_line(text: str) -> str:
    """The same, with lines joined by spaces rather than shown as escapes."""
    return safe(" ".join(text.split()))


def iso(seconds: float | None) -> str | None:
    """A point in time for programs: ISO 8601, UTC."""
    if seconds is None:
        return None
    try:
        return (
            datetime.fromtimestamp(seconds, UTC)
            .isoformat(timespec="microseconds")
            .replace("+00:00", "Z")
        )
    except (ValueError, OverflowError, OSError, TypeError):
        return None


def _escape(char: str) -> str:
    code = ord(char)
    if char in _NAMED:
        return _NAMED[char]
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )
