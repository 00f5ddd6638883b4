"""Encode commands for the script.

Every value is checked here: inside the script it would be too late.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

from outlast.store import commands
from outlast.store.protocol import BadValue
from outlast.store.session_answers import check_distinct

INTEGER_MAX = 2**53
"""The largest integer: Lua's numbers are doubles."""
PRIORITY_MAX = 2**52
"""The largest priority. Runs are ordered by the difference from it, which is a double too."""
PRUNE_SCAN = 250
"""The most runs that one call of a Prune checks."""
SUBMIT_MANY_MAX = 10_000
"""The most runs in one SubmitMany. It is one call, and the server serves no other client meanwhile.
"""

Check: TypeAlias = Callable[[Any], bool]

_MARKS = {
    "step": "p",
    "attempt": "p",
    "inner": "p",
    "session": "p",
    "child": "pi",
    "done": "pd",
    "intent": "i",
    "compensation": "i",
}
"""What the script must know about an entry: p for progress, i for contact with the outside world, d
for `done`.
"""

_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_quoted = json.encoder.encode_basestring
"""Encode a single text as JSON."""


def encode(batch: Sequence[commands.Command]) -> list[str | bytes | int]:
    """Return the arguments of a call, without its header.

    Each group of commands of one kind gives its name, its size and its content. Record and Ack are
    separate texts, the others one JSON list. Raise BadValue for a value that cannot be stored.
    """
    arguments: list[str | bytes | int] = []
    try:
        for kind, group in groupby(batch, type):
            alike: list[Any] = list(group)
            arguments += (kind.__name__, len(alike))
            if kind is commands.Record:
                for record in alike:
                    arguments += _record(record)
            elif kind is commands.Ack:
                for ack in alike:
                    _check_fields(ack)
                    arguments += ack[:2]
            else:
                arguments.append(_json(list(map(_ENCODE.get(kind, _plain), alike))).encode())
    except UnicodeEncodeError as error:
        raise BadValue(f"a text cannot be stored: {error}") from None
    return arguments


def alone(name: str, arguments: dict[str, Any]) -> list[str | bytes | int]:
    """Return the arguments of a call for one operation.

    It is for an operation that is not a protocol command, or for a command with extra fields.
    """
    return [name, 1, _json([arguments]).encode()]


def _check_fields(command: Any) -> None:
    """Raise BadValue for a value that cannot be stored.

    If its type alone shows that a value can be stored, only the type is checked.
    """
    kind = type(command)
    shape = (kind, *map(type, command))
    numbers = _shapes.get(shape)
    if numbers is not None:
        for at in numbers:
            if not -INTEGER_MAX <= command[at] <= INTEGER_MAX:
                break
        else:
            return
    checks = _checks(kind)
    for (name, check), value in zip(checks, command, strict=True):
        if not check(value):
            raise BadValue(f"{kind.__name__}.{name} cannot be {_as_text(value)}.")
    if all(_is_enough(part, check) for part, (_, check) in zip(shape[1:], checks, strict=True)):
        _shapes[shape] = tuple(at for at, part in enumerate(shape[1:]) if part in (int, float))


def _is_enough(part: type, check: Check) -> bool:
    """Return whether a value of this type needs no check but that of its size.

    A flag may be 0 or 1, and no other number.
    """
    return part in (str, bool, float, NoneType) or (part is int and check(INTEGER_MAX))


_shapes: dict[tuple[type, ...], tuple[int, ...]] = {}
"""The types of commands that passed and have only texts, flags and numbers, with the positions of
the numbers.

A number within the bounds of an integer is valid as a float too.
"""


def _checked(part: Any) -> Any:
    """Return a part of a command. Raise BadValue for a value that cannot be stored."""
    _check_fields(part)
    return part


def _plain(command: Any) -> dict[str, Any]:
    _check_fields(command)
    return {
        name: value
        for name, value in zip(command._fields, command, strict=True)
        if value is not None
    }


# -- entries


def _record(record: commands.Record) -> tuple[int, int, int, str, bytes, bytes]:
    before, value, after = _parts(record)
    marks = _MARKS.get(record[3], "")
    quoted = "null" if value is None else _quoted(value)
    key = record[4].encode() if "d" in marks else b""
    return (*record[:3], marks, key, f"{before}{quoted}{after}".encode())


_NO_REST = (None,) * 5


def _parts(record: commands.Record) -> tuple[str, str | None, str]:
    """Return the text of an entry in three parts: before its value, the value, and after it."""
    _check_fields(record)
    _, _, fence, kind, key, at, args, value, *_ = record
    time = float.__repr__(at) if isinstance(at, float) else int.__repr__(at)
    sent_args = "null" if args is None else _quoted(args)
    before = f"{fence} [{_quoted(kind)},{_quoted(key)},{time},{sent_args},"
    if record[8:] == _NO_REST:
        return before, value, "]"
    rest = list(record[8:])
    while rest[-1] is None:
        rest.pop()
    return before, value, f",{_json(rest)[1:]}"


def _record_fields(record: commands.Record) -> dict[str, Any]:
    """Encode a record whose value the store writes."""
    before, _, after = _parts(record)
    return {
        "run": str(record.run),
        "seq": str(record.seq),
        "fence": str(record.fence),
        "marks": _MARKS.get(record.kind, ""),
        "key": record.key,
        "before": before,
        "after": after,
    }


# -- commands that need more than their fields


def _fenced(command: Any) -> dict[str, Any]:
    return _plain(command) | {"run": str(command.run)}


def _submit(command: commands.Submit) -> dict[str, Any]:
    arguments = _plain(command)
    if abs(command.priority) > PRIORITY_MAX:
        raise BadValue(f"Submit.priority cannot be {command.priority}.")
    return arguments


def _submit_many(command: commands.SubmitMany) -> dict[str, Any]:
    if len(command.runs) > SUBMIT_MANY_MAX:
        raise BadValue(
            f"{len(command.runs):,} runs are too many for one submit_many: Redis "
            "serves no other client while it stores them. Submit at "
            f"most {SUBMIT_MANY_MAX:,} at once."
        )
    return {"runs": [_submit(run) for run in command.runs]}


def _decide(command: commands.Decide) -> dict[str, Any]:
    arguments = _plain(command)
    try:
        decision = json.dumps(json.loads(command.decision) | {"token": command.token})
    except (ValueError, TypeError, RecursionError) as error:
        raise BadValue(f"a decision must be a JSON object: {error}") from None
    return arguments | {"decision": decision}


def _register_worker(command: commands.RegisterWorker) -> dict[str, Any]:
    if command.worker == "":
        raise BadValue(
            "a worker's id cannot be empty: an empty id means that no worker holds a run."
        )
    arguments = _plain(command)
    # Reject text that is not UTF-8: json.dumps would escape it.
    "".join((*command.queues, *command.workflows)).encode()
    return arguments | {
        "queues": json.dumps(command.queues),
        "workflows": json.dumps(command.workflows),
    }


def _prune(command: commands.Prune) -> dict[str, Any]:
    arguments = {
        "start": 0,
        "look": PRUNE_SCAN,
        "ids": list(dict.fromkeys(command.ids)),
        "dead": bool(command.dead),
    }
    return _plain(command) | arguments


def more_of(prune: commands.Prune, count: int, start: int) -> list[str | bytes | int]:
    """Return the arguments of a call that continues a Prune.

    `count` runs are pruned already. The call begins at position `start`.
    """
    arguments = _prune(prune) | {"limit": prune.limit - count, "start": start}
    return alone("Prune", arguments)


def _send(command: commands.Send) -> dict[str, Any]:
    _plain(command)
    by = [] if command.by is None else [command.by]
    rest = _json([command.message, command.value, *by])
    return {
        "id": command.id,
        "name": command.name,
        "message": command.message,
        "named": _json([command.name]),
        "rest": rest,
        **({} if command.messages_max is None else {"messages_max": command.messages_max}),
    }


def _update_session(command: commands.UpdateSession) -> dict[str, Any]:
    arguments = _plain(command)
    arguments["fields"] = [
        [field] if value is None else [field, value] for field, value in command.fields.items()
    ]
    arguments["pops"] = list(command.pops.items())
    arguments["replaces"] = [[field, *_checked(part)] for field, part in command.replaces.items()]
    arguments["appends"] = [
        [field, part.values] if part.keep is None else [field, *part]
        for field, part in command.appends.items()
        if _checked(part)
    ]
    if command.limits is not None:
        arguments["limits"] = _plain(command.limits)
    if command.record is not None:
        arguments["record"] = _record_fields(command.record)
    return arguments


def _update_sessions(command: commands.UpdateSessions) -> dict[str, Any]:
    check_distinct(command)
    arguments: dict[str, Any] = {"changes": list(map(_update_session, command.changes))}
    if command.record is not None:
        arguments["record"] = _record_fields(command.record)
    return arguments


def _delete_session(command: commands.DeleteSession) -> dict[str, Any]:
    arguments = _plain(command)
    if command.record is not None:
        arguments["record"] = _record_fields(command.record)
    return arguments


def _publish(command: commands.Publish) -> dict[str, Any]:
    arguments = _fenced(command)
    del arguments["values"]
    arguments["count"] = len(command.values)
    arguments["value"] = commands.chunk_of(command.values)
    # The script takes 0 for true.
    arguments["resumes"], arguments["last"] = bool(command.resumes), bool(command.last)
    if command.record is not None:
        run, seq, fence, marks, key, text = _record(command.record)
        names = ("run", "seq", "fence", "marks", "key", "text")
        texts = (str(run), str(seq), str(fence), marks, key.decode(), text.decode())
        arguments["record"] = dict(zip(names, texts, strict=True))
    return arguments


_ENCODE: dict[type, Callable[[Any], dict[str, Any]]] = {
    commands.Publish: _publish,
    commands.SaveProgress: _fenced,
    commands.SetWaiting: _fenced,
    commands.Settle: _fenced,
    commands.Release: _fenced,
    commands.Undo: _fenced,
    commands.Submit: _submit,
    commands.SubmitMany: _submit_many,
    commands.Prune: _prune,
    commands.Decide: _decide,
    commands.RegisterWorker: _register_worker,
    commands.Send: _send,
    commands.UpdateSession: _update_session,
    commands.UpdateSessions: _update_sessions,
    commands.DeleteSession: _delete_session,
}

# -- values


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_integer(value: Any) -> bool:
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and -INTEGER_MAX <= value <= INTEGER_MAX
    )


def _is_number(value: Any) -> bool:
    return (isinstance(value, float) and math.isfinite(value)) or _is_integer(value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, int) and value in (0, 1))


_BY_TYPE: dict[Any, Check] = {str: _is_text, int: _is_integer, float: _is_number, bool: _is_flag}
_found: dict[type, tuple[tuple[str, Check], ...]] = {}


def _checks(kind: type) -> tuple[tuple[str, Check], ...]:
    """Return the check for each field of a command, by its annotation."""
    checks = _found.get(kind)
    if checks is None:
        hints = get_type_hints(kind)
        names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
        checks = _found[kind] = tuple((name, _check(hints[name])) for name in names)
    return checks


def _check(hint: Any) -> Check:
    if hint in _BY_TYPE:
        return _BY_TYPE[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _check(type(inner[0]))
    if origin is UnionType or NoneType in inner:
        some = _check(next(part for part in inner if part is not NoneType))
        return lambda value: value is None or some(value)
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        each = _check(inner[0])
        return lambda value: not isinstance(value, str) and all(map(each, value))
    if origin is tuple:
        parts = tuple(map(_check, inner))
        return lambda value: all(check(part) for check, part in zip(parts, value, strict=True))
    if origin is dict:
        key, item = _check(inner[0]), _check(inner[1])
        return lambda value: all(key(name) and item(part) for name, part in value.items())
    return lambda value: isinstance(value, hint)


def _as_text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def integers(*values: int) -> Iterator[int]:
    """Yield the numbers that a read asks for. Raise BadValue for one that no row can have."""
    for value in values:
        if not _is_integer(value):
            raise BadValue(f"{_as_text(value)} is not a row number.")
        yield value
