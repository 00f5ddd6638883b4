"""Build sentences from foreign text."""

from __future__ import annotations


def stopped(text: str) -> str:
    """Return the text with exactly one full stop at its end. Foreign messages come with and without
    one.
    """
    return text.rstrip(". ") + "."
