"""Define `Session`: fields and lists that outlive a process and are shared by all processes.

A session has a version and an expiry. In a workflow's own code a call is recorded, so that every
life of the run gets the same answer and a change happens once. Elsewhere, including a step's body,
it is a plain call.
"""

from __future__ import annotations

import asyncio
import builtins
import json
import secrets
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from outlast.codec.codecs import Codec, codec_for, encode_message
from outlast.codec.identifiers import check_field, check_id
from outlast.errors import LimitExceeded, NotInRun, NotInStep, SettingsError, Unrecordable
from outlast.execution import session_calls
from outlast.execution.refusal import refused
from outlast.execution.run_loop import RunLoop
from outlast.execution.session_calls import At, Change, Look
from outlast.execution.step_execution import BODY
from outlast.execution.threads import THREAD
from outlast.store.commands import SESSION, Append
from outlast.store.protocol import Store
from outlast.store.rows import SessionQuery, SessionRow

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.execution.run_execution import RunExecution
    from outlast.execution.services import ExecutionServices
    from outlast.settings import Settings

T = TypeVar("T")
D = TypeVar("D")
Awaits = Coroutine[None, None, T]

TTL_MAX = 100 * 365.25 * 86_400.0
"""A hundred years. For a longer time, use None."""
TTL = 86_400.0
"""Seconds that an access keeps a session by default: a day."""
PAGE = 100
TRIES = 10
"""How often a session is read again when it changes during the read."""
_LAST = datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp()
_ABSENT, _FOUND = "{}", '{"value":'


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as the store lists it: names of fields and lists, not their contents."""

    id: str
    version: int
    """The number of changes since it was created."""
    updated_at: datetime
    expires_at: datetime | None
    """None: never."""
    fields: tuple[str, ...]
    """The names of the fields that have a value."""
    lists: dict[str, int]
    """The number of items in each list."""

    @classmethod
    def of(cls, row: SessionRow) -> SessionInfo:
        expires = None if row.expires is None else _moment(row.expires)
        return cls(
            row.id, row.version, _moment(row.updated), expires, tuple(row.fields), dict(row.lists)
        )


class Session:
    """State under an id: `await session.set("name", "Ada")`, `await session.get("name")`.

    A change is durable when its call returns. Every process that has the store open sees the same
    session. Every access keeps it for `ttl` seconds more. Without a `ttl`, an access keeps it for
    at least a day and never shortens its expiry. In a workflow's own code each call is recorded: a
    replay gets the recorded answer, and a change happens once.
    """

    def __init__(
        self,
        id: str,
        ttl: float | EllipsisType | None,
        settings: Settings,
        find: Callable[[], Engine] | None = None,
        space: str = SESSION,
    ) -> None:
        """Create a handle. `find` returns its engine. None: the engine of the current run."""
        self._settings, self._find = settings, find
        unsaid = isinstance(ttl, EllipsisType)
        kept = TTL if isinstance(ttl, EllipsisType) else _checked(ttl)
        self._at = At(space, check_id(id, settings.id_length_max, f"{space} id"), kept, unsaid)

    @property
    def id(self) -> str:
        """Return the session's id."""
        return self._at.id

    # -- reading

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
            "get", field, lambda text: default if text is None else _decoded(codec, text, what)
        )

    def _get(self, name: str, field: str, decode: Callable[[str | None], T]) -> Awaits[T]:
        field, at = self._field(field), self._at

        def find(store: Store) -> tuple[SessionRow | None, str]:
            row, value = _one(store, at, field)
            return row, _ABSENT if value is None else f"{_FOUND}{value}}}"

        return self._look(
            name,
            (field,),
            find,
            lambda text: decode(None if text == _ABSENT else text[len(_FOUND) : -1]),
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
        field, at = self._field(field), self._at
        if count is not None and (builtins.type(count) is not int or count < 0):
            raise ValueError(f"count={count!r} must be a whole number from 0, or None for all.")
        codec = codec_for(type)

        def find(store: Store) -> tuple[SessionRow | None, str]:
            row = store.session(at.id, at.space)
            return row, f"[{','.join(store.items(at.id, field, count, at.space))}]"

        def decode(text: str) -> list[Any]:
            what = f"an item of list {field!r} of {at}"
            return [_decoded(codec, json.dumps(item), what) for item in json.loads(text)]

        return self._look("last", (field, count), find, decode)

    def all(self) -> Awaits[dict[str, Any]]:
        """Return everything in the session by field, as plain JSON.

        The result is empty if the session does not exist.
        """
        return self._all("all", json.loads)

    def _all(self, name: str, decode: Callable[[str], dict[str, Any]]) -> Awaits[dict[str, Any]]:
        at = self._at

        def find(store: Store) -> tuple[SessionRow | None, str]:
            row, fields = _everything(store, at)
            parts = (f"{json.dumps(name)}:{fields[name]}" for name in sorted(fields))
            return row, f"{{{','.join(parts)}}}"

        return self._look(name, (), find, decode)

    def info(self) -> Awaits[SessionInfo | None]:
        """Return the session's version, last change, expiry, field names and list lengths.

        Return None if the session does not exist. This does not extend its expiry.
        """
        at = self._at

        def find(store: Store) -> tuple[SessionRow | None, str]:
            row = store.session(at.id, at.space)
            known = None if row is None else row._replace(fields=dict.fromkeys(row.fields, ""))
            return row, json.dumps(known)

        def decode(text: str) -> SessionInfo | None:
            known = json.loads(text)
            return None if known is None else SessionInfo.of(SessionRow(*known))

        return self._look("info", (), find, decode, touches=False)

    # -- writing

    def set(self, field: str, value: Any, *, version: int | None = None) -> Awaits[int]:
        """Set a field and return the session's new version.

        Raise VersionConflict, and write nothing, if `version` is given and is not the current one.
        Version 0 means that the session does not exist yet.
        """
        return self._change("set", {field: value}, version)

    def update(
        self, fields: Mapping[str, Any] | None = None, /, *, version: int | None = None, **more: Any
    ) -> Awaits[int]:
        """Set several fields at once, all of them or none, and return the session's new version.

        Call it as `update(name="Ada", age=36)` or `update({"name": "Ada"})`. `version` works as in
        `set`.
        """
        return self._change("update", {**(fields or {}), **more}, version)

    def append(self, field: str, *values: Any, keep: int | None = None) -> Awaits[int]:
        """Append values to a list and return the session's new version.

        Only the newest `keep` items stay (None: all). A field that had a value becomes a list.
        """
        if not values:
            raise ValueError("append() takes the values to add: append('turns', turn).")
        if keep is not None and (type(keep) is not int or keep < 1):
            raise ValueError(f"keep={keep!r} must be a whole number from 1, or None for all.")
        texts = tuple(self._encoded(field, value) for value in values)
        self._check_size(texts)
        more = {self._field(field): Append(texts, keep)}
        return self._write(
            Change(self._at, self._name("append"), _token(), (field, values), appends=more)
        )

    def delete(self, *fields: str) -> Awaits[int]:
        """Delete fields and lists and return the session's new version, or 0 if it does not exist.

        `clear()` deletes the whole session.
        """
        if not fields:
            raise ValueError("delete() takes names of fields. clear() deletes the whole session.")
        gone: dict[str, str | None] = {self._field(name): None for name in fields}
        return self._write(Change(self._at, self._name("delete"), _token(), (sorted(gone),), gone))

    def clear(self) -> Awaits[None]:
        """Delete the session, including its version."""
        return self._write(Change(self._at, self._name("clear"), _token(), forget=True, quiet=True))

    # -- where the call is made

    def _change(
        self, name: str, fields: dict[str, Any], version: int | None = None, *, quiet: bool = False
    ) -> Awaits[Any]:
        if not fields:
            raise ValueError(f"{name}() takes the fields to set.")
        if version is not None and (type(version) is not int or version < 0):
            raise ValueError(
                f"version={version!r} must be a whole number: 0 for a session that does not exist "
                "yet."
            )
        texts: dict[str, str | None] = {
            self._field(field): self._encoded(field, value) for field, value in fields.items()
        }
        self._check_size(tuple(text for text in texts.values() if text is not None))
        wanted = Change(
            self._at, self._name(name), _token(), (fields,), texts, version=version, quiet=quiet
        )
        return self._write(wanted)

    def _name(self, what: str) -> str:
        """Return the name that a call is recorded under."""
        return f"{self._at.space}.{what}"

    def _look(
        self,
        name: str,
        args: tuple[Any, ...],
        find: Callable[[Store], tuple[SessionRow | None, str]],
        decode: Callable[[str], T],
        *,
        touches: bool = True,
    ) -> Awaits[T]:
        asked = Look(self._at, self._name(name), args, find, decode, touches)
        execution = self._execution()
        return (
            session_calls.look(self._services(), asked)
            if execution is None
            else session_calls.look_in_run(execution, asked)
        )

    def _write(self, wanted: Change) -> Awaits[Any]:
        execution = self._execution()
        if execution is None:
            return session_calls.change(self._services(), wanted)
        return session_calls.change_in_run(execution, wanted)

    def _execution(self) -> RunExecution | None:
        """Return the run whose own code makes this call, or None."""
        loop = asyncio._get_running_loop()
        if not isinstance(loop, RunLoop):
            return None
        if self._find is not None and self._find().services is not loop.execution.services:
            raise refused(
                NotInStep(
                    f"{self._at} belongs to another Outlast than the run that uses it here, so it "
                    "cannot be recorded with the run. "
                    f"Use outlast.{self._at.space}() here, or put this into a step."
                )
            )
        return loop.execution

    def _services(self) -> ExecutionServices:
        if self._find is not None:
            return self._find().services
        loop, body, thread = asyncio._get_running_loop(), BODY.get(), THREAD.get()
        if isinstance(loop, RunLoop):
            return loop.execution.services
        if body is not None:
            return body.execution.services
        if thread is not None:
            return thread._execution.services
        raise not_in_run(self._at.space)

    def _field(self, name: str) -> str:
        return check_field(name, self._settings.name_length_max)

    def _encoded(self, field: str, value: Any) -> str:
        try:
            return encode_message(value)
        except Unrecordable as error:
            raise Unrecordable(
                f"field {field!r} of {self._at} cannot take this {type(value).__name__}: it would "
                "not come back as it is. Pass plain JSON (strings, numbers, lists, dicts with str "
                "keys), a dataclass or a model."
            ) from error

    def _check_size(self, texts: tuple[str, ...]) -> None:
        size, size_max = sum(map(len, texts)), self._settings.value_size_max
        if size > size_max:
            raise LimitExceeded(
                "value_size_max", size_max, size, f"what is written to {self._at} at once"
            )

    def __repr__(self) -> str:
        return f"<{self._at}>"


def not_in_run(what: str) -> NotInRun:
    """Build the error for a call of `what()`, a function that returns a session, outside a run."""
    return NotInRun(
        f"{what}() is for the code of a workflow or a step, and this is code outside any run. "
        f"Elsewhere: app.{what}(id)."
    )


async def list_sessions(
    engine: Engine, prefix: str, limit: int, space: str = SESSION
) -> list[SessionInfo]:
    """Return sessions, most recently changed first, reading the store page by page."""
    if type(limit) is not int or limit < 0:
        raise ValueError(f"limit={limit!r} must be a whole number from 0.")
    found: list[SessionInfo] = []
    query = SessionQuery(space, prefix)
    while len(found) < limit:
        rows = await engine.client.read(
            engine.store.sessions, query._replace(limit=min(PAGE, limit - len(found)))
        )
        found += map(SessionInfo.of, rows)
        if len(rows) < PAGE:
            break
        query = query._replace(before=(rows[-1].updated, rows[-1].id))
    return found


def _everything(store: Store, at: At) -> tuple[SessionRow | None, dict[str, str]]:
    """Read all fields as texts, from one moment if possible: lists are read after the fields."""
    row, fields = store.session(at.id, at.space), {}
    for _ in range(TRIES):
        if row is None:
            return None, {}
        fields = row.fields | {name: _list(store, at, name) for name in row.lists}
        before, row = row, store.session(at.id, at.space) if row.lists else row
        if row is not None and row.version == before.version:
            break
    return row, fields


def _one(store: Store, at: At, field: str) -> tuple[SessionRow | None, str | None]:
    """Read one field. A list is read after the row: if empty, the field has changed."""
    row, value = store.session(at.id, at.space), None
    for _ in range(TRIES):
        if row is None or field not in row.lists:
            return row, None if row is None else row.fields.get(field)
        value = _list(store, at, field)
        if value != "[]":
            break
        row = store.session(at.id, at.space)
    return row, value


def _list(store: Store, at: At, field: str) -> str:
    return f"[{','.join(store.items(at.id, field, None, at.space))}]"


def _checked(ttl: float | None) -> float | None:
    if ttl is None:
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)) or not 0 < ttl <= TTL_MAX:
        shown = (
            f"{ttl!r:.40}" if not isinstance(ttl, int) or abs(ttl) < 1e18 else "a very large number"
        )
        raise SettingsError(
            f"ttl={shown} must be a number of seconds greater than 0, up to a hundred years, or "
            "None to never expire."
        )
    return float(ttl)


def _decoded(codec: Codec, text: str, what: str) -> Any:
    try:
        return codec.decode(text)
    except Unrecordable as error:
        raise Unrecordable(f"{what} ({text[:80]}) is not what was asked for: {error}") from error


def _moment(seconds: float) -> datetime:
    """Convert a timestamp, limited to the latest datetime that Python can represent."""
    return datetime.fromtimestamp(min(seconds, _LAST), UTC)


def _token() -> str:
    return secrets.token_hex(8)
