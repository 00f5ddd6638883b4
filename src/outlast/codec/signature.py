"""Handle the arguments and results of a decorated function.

That covers binding, fingerprints, and codecs by annotation.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from outlast.codec import plain_json
from outlast.codec.codecs import PLAIN, Codec, FittedCodec, codec_for
from outlast.codec.fields import fields_for_repr, has_fields
from outlast.codec.plain_json import SCALAR_TYPES, SCALARS, copied
from outlast.errors import Unrecordable

FINGERPRINT_LENGTH = 200
"""Arguments whose JSON is no longer than this are their own, readable fingerprint."""

_FOR_STEPS = (
    "If it is a live object, such as a client, mark the parameter Annotated[..., Unrecorded]."
)
_FOR_WORKFLOWS = (
    "If it is a live object, such as a client, keep it in a module variable or in the app's "
    "lifespan. A step may take it as Annotated[..., Unrecorded]."
)


class Unrecorded:
    """Mark a parameter that is not part of a call's identity.

    For example: `client: Annotated[Client, Unrecorded]`.
    """


class Unchecked:
    """Mark a parameter that is recorded, but not compared when a run is replayed.

    Use it for values that differ from one execution to the next, such as messages in which a
    framework sets its own timestamps and ids: `messages: Annotated[list[Message], Unchecked]`.
    """


NOT_GIVEN: Any = object()
"""The default of an option for which None is a value."""


class Signature:
    """The signature of a function, read once.

    Annotations are resolved at the first call, when every name exists. `returns` replaces the
    return annotation.
    """

    def __init__(self, fn: Callable[..., Any], returns: Any = NOT_GIVEN) -> None:
        self._fn = fn
        self._own_returns = returns
        self._signature = inspect.signature(fn)
        self._parameters = list(self._signature.parameters.values())
        kinds = {parameter.kind for parameter in self._parameters}
        self._simple = kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}
        self._names = [parameter.name for parameter in self._parameters]
        self._labels = {name: f"{json.dumps(name)}:" for name in self._names}
        self._required = sum(1 for p in self._parameters if p.default is p.empty)
        self._hints: dict[str, Any] | None = None
        self._unrecorded: frozenset[str] | None = None
        self._unchecked: frozenset[str] = frozenset()
        """The parameters that are not part of a call's identity, unrecorded ones included."""
        self._codecs: dict[str, Codec] = {}
        """The codecs of the parameters that have been used."""
        self._returns: Codec | None = None

    def resolve(self) -> dict[str, Any]:
        if self._hints is None:
            try:
                self._hints = typing.get_type_hints(self._fn, include_extras=True)
            except Exception as error:
                raise Unrecordable(
                    f"the annotations of {self._fn.__qualname__} cannot be resolved: {error}"
                ) from error
            # A method's self is the object it is called on and is not recorded.
            own = {self._names[0]} if self.is_method else set()
            marked = {name for name, hint in self._hints.items() if _is_marked(hint, Unrecorded)}
            unchecked = {name for name, hint in self._hints.items() if _is_marked(hint, Unchecked)}
            if self._own_returns is not NOT_GIVEN:
                self._hints["return"] = self._own_returns
            self._unrecorded = frozenset(own | marked)
            self._unchecked = self._unrecorded | unchecked
        return self._hints

    @property
    def names(self) -> list[str]:
        """Return the names of the parameters."""
        return self._names

    def returns(self) -> Codec:
        """Return the codec of the return annotation."""
        if self._returns is None:
            self._returns = codec_for(self.resolve().get("return", Any))
        return self._returns

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments by name, without defaults.

        Raise TypeError, with the name of the function, if they do not fit.
        """
        if self._simple and not kwargs and self._required <= len(args) <= len(self._names):
            return dict(zip(self._names, args, strict=False))
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self._fn.__qualname__}(): {error}") from None

    def fingerprint(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the recorded arguments as short text, equal for equal arguments in every process.

        Raise Unrecordable if there is no such text.
        """
        if self._unrecorded is None:
            self.resolve()
        bound = self.bind(args, kwargs)
        for name in self._unchecked:
            bound.pop(name, None)
        if not bound:
            return ""
        try:
            text = self._text(bound)
        except (TypeError, ValueError, RecursionError) as error:
            for name, value in bound.items():
                if inspect.isawaitable(value):
                    raise Unrecordable(
                        f"argument {name!r} of {self._fn.__qualname__} is a "
                        f"{type(value).__name__}: is an `await` missing?"
                    ) from error
            raise Unrecordable(
                f"the arguments of {self._fn.__qualname__} cannot be fingerprinted ({error}). Mark "
                "a parameter that is not part of the call's identity, like a client or a logger, "
                "Annotated[..., Unrecorded]."
            ) from error
        return shortened(text)

    def _text(self, bound: dict[str, Any]) -> str:
        parts: list[str] = []
        for name, value in bound.items():
            scalar = SCALARS.get(type(value))
            if scalar is None:
                return canonical(bound)
            parts.append(self._labels[name] + scalar(value))
        return "{" + ",".join(parts) + "}"

    def copied(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with mutable values copied.

        Unrecorded arguments, and those that cannot be copied, are passed on unchanged.
        """
        if not kwargs and SCALAR_TYPES.issuperset(map(type, args)):
            return args, kwargs
        bound = self._signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if name not in (self._unrecorded or ()):
                bound.arguments[name] = copied(value)
        return bound.args, bound.kwargs

    def changed(self, before: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether the fingerprint of these arguments is no longer `before`."""
        try:
            return self.fingerprint(args, kwargs) != before
        except Exception:
            # Something that was there is missing now.
            return True

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Encode the arguments, each by its annotation, as a JSON object that `decode` reads."""
        return self.round_trip(args, kwargs)[0]

    def round_trip(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], *, partly: bool = False
    ) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        """Return what `encode` returns, and the arguments as decoding it gives them.

        With `partly`, unrecorded arguments are left out of the text and passed on unchanged.
        Without it, they raise Unrecordable.
        """
        self.resolve()
        parts: list[str] = []
        bound = self.bind(args, kwargs)
        carried: dict[str, Any] = {}
        for name in self._names:
            if name not in bound:
                continue
            if name in (self._unrecorded or ()):
                if partly:
                    carried[name] = bound[name]
                    continue
                raise Unrecordable(
                    f"{self._fn.__qualname__} cannot take {name!r} unrecorded: a workflow must "
                    f"be able to start again from its record. {_FOR_WORKFLOWS}"
                )
            try:
                text, carried[name] = self._codec(name).round_trip(bound[name])
            except Unrecordable as error:
                hint = _FOR_STEPS if partly else _FOR_WORKFLOWS
                raise Unrecordable(
                    f"argument {name!r} of {self._fn.__qualname__}: {error} {hint}"
                ) from error
            parts.append(self._labels[name] + text)
        return "{" + ",".join(parts) + "}", *self._as_passed(carried)

    def _as_passed(self, arguments: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments by name, in the order of the parameters, as a call passes them."""
        count = len(arguments)
        # They are the first parameters if the last of them is in its place. `inspect` is slow.
        if self._simple and (not count or next(reversed(arguments)) == self._names[count - 1]):
            return tuple(arguments.values()), {}
        bound = inspect.BoundArguments(self._signature, OrderedDict(arguments))
        return bound.args, bound.kwargs

    def _codec(self, name: str) -> Codec:
        codec = self._codecs.get(name)
        if codec is None:
            parameter = self._signature.parameters[name]
            codec = self._codecs[name] = _codec(parameter, self.resolve())
        return codec

    def bind_all(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments by name, including defaults. Missing ones are left out."""
        bound = self._signature.bind_partial(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def having(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, *value: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with this one set, whether it was positional or named.

        Without a value, remove it.
        """
        bound = self._signature.bind_partial(*args, **kwargs)
        bound.arguments.pop(name, None)
        if value:
            bound.arguments[name] = value[0]
        return bound.args, bound.kwargs

    def decode(self, text: str, *, partly: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Decode what `encode` wrote. Raise TypeError if the function takes other arguments now.

        With `partly`, arguments may be missing.
        """
        self.resolve()
        recorded = plain_json.decode(text)
        arguments: dict[str, Any] = {}
        for parameter in self._parameters:
            name = parameter.name
            if name in recorded:
                codec = self._codec(name)
                value = recorded.pop(name)
                # A plain value is already decoded. The other codecs read their own JSON.
                if isinstance(codec, FittedCodec):
                    codec.check(value)
                elif codec is not PLAIN:
                    value = codec.decode(json.dumps(value))
                if parameter.kind is parameter.VAR_POSITIONAL:
                    value = tuple(value)
                arguments[name] = value
        if recorded:
            raise TypeError(
                f"{self._fn.__qualname__} no longer takes {', '.join(sorted(recorded))}."
            )
        args, kwargs = self._as_passed(arguments)
        if not partly and (kwargs or not self._simple or len(args) < self._required):
            # Raise TypeError if the function requires more arguments now.
            self._signature.bind(*args, **kwargs)
        return args, kwargs

    def same_call(self, recorded: str, asked: str) -> bool:
        """Return whether two encoded calls give the function the same arguments.

        An argument that only one of them has counts with its current default in the other. Calls
        that do not fit the current function are different unless their text is equal.
        """
        if recorded == asked:
            return True
        try:
            one, other = self._decoded(recorded), self._decoded(asked)
            for name in one.keys() ^ other.keys():
                default = self._signature.parameters[name].default
                (one if name in other else other)[name] = default
            return canonical(one) == canonical(other)
        except (TypeError, ValueError, RecursionError):
            return False

    def _decoded(self, text: str) -> dict[str, Any]:
        args, kwargs = self.decode(text)
        bound = self._signature.bind(*args, **kwargs).arguments
        return {name: value for name, value in bound.items() if name not in self._unchecked}

    @property
    def is_method(self) -> bool:
        qualname = self._fn.__qualname__.rpartition("<locals>.")[2]
        return "." in qualname and bool(self._names) and self._names[0] in ("self", "cls")


def shortened(text: str) -> str:
    """Shorten long text. Different texts stay different, and the beginning stays readable."""
    if len(text) <= FINGERPRINT_LENGTH:
        return text
    return f"{text[: FINGERPRINT_LENGTH - 40]}…{blake2b(text.encode(), digest_size=16).hexdigest()}"


def _codec(parameter: inspect.Parameter, hints: dict[str, Any]) -> Codec:
    hint = hints.get(parameter.name, Any)
    if parameter.kind is parameter.VAR_POSITIONAL:
        return codec_for(tuple[hint, ...])  # type: ignore[valid-type]
    if parameter.kind is parameter.VAR_KEYWORD:
        return codec_for(dict[str, hint])  # type: ignore[valid-type]
    return codec_for(hint)


def _is_marked(hint: Any, mark: type) -> bool:
    return any(one is mark or isinstance(one, mark) for one in getattr(hint, "__metadata__", ()))


def _canonical(value: Any) -> Any:
    """Convert one level of what JSON does not know. The encoder calls again for nested values."""
    # The order of a set differs between processes.
    if isinstance(value, (set, frozenset)):
        return {"set": sorted(canonical(item) for item in value)}
    if has_fields(value):
        return fields_for_repr(value)
    from pydantic_core import to_jsonable_python

    try:
        return to_jsonable_python(value)
    except UnicodeDecodeError:
        # The bytes are not text.
        return to_jsonable_python(value, bytes_mode="base64")


def canonical(value: Any) -> str:
    """Return text that is equal for equal values in every process.

    Raise TypeError, ValueError or RecursionError if there is none.
    """
    try:
        # The encoder sorts keys, because equal dicts may have different orders.
        return _fingerprints.encode(value)
    except TypeError as error:
        if "not supported between" not in str(error):
            raise
        # Keys of several types have no order.
        return _unsorted.encode(value)


_fingerprints = json.JSONEncoder(separators=(",", ":"), default=_canonical, sort_keys=True)
_unsorted = json.JSONEncoder(separators=(",", ":"), default=_canonical)
