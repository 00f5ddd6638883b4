"""Hide values from roles that must not see them."""

from __future__ import annotations

from typing import Any

MASKED = {"masked": True}
_VALUES = frozenset(
    {
        "args",
        "arguments",
        "last",
        "payload",
        "recorded",
        "result",
        "value",
        "values",
        "words",
    }
)
_KEPT_VALUES = frozenset({"attempt", "fired", "death", "interruption", "retry", "resume"})
"""Kinds of entries whose value is not from the program."""
_KEPT_WORDS = _KEPT_VALUES - {"attempt"}
"""Kinds of entries whose text contains nothing from the program. An attempt's text has an error."""


def mask(document: Any) -> Any:
    """Return a document without the program's values and without error messages.

    Names, times, types of errors, reasons and costs stay.
    """
    if isinstance(document, list):
        return [mask(one) for one in document]
    if not isinstance(document, dict):
        return document
    kind = document.get("kind")
    kept = {"value": kind in _KEPT_VALUES, "words": kind in _KEPT_WORDS}
    return {
        name: value if kept.get(name) else _masked(name, value) for name, value in document.items()
    }


def _masked(name: str, value: Any) -> Any:
    if name in _VALUES:
        return None if value is None else MASKED
    if name in ("error", "undo_error"):
        return _masked_error(value)
    return mask(value)


def _masked_error(error: Any) -> Any:
    if isinstance(error, dict):
        return {**error, "message": MASKED, "traceback": None}
    if isinstance(error, str):
        return error.partition(":")[0]
    return error
