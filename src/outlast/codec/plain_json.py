"""Encode plain JSON: values that need no annotation to come back unchanged.

The text is ASCII (everything else is escaped), so NUL, lone surrogates and NaN pass through any
store.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import copy, deepcopy
from json.encoder import encode_basestring_ascii
from typing import Any

from outlast.errors import Unrecordable

DEPTH_MAX = 200

_encoder = json.JSONEncoder(separators=(",", ":"))
_decoder = json.JSONDecoder()

SCALARS: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: int.__repr__,
    float: _encoder.encode,
    str: encode_basestring_ascii,
}
"""Encoders for immutable values. A JSONEncoder builds a new encoder for every call, which is ten
times slower for a small value.
"""

SCALAR_TYPES = frozenset(SCALARS)


def encode(value: Any) -> str:
    """Return JSON text that `decode` turns into an equal value of the same types.

    Raise Unrecordable if there is none.
    """
    kind = type(value)
    scalar = SCALARS.get(kind)
    if scalar is None:
        check(value)
    try:
        return _encoder.encode(value) if scalar is None else scalar(value)
    except ValueError as error:
        # The int has more digits than Python converts.
        raise Unrecordable(f"{kind.__name__} cannot be recorded: {error}") from None


def decode(text: str) -> Any:
    return _decoder.decode(text)


def round_trip(value: Any) -> tuple[str, Any]:
    """Return the text and its decoded value: a fresh copy, unless the value is immutable."""
    text, kind = encode(value), type(value)
    # The two halves of a surrogate pair come back as one character.
    if kind is str:
        return text, value if value.isascii() else decode(text)
    return (text, value) if kind in SCALARS else (text, decode(text))


def copied(value: Any) -> Any:
    """Return a copy that shares no mutable parts, as far as possible.

    Lists and dicts are copied here, because deepcopy takes four times as long for them.
    """
    kind = type(value)
    if kind in SCALARS:
        return value
    if kind is list:
        return [copied(item) for item in value]
    if kind is dict:
        return {key: copied(item) for key, item in value.items()}
    try:
        return deepcopy(value)
    except Exception:
        # A part cannot be copied, like a lock or a client in a model's private attribute.
        return _copied_in_parts(value)


def _copied_in_parts(value: Any) -> Any:
    """Copy the attributes that can be copied. Return the object itself if it cannot be copied."""
    try:
        other = copy(value)
        vars(other).update({name: copied(item) for name, item in vars(value).items()})
    except Exception:
        return value
    return other


def is_deeper(value: Any, levels: int) -> bool:
    """Return whether its lists and dicts are nested deeper than this, without recursion."""
    level = [value]
    for _ in range(levels):
        below = [
            list(one.values()) if type(one) is dict else one
            for one in level
            if type(one) in (list, dict)
        ]
        level = [one for inner in below for one in inner]
        if not level:
            return False
    return any(type(one) in (list, dict) for one in level)


def check(value: Any, depth: int = 1) -> None:
    """Raise Unrecordable for anything that plain JSON does not restore unchanged.

    It allows None, bool, int, float, str, and lists and str-keyed dicts of them. The types must
    match exactly: subclasses are refused.
    """
    kind = type(value)
    if kind in SCALARS:
        return
    if depth > DEPTH_MAX:
        raise Unrecordable(f"a value is nested deeper than {DEPTH_MAX} levels.")
    if kind is list:
        for item in value:
            check(item, depth + 1)
    elif kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise Unrecordable(
                    f"a dict with a key of type {type(key).__name__} would come back with a str "
                    "key. Annotate it, for example dict[int, str]."
                )
            check(item, depth + 1)
    elif hasattr(value, "__await__"):
        raise Unrecordable(
            f"a value of type {kind.__qualname__} cannot be recorded, because it was not awaited. "
            "Add the missing `await`."
        )
    else:
        raise Unrecordable(
            f"a value of type {kind.__qualname__} is not plain JSON. If pydantic can serialise "
            "it (a dataclass, a model, a date), annotate it with its type. If it is a live object "
            "(a client, a socket), return a description of it instead."
        )
