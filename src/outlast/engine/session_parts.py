"""Read parts of a session from the store, and check what a caller passes to a session."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import EllipsisType
from typing import Any

from outlast.codec.codecs import Codec, encode_message
from outlast.codec.identifiers import check_field, check_id
from outlast.errors import LimitExceeded, SettingsError, Unrecordable
from outlast.execution.session_changes import At, Change
from outlast.settings import Settings
from outlast.store.commands import Append
from outlast.store.protocol import Store
from outlast.store.session_rows import SessionRow

TTL_MAX = 100 * 365.25 * 86_400.0
"""A hundred years. For a longer time, use None."""
TTL = 86_400.0
"""Seconds that an access keeps a session by default: a day."""
TRIES = 10
"""How often a session is read again when it changes during the read."""


def address(
    space: str,
    id: str,
    ttl: float | EllipsisType | None,
    settings: Settings,
    *,
    fields_max: int | None = None,
) -> At:
    """Return the address of a session. Without a `ttl` (`...`), an access keeps it for a day."""
    is_default = isinstance(ttl, EllipsisType)
    kept = TTL if isinstance(ttl, EllipsisType) else checked_ttl(ttl)
    at = At(space, check_id(id, settings.id_length_max, f"{space} id"), kept, is_default)
    return at if fields_max is None else replace(at, fields_max=checked_fields_max(fields_max))


# -- reads


def read_all(store: Store, at: At) -> tuple[SessionRow | None, dict[str, str]]:
    """Read all fields as texts, from one moment if possible: lists are read after the fields."""
    row, fields = store.session(at.id, at.space), {}
    for _ in range(TRIES):
        if row is None:
            return None, {}
        fields = row.fields | {name: _read_list(store, at, name) for name in row.lists}
        if not row.lists:
            break
        head = store.session(at.id, at.space, names=())
        if head is not None and head.version == row.version:
            break
        row = store.session(at.id, at.space)
    return row, fields


def read_field(store: Store, at: At, field: str) -> tuple[SessionRow | None, str | None]:
    """Read one field. A list is read after the row: if empty, the field has changed."""
    row, value = store.session(at.id, at.space, names=(field,)), None
    for _ in range(TRIES):
        if row is None or field not in row.lists:
            return row, None if row is None else row.fields.get(field)
        value = _read_list(store, at, field)
        if value != "[]":
            break
        row = store.session(at.id, at.space, names=(field,))
    return row, value


def read_slice(
    store: Store, at: At, field: str, start: int, stop: int | None
) -> tuple[SessionRow | None, str]:
    """Read a slice of a list."""
    row = store.session(at.id, at.space, names=(field,))
    if row is None or field not in row.lists:
        return row, "[]"
    return row, _read_list(store, at, field, start, stop)


def _read_list(store: Store, at: At, field: str, start: int = 0, stop: int | None = None) -> str:
    return f"[{','.join(store.items(at.id, field, start, stop, at.space))}]"


def decoded(codec: Codec, text: str, what: str) -> Any:
    try:
        return codec.decode(text)
    except Unrecordable as error:
        raise Unrecordable(
            f"{what} ({text[:80]}) does not have the requested type: {error}"
        ) from error


# -- writes


def part_of_update(
    at: At,
    name: str,
    settings: Settings,
    fields: Mapping[str, Any],
    append: Mapping[str, Iterable[Any]] | None = None,
    delete: Iterable[str] = (),
    *,
    keep: int | None = None,
    version: int | None = None,
    if_absent: bool | Iterable[str] = False,
) -> Change:
    """Check and encode a change of fields and lists. Raise ValueError, BadName, LimitExceeded."""
    gone = _names(delete, settings)
    if both := sorted({*fields, *(append or {})} & {*gone}):
        raise ValueError(f"field {both[0]!r} cannot be deleted and written in one change.")
    if both := sorted({*fields} & {*(append or {})}):
        raise ValueError(f"field {both[0]!r} cannot be set and appended to in one change.")
    if version is not None and (type(version) is not int or version < 0):
        raise ValueError(
            f"version={version!r} must be a whole number: 0 for a session that does not exist yet."
        )
    if keep is not None and (type(keep) is not int or keep < 1):
        raise ValueError(f"keep={keep!r} must be a whole number from 1, or None for all.")
    texts: dict[str, str | None] = {
        check_field(field, settings.name_length_max): encoded(at, field, value)
        for field, value in fields.items()
    }
    appends = {
        check_field(field, settings.name_length_max): Append(
            tuple(encoded(at, field, value) for value in _values(field, values)), keep
        )
        for field, values in (append or {}).items()
    }
    change = Change(
        at,
        name,
        new_token(),
        texts | dict.fromkeys(gone),
        appends,
        version=version,
        absent=_absent(if_absent, texts),
    )
    check_size(settings, str(at), change)
    return change


def _absent(given: bool | Iterable[str], fields: Mapping[str, Any]) -> frozenset[str]:
    if isinstance(given, str):
        raise TypeError(f"if_absent={given!r} must be True, or a list of field names.")
    if isinstance(given, bool):
        return frozenset(fields if given else ())
    names = frozenset(given)
    if unknown := sorted(names - {*fields}):
        raise ValueError(f"if_absent names {unknown[0]!r}, which is not a field to set.")
    return names


def _names(names: Iterable[str], settings: Settings) -> list[str]:
    if isinstance(names, str):
        raise TypeError(f"delete={names!r} must be a list of field names.")
    return [check_field(name, settings.name_length_max) for name in names]


def _values(field: str, values: Iterable[Any]) -> tuple[Any, ...]:
    if isinstance(values, (str, bytes, Mapping)):
        kind = type(values).__name__
        raise TypeError(f"append={{{field!r}: …}} takes a list of values, not one {kind}.")
    found = tuple(values)
    if not found:
        raise ValueError(f"append={{{field!r}: []}} has no values to append.")
    return found


def encoded(at: At, field: str, value: Any) -> str:
    """Encode a value. Raise Unrecordable if it would not come back as it is."""
    try:
        return encode_message(value)
    except Unrecordable as error:
        raise Unrecordable(
            f"field {field!r} of {at} cannot take this {type(value).__name__}: it would be read "
            "back as something else. Pass plain JSON (strings, numbers, lists, dicts with str "
            "keys), bytes, "
            "a dataclass or a model."
        ) from error


def check_size(settings: Settings, target: str, *changes: Change) -> None:
    """Raise LimitExceeded if changes that are written together are too large."""
    size = sum(
        sum(len(text) for text in change.fields.values() if text is not None)
        + sum(len(text) for part in change.appends.values() for text in part.values)
        + sum(len(part.value) for part in change.replaces.values())
        for change in changes
    )
    if size > settings.value_size_max:
        what = f"what is written to {target} at once"
        raise LimitExceeded("value_size_max", settings.value_size_max, size, what)


def checked_ttl(ttl: float | None) -> float | None:
    """Return a time to live in seconds. Raise SettingsError for one that is not valid."""
    if ttl is None:
        return None
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)) or not 0 < ttl <= TTL_MAX:
        given = (
            f"{ttl!r:.40}" if not isinstance(ttl, int) or abs(ttl) < 1e18 else "a very large number"
        )
        raise SettingsError(
            f"ttl={given} must be a number of seconds greater than 0, up to a hundred years, or "
            "None to never expire."
        )
    return float(ttl)


def checked_fields_max(fields_max: int) -> int:
    """Return a limit of fields. Raise SettingsError for one that is not valid."""
    if type(fields_max) is not int or fields_max < 1:
        raise SettingsError(f"fields_max={fields_max!r} must be a whole number from 1.")
    return fields_max


def new_token() -> str:
    return secrets.token_hex(8)
