"""Define the reads of a session."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

from outlast.api.session_handle import Awaits, SessionHandle
from outlast.api.session_info import SessionInfo
from outlast.codec.codecs import codec_for
from outlast.engine.session_parts import decoded, read_all, read_field, read_slice
from outlast.store.protocol import Store
from outlast.store.session_rows import FieldQuery, SessionRow

T = TypeVar("T")
D = TypeVar("D")

ABSENT, FOUND = "{}", '{"value":'
"""How a field without a value, and the beginning of one with a value, are recorded."""


class SessionReads(SessionHandle):
    """Read the fields and lists of a session. A read extends the expiry, except `info`."""

    @overload
    def get(self, field: str, default: D) -> Awaits[Any | D]: ...
    @overload
    def get(self, field: str, default: None = None) -> Awaits[Any]: ...
    @overload
    def get(self, field: str, default: D, *, type: type[T]) -> Awaits[T | D]: ...
    @overload
    def get(self, field: str, default: None = None, *, type: type[T]) -> Awaits[T | None]: ...
    def get(
        self, field: str, default: Any = None, *, type: builtins.type[Any] = object
    ) -> Awaits[Any]:
        """Return a field's value as plain JSON or as `type`, or `default` if it has none.

        A list is returned whole. Raise Unrecordable if the value does not fit `type`.
        """
        codec = codec_for(type)
        what = f"field {field!r} of {self._at}"
        return self._get(
            "get", field, lambda text: default if text is None else decoded(codec, text, what)
        )

    def _get(self, name: str, field: str, decode: Callable[[str | None], T]) -> Awaits[T]:
        field, at = self._field(field), self._at

        def find(store: Store) -> tuple[SessionRow | None, str]:
            row, value = read_field(store, at, field)
            return row, ABSENT if value is None else f"{FOUND}{value}}}"

        return self._read(
            name,
            (field,),
            find,
            lambda text: decode(None if text == ABSENT else text[len(FOUND) : -1]),
        )

    @overload
    def last(self, field: str, count: int | None = 20) -> Awaits[list[Any]]: ...
    @overload
    def last(self, field: str, count: int | None = 20, *, type: type[T]) -> Awaits[list[T]]: ...
    def last(
        self, field: str, count: int | None = 20, *, type: builtins.type[Any] = object
    ) -> Awaits[list[Any]]:
        """Return the newest `count` items of a list (None: all), oldest first, each as `type`.

        The result is empty if there is no such list.
        """
        if count is not None and (builtins.type(count) is not int or count < 0):
            raise ValueError(f"count={count!r} must be a whole number from 0, or None for all.")
        start, stop = (0, 0) if count == 0 else (-(count or 0), None)
        return self._slice("last", (field, count), field, start, stop, type)

    @overload
    def range(self, field: str, start: int = 0, stop: int | None = None) -> Awaits[list[Any]]: ...
    @overload
    def range(
        self, field: str, start: int = 0, stop: int | None = None, *, type: type[T]
    ) -> Awaits[list[T]]: ...
    def range(
        self,
        field: str,
        start: int = 0,
        stop: int | None = None,
        *,
        type: builtins.type[Any] = object,
    ) -> Awaits[list[Any]]:
        """Return the items `[start:stop]` of a list, each as `type`.

        As in a slice, `stop` is excluded and negative numbers count from the end.
        """
        for name, number in (("start", start), ("stop", stop)):
            if builtins.type(number) is not int and not (number is None and name == "stop"):
                raise ValueError(f"{name}={number!r} must be a whole number.")
        return self._slice("range", (field, start, stop), field, start, stop, type)

    def _slice(
        self,
        name: str,
        args: tuple[Any, ...],
        field: str,
        start: int,
        stop: int | None,
        type: builtins.type[Any],
    ) -> Awaits[list[Any]]:
        field, at, codec = self._field(field), self._at, codec_for(type)

        def find(store: Store) -> tuple[SessionRow | None, str]:
            return read_slice(store, at, field, start, stop)

        def decode(text: str) -> list[Any]:
            what = f"an item of list {field!r} of {at}"
            return [decoded(codec, json.dumps(item), what) for item in json.loads(text)]

        return self._read(name, args, find, decode)

    @overload
    def fields(
        self,
        prefix: str = "",
        *,
        names: Iterable[str] | None = None,
        limit: int | None = None,
        after: str | None = None,
        reverse: bool = False,
    ) -> Awaits[dict[str, Any]]: ...
    @overload
    def fields(
        self,
        prefix: str = "",
        *,
        names: Iterable[str] | None = None,
        limit: int | None = None,
        after: str | None = None,
        reverse: bool = False,
        type: type[T],
    ) -> Awaits[dict[str, T]]: ...
    def fields(
        self,
        prefix: str = "",
        *,
        names: Iterable[str] | None = None,
        limit: int | None = None,
        after: str | None = None,
        reverse: bool = False,
        type: builtins.type[Any] = object,
    ) -> Awaits[dict[str, Any]]:
        """Return the fields whose names begin with `prefix`, in the order of their names.

        Only these are read, at most `limit` of them, starting after the name `after`. `reverse`
        begins with the last name. Lists are left out. With `names`, return those of these fields
        that have a value.
        """
        if limit is not None and (builtins.type(limit) is not int or limit < 0):
            raise ValueError(f"limit={limit!r} must be a whole number from 0, or None for all.")
        at, codec = self._at, codec_for(type)
        wanted = None if names is None else self._wanted(names)
        if wanted is not None and (prefix or limit is not None or after is not None or reverse):
            raise ValueError("fields(names=...) takes no prefix, limit, after or reverse.")
        query = FieldQuery(at.id, prefix, limit, after, reverse, at.space)
        args = (prefix, limit, after, reverse) if wanted is None else (wanted,)

        def find(store: Store) -> tuple[SessionRow | None, str]:
            if wanted is None:
                row = store.fields(query)
            else:
                row = store.session(at.id, at.space, names=wanted)
            found = {} if row is None else row.fields
            parts = (f"{json.dumps(name)}:{text}" for name, text in found.items())
            return row, f"{{{','.join(parts)}}}"

        def decode(text: str) -> dict[str, Any]:
            return {
                name: decoded(codec, json.dumps(value), f"field {name!r} of {at}")
                for name, value in json.loads(text).items()
            }

        return self._read("fields", args, find, decode)

    def _wanted(self, names: Iterable[str]) -> tuple[str, ...]:
        if isinstance(names, str):
            raise TypeError(f"names={names!r} must be a list of field names.")
        return tuple(sorted({self._field(name) for name in names}))

    def all(self) -> Awaits[dict[str, Any]]:
        """Return everything in the session by field, as plain JSON.

        The result is empty if the session does not exist.
        """
        return self._all("all", json.loads)

    def _all(self, name: str, decode: Callable[[str], dict[str, Any]]) -> Awaits[dict[str, Any]]:
        at = self._at

        def find(store: Store) -> tuple[SessionRow | None, str]:
            row, fields = read_all(store, at)
            parts = (f"{json.dumps(name)}:{fields[name]}" for name in sorted(fields))
            return row, f"{{{','.join(parts)}}}"

        return self._read(name, (), find, decode)

    def info(self) -> Awaits[SessionInfo | None]:
        """Return the session's version, last change, expiry, field names and list lengths.

        Return None if the session does not exist. This does not extend its expiry.
        """
        at = self._at

        def find(store: Store) -> tuple[SessionRow | None, str]:
            row = store.session(at.id, at.space, values=False)
            return row, json.dumps(row)

        def decode(text: str) -> SessionInfo | None:
            known = json.loads(text)
            return None if known is None else SessionInfo.of(SessionRow(*known))

        return self._read("info", (), find, decode, touches=False)
