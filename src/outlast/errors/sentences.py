"""Build sentences from foreign text."""

from __future__ import annotations


def reason_by(text: str, by: str | None, length_max: int) -> str:
    """Return a reason that ends with who gave it, within a number of characters."""
    suffix = "" if by is None else f" (by {by})"
    if by is None or len(suffix) >= length_max:
        return text[:length_max]
    return text.rstrip(". ")[: length_max - len(suffix)] + suffix


def stopped(text: str) -> str:
    """Return the text with exactly one full stop at its end. Foreign messages may lack one."""
    return text.rstrip(". ") + "."
