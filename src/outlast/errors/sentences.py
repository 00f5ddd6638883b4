"""Build sentences from foreign text."""

from __future__ import annotations


def stopped(text: str) -> str:
    """Return the text with exactly one full stop at its end. Foreign messages may lack one."""
    return text.rstrip(". ") + "."
