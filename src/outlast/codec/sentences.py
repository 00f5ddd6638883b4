"""Sentences that are made of the words of others."""

from __future__ import annotations


def stopped(text: str) -> str:
    """With one full stop at its end, whether it had one or not: messages of others come both ways."""
    return text.rstrip(". ") + "."
