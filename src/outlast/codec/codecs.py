"""Provide a codec for each annotation: plain JSON where that suffices, else pydantic."""

from __future__ import annotations

import json
import types
from functools import cache
from typing import Annotated, Any, Protocol, TypeVar, Union, get_args, get_origin

from outlast.codec import plain_json
from outlast.errors import Unrecordable

T = TypeVar("T")

PROBLEMS_SHOWN = 5
"""How many problems of an invalid value a message lists."""


class Codec(Protocol):
    def encode(self, value: Any) -> str: ...
    def decode(self, text: str) -> Any: ...
    def round_trip(self, value: Any) -> tuple[str, Any]:
        """Return the text to record and the value that reading it back gives.

        Every execution of the run receives that value.
        """
        ...


class PlainCodec:
    encode = staticmethod(plain_json.encode)
    decode = staticmethod(plain_json.decode)
    round_trip = staticmethod(plain_json.round_trip)


class FittedCodec:
    """Plain JSON that must also match the annotation.

    Such annotations consist of None, bool, int, float, str, and lists and dicts of them.
    """

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation

    def encode(self, value: Any) -> str:
        self.check(value)
        return plain_json.encode(value)

    def decode(self, text: str) -> Any:
        value = plain_json.decode(text)
        self.check(value)
        return value

    def round_trip(self, value: Any) -> tuple[str, Any]:
        self.check(value)
        return plain_json.round_trip(value)

    def check(self, value: Any) -> None:
        """Raise Unrecordable if the value does not match the annotation."""
        if type(value) is not self.annotation and not fits(value, self.annotation):
            # This gives a better message for values that JSON cannot carry at all.
            plain_json.check(value)
            raise Unrecordable(f"{_excerpt(value)} is not {_name(self.annotation)}.")


def describe_invalid(error: BaseException) -> str:
    """Return the problems that pydantic found, in one line: `user: Field required`.

    Other errors are returned as their own text.
    """
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error)
    found = [
        ": ".join(filter(None, (".".join(map(str, one["loc"])), one["msg"])))
        for one in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    more = f"; and {len(found) - PROBLEMS_SHOWN} more" if len(found) > PROBLEMS_SHOWN else ""
    return f"{error.title}: {'; '.join(found[:PROBLEMS_SHOWN])}{more}"


class TypedCodec:
    """Encode values of one annotation with pydantic.

    A value that does not match the annotation is Unrecordable.
    """

    def __init__(self, annotation: Any) -> None:
        from pydantic import ConfigDict, PydanticUserError, TypeAdapter
        from pydantic.errors import PydanticSchemaGenerationError

        self.annotation = annotation
        lossless = ConfigDict(
            ser_json_bytes="base64",
            val_json_bytes="base64",
            ser_json_inf_nan="constants",
            defer_build=False,
        )
        try:
            try:
                self._adapter: TypeAdapter[Any] = TypeAdapter(annotation, config=lossless)
            except PydanticSchemaGenerationError:
                raise
            except PydanticUserError:
                # Models, dataclasses and typed dicts have their own config.
                self._adapter = TypeAdapter(annotation)
        except Exception as error:
            raise Unrecordable(
                f"values of {_name(annotation)} cannot be recorded. Return or take something that "
                f"JSON or pydantic can serialise. ({str(error).splitlines()[0]})"
            ) from error

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of what `decode` accepts."""
        return self._adapter.json_schema()

    def encode(self, value: Any) -> str:
        try:
            # Use Python's JSON encoder: pydantic's would write NaN in a model as null, and refuse a
            # lone surrogate.
            dumped = self._adapter.dump_python(
                value, mode="json", by_alias=True, round_trip=True, warnings="error"
            )
            text = json.dumps(dumped, separators=(",", ":"))
        except Exception as error:
            raise Unrecordable(
                f"a value of type {type(value).__qualname__} does not fit "
                f"{_name(self.annotation)}: {error}"
            ) from error
        many = text.count("[") + text.count("{") > plain_json.DEPTH_MAX
        # pydantic would refuse to read such a value again.
        if many and plain_json.is_deeper(dumped, plain_json.DEPTH_MAX):
            raise Unrecordable(f"a value is nested deeper than {plain_json.DEPTH_MAX} levels.")
        return text

    def decode(self, text: str) -> Any:
        try:
            return self._adapter.validate_json(text)
        except Exception as error:
            raise Unrecordable(
                f"the recorded value no longer fits {_name(self.annotation)}: "
                f"{describe_invalid(error)}"
            ) from error

    def round_trip(self, value: Any) -> tuple[str, Any]:
        text = self.encode(value)
        fresh = self.decode(text)
        if not self._same(value, fresh, text):
            raise Unrecordable(
                f"a value of type {type(value).__qualname__} would come back from "
                f"{_name(self.annotation)} as {_excerpt(fresh)}. Give it an annotation that says "
                "exactly what it is."
            )
        return text, fresh

    def _same(self, value: Any, fresh: Any, text: str) -> bool:
        """Return whether the value came back unchanged.

        NaN does not equal itself, and some types define no equality. Such values are compared by
        their text.
        """
        try:
            if bool(value == fresh):
                return type(value) is type(fresh) or not isinstance(
                    value, (str, bytes, tuple, list, set, frozenset)
                )
        except Exception:
            # A failed comparison proves nothing.
            return type(value) is type(fresh)
        knows_equality = any("__eq__" in vars(kind) for kind in type(value).__mro__[:-1])
        by_text = "NaN" in text or not knows_equality
        return by_text and type(value) is type(fresh) and self.encode(fresh) == text


PLAIN: Codec = PlainCodec()
_ANYTHING = (Any, object)


def codec_for(annotation: Any) -> Codec:
    """Return the codec of an annotation. Raise Unrecordable if there is none."""
    if is_plain(annotation):
        return (
            PLAIN
            if annotation in _ANYTHING or isinstance(annotation, TypeVar)
            else FittedCodec(annotation)
        )
    try:
        return _typed(annotation, str(annotation))
    except TypeError as error:
        if isinstance(error, Unrecordable):
            raise
        # The annotation is unhashable, so it cannot be cached.
        return TypedCodec(annotation)


@cache
def _typed(annotation: Any, _: str) -> Codec:
    """Cache codecs by annotation and text: equal unions in another order decode differently."""
    return TypedCodec(annotation)


def is_plain(annotation: Any) -> bool:
    """Return whether plain JSON restores values of this annotation unchanged."""
    if annotation in (
        Any,
        None,
        type(None),
        bool,
        int,
        float,
        str,
        list,
        dict,
        object,
    ) or isinstance(annotation, TypeVar):
        return True
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return False
    if origin in (list, Union, types.UnionType):
        return all(is_plain(arg) for arg in args)
    if origin is dict:
        return args[0] is str and is_plain(args[1])
    return False


def fits(value: Any, annotation: Any) -> bool:
    """Return whether a value matches a plain annotation.

    As for type checkers, a bool is a valid int, and an int a valid float.
    """
    if annotation in _ANYTHING or isinstance(annotation, TypeVar):
        return True
    if annotation is None:
        return value is None
    if annotation in (int, float):
        return type(value) in ((int, bool) if annotation is int else (int, float, bool))
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return type(value) is annotation
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is list:
        return type(value) is list and all(fits(item, args[0]) for item in value)
    if origin is dict:
        return type(value) is dict and all(
            type(k) is str and fits(v, args[1]) for k, v in value.items()
        )
    return any(fits(value, arg) for arg in args)


def _excerpt(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:80]}…"


def _name(annotation: Any) -> str:
    return getattr(annotation, "__qualname__", None) or str(annotation)


def encode_message(value: Any) -> str:
    """Encode a value that has no annotation, like a message.

    It becomes plain JSON, or what pydantic makes of its type.
    """
    try:
        return plain_json.encode(value)
    except Unrecordable:
        return codec_for(type(value)).encode(value)
