"""What dataclasses and pydantic models say of themselves, field by field, where a call is recognised by them.

Left out are fields with their default, as with parameters: a field more that has one makes no other call of it. What the defaults are, the
name of the class says, which no field can have for its own: it is a keyword. And left out is what a model does not write, like a key; what
it masks is masked.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

_EMPTY = (list, dict, set, frozenset, tuple, str, int, float, bool)
"""What may be called to know a default: it makes the same each time."""
CLASSES_MAX = 1_000
"""How many are remembered: a program may make new ones all the time."""


class _Field(NamedTuple):
    name: str
    default: Any
    is_left_out: Callable[[Any], bool]
    is_masked: bool


def has_fields(value: Any) -> bool:
    kind = type(value)
    return hasattr(kind, "model_fields") or dataclasses.is_dataclass(kind)


def said_of(value: Any) -> Any:
    """Of an object that has fields: those that it says anything by, or what its own serializer makes of all."""
    kind: Any = type(value)
    if _writes_itself(kind):
        return _written(value)
    said = {"class": kind.__name__}
    for field in _fields(kind):
        one = getattr(value, field.name)
        if not field.is_left_out(one) and not _same(one, field.default):
            said[field.name] = _written(value, field.name) if field.is_masked else one
    return said | (getattr(value, "__pydantic_extra__", None) or {})


@lru_cache(CLASSES_MAX)
def _fields(kind: Any) -> tuple[_Field, ...]:
    """Of a pydantic dataclass's subclass too, which has fields that pydantic does not know."""
    known: dict[str, Any] = getattr(kind, "model_fields", None) or getattr(
        kind, "__pydantic_fields__", {}
    )
    plain = (
        {one.name: one for one in dataclasses.fields(kind)}
        if dataclasses.is_dataclass(kind)
        else {}
    )
    return tuple(
        _field(kind, name, known.get(name), plain.get(name))
        for name in dict.fromkeys([*plain, *known])
    )


def _field(kind: type, name: str, known: Any, plain: dataclasses.Field[Any] | None) -> _Field:
    described: Any = plain if known is None else known
    default, factory = described.default, described.default_factory
    if factory in _EMPTY:
        default = factory()
    if known is None:
        return _Field(name, default, lambda _: False, is_masked=False)
    leaves_out = getattr(known, "exclude_if", None)
    always = bool(known.exclude)
    return _Field(
        name,
        default,
        lambda one: always or (leaves_out is not None and bool(leaves_out(one))),
        is_masked=_is_masked(kind, name, known),
    )


def _is_masked(kind: type, name: str, known: Any) -> bool:
    """Whether a serializer is for this field: a method of the class, or a mark of its annotation."""
    from pydantic import PlainSerializer, WrapSerializer

    methods = kind.__pydantic_decorators__.field_serializers.values()  # type: ignore[attr-defined]
    if any(name in method.info.fields or "*" in method.info.fields for method in methods):
        return True
    marks = (*known.metadata, *_marks(known.annotation))
    return any(isinstance(mark, (PlainSerializer, WrapSerializer)) for mark in marks)


def _marks(annotation: Any) -> Iterator[Any]:
    yield from getattr(annotation, "__metadata__", ())
    for part in typing.get_args(annotation):
        yield from _marks(part)


@lru_cache(CLASSES_MAX)
def _writes_itself(kind: Any) -> bool:
    """Whether a serializer is for the whole of it."""
    decorators = getattr(kind, "__pydantic_decorators__", None)
    return decorators is not None and bool(decorators.model_serializers)


def _written(value: Any, name: str | None = None) -> Any:
    """As pydantic writes it: the whole, or one field."""
    serializer = type(value).__pydantic_serializer__
    include = None if name is None else {name}
    written = serializer.to_python(
        value, mode="json", include=include, by_alias=False, round_trip=True, warnings="none"
    )
    return written if name is None else written.get(name)


def _same(value: Any, default: Any) -> bool:
    try:
        return type(value) is type(default) and bool(value == default)
    except Exception:  # a comparison that fails says nothing
        return False
