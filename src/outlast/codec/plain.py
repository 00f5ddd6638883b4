"""Plain JSON: what needs no annotation to come back as it was.

Text is ASCII (everything else is escaped), so NUL, lone surrogates and NaN pass through any store.
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

SCALARS: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: int.__repr__,
    float: _encoder.encode,
    str: encode_basestring_ascii,
}
"""The JSON of what cannot change. A JSONEncoder makes a new encoder at every call: ten times slower for a small value."""


def encode(value: Any) -> str:
    """JSON text that `decode` gives back as an equal value of the same types, or Unrecordable."""
    kind = type(value)
    scalar = SCALARS.get(kind)
    if scalar is None:
        check(value)
    try:
        return _encoder.encode(value) if scalar is None else scalar(value)
    except ValueError as error:  # an int of more digits than Python converts
        raise Unrecordable(f"{kind.__name__} cannot be recorded: {error}") from None


def decode(text: str) -> Any:
    return json.loads(text)


def round_trip(value: Any) -> tuple[str, Any]:
    """The text, and what reading it back gives: a fresh copy, unless the value cannot change."""
    text, kind = encode(value), type(value)
    if kind is str:  # two halves of a surrogate pair come back as one character
        return text, value if value.isascii() else decode(text)
    return (text, value) if kind in SCALARS else (text, decode(text))


def copied(value: Any) -> Any:
    """A copy that shares nothing that can be changed, as far as there can be one. Lists and dicts by themselves: what copies anything takes
    four times as long for them."""
    kind = type(value)
    if kind in SCALARS:
        return value
    if kind is list:
        return [copied(item) for item in value]
    if kind is dict:
        return {key: copied(item) for key, item in value.items()}
    try:
        return deepcopy(value)
    except Exception:  # a part of it cannot be, like a lock or a client that a model has in private
        return _copied_in_parts(value)


def _copied_in_parts(value: Any) -> Any:
    """Copies of those attributes that can be copied; the thing itself, if it cannot be."""
    try:
        other = copy(value)
        vars(other).update({name: copied(item) for name, item in vars(value).items()})
    except Exception:
        return value
    return other


def is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and dicts in it are nested deeper than this, by level and not by recursion."""
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
    """Only None, bool, int, float, str, and lists and str-keyed dicts of them, of exactly those types."""
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
                    f"a dict with a key of type {type(key).__name__} would come back with a str key: "
                    "annotate it, e.g. dict[int, str]."
                )
            check(item, depth + 1)
    elif hasattr(value, "__await__"):
        raise Unrecordable(
            f"a value of type {kind.__qualname__} is still to be awaited: is an `await` missing?"
        )
    else:
        raise Unrecordable(
            f"a value of type {kind.__qualname__} is not plain JSON. If pydantic can carry it (a dataclass, a model, a date), "
            "annotate it with its type; if it is alive (a client, a socket), return what describes it instead."
        )
