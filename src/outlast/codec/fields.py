"""Describe dataclasses and pydantic models field by field, to recognise a call by its arguments.

Fields that have their default are left out, as with parameters, so adding a field with a default
does not change the call. The class name stands for the defaults. Its key is `class`: a keyword,
which no field can be named. Fields that a model excludes, like a key, are left out too, and masked
fields stay masked.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

_EMPTY = (list, dict, set, frozenset, tuple, str, int, float, bool)
"""Factories that may be called to learn a default, because they always return the same."""
CLASSES_MAX = 1_000
"""How many classes are cached: a program may keep creating new ones."""


class _Field(NamedTuple):
    name: str
    default: Any
    is_left_out: Callable[[Any], bool]
    is_masked: bool


def has_fields(value: Any) -> bool:
    kind = type(value)
    return hasattr(kind, "model_fields") or dataclasses.is_dataclass(kind)


def fields_for_repr(value: Any) -> Any:
    """Return the fields that differ from their defaults, or what its own serializer returns."""
    kind: Any = type(value)
    if _writes_itself(kind):
        return _written(value)
    fields = {"class": kind.__name__}
    for field in _fields(kind):
        one = getattr(value, field.name)
        if not field.is_left_out(one) and not _same(one, field.default):
            fields[field.name] = _written(value, field.name) if field.is_masked else one
    return fields | (getattr(value, "__pydantic_extra__", None) or {})


@lru_cache(CLASSES_MAX)
def _fields(kind: Any) -> tuple[_Field, ...]:
    """Return the fields of a class.

    A subclass of a pydantic dataclass may have fields that pydantic does not know. They are
    included.
    """
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
    """Return whether this field has a serializer: a method, or a mark in its annotation."""
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
    """Return whether the class has a serializer for the whole object."""
    decorators = getattr(kind, "__pydantic_decorators__", None)
    return decorators is not None and bool(decorators.model_serializers)


def _written(value: Any, name: str | None = None) -> Any:
    """Return what pydantic serializes: the whole object, or one field."""
    serializer = type(value).__pydantic_serializer__
    include = None if name is None else {name}
    written = serializer.to_python(
        value, mode="json", include=include, by_alias=False, round_trip=True, warnings="none"
    )
    return written if name is None else written.get(name)


def _same(value: Any, default: Any) -> bool:
    try:
        return type(value) is type(default) and bool(value == default)
    except Exception:
        # A failed comparison proves nothing.
        return False
