"""Escape control characters for terminals and logs."""

from __future__ import annotations

from datetime import UTC, datetime

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}


def safe(text: str) -> str:
    """Return the text with every unprintable character escaped.

    That includes controls, escapes, bidirectional marks and line ends.
    """
    return (
        text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)
    )


def one_line(text: str) -> str:
    """Return the text on one line: line breaks become spaces, the rest is as in `safe`."""
    return safe(" ".join(text.split()))


def iso(seconds: float | None) -> str | None:
    """Return a point in time for programs: ISO 8601, UTC. None if it cannot be represented."""
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
