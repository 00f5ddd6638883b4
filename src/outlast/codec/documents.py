"""Read recorded JSON as values for documents, also where a record is damaged."""

from __future__ import annotations

import json
import math
from typing import Any

from outlast.codec import plain_json

NESTED_MAX = 2 * plain_json.DEPTH_MAX
"""The deepest nesting of a value in a document."""


def error_document(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    recorded = value_of(text)
    if not isinstance(recorded, dict):
        return {"type": "", "message": str(recorded), "traceback": None}
    return {
        "type": str(recorded.get("type", "")).replace(":", ".").removeprefix("builtins."),
        "message": recorded.get("message", ""),
        "traceback": recorded.get("traceback"),
    }


def value_of(text: str | None) -> Any:
    """Return recorded JSON as a value.

    Return text unchanged if it is not JSON or is nested deeper than anything that is recorded.
    """
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if plain_json.is_deeper(value, NESTED_MAX) else value


def in_json(value: Any) -> Any:
    """Return `value` with everything that is not JSON replaced by its text.

    NaN and the infinities become strings so that any JSON reader can read the document.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: in_json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [in_json(one) for one in value]
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def render(document: Any) -> bytes:
    """Return a document as JSON for any reader. Text is escaped, so it is ASCII."""
    return json.dumps(in_json(document), separators=(",", ":"), allow_nan=False).encode("ascii")
