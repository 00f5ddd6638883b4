"""Verbs as the script takes them. Every value is checked here: a script that meets one it cannot use is too late."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from types import NoneType, UnionType
from typing import Any, TypeAlias, get_args, get_origin, get_type_hints

from outlast.store import verbs
from outlast.store.protocol import BadValue

INTEGER_MAX = 2**53
"""Lua's numbers are doubles."""
PRIORITY_MAX = 2**52
"""Lines are sorted by the difference to it, which is a double too."""
PRUNE_LOOK = 250
"""Runs that one call of a Prune looks at, at the most."""
SUBMIT_MANY_MAX = 10_000
"""Runs of one SubmitMany, which is one call: nobody else is served meanwhile."""

Check: TypeAlias = Callable[[Any], bool]

_MARKS = {
    "step": "p", "attempt": "p", "inner": "p", "session": "p", "child": "pi", "done": "pd", "intent": "i", "compensation": "i",
}  # fmt: skip
"""What the script must know of an entry: p for progress, i for a dealing with the outside, d for `done`."""

_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_quoted = json.encoder.encode_basestring
"""The same of a text alone."""


def encode(batch: Sequence[verbs.Verb]) -> list[str | bytes | int]:
    """The arguments of a call, behind its header: of each group of verbs of one kind its name, how many they are, and what they say.

    Record and Ack are texts of their own, the others one JSON list. BadValue if something in it cannot be stored.
    """
    arguments: list[str | bytes | int] = []
    try:
        for kind, group in groupby(batch, type):
            alike: list[Any] = list(group)
            arguments += (kind.__name__, len(alike))
            if kind is verbs.Record:
                for record in alike:
                    arguments += _record(record)
            elif kind is verbs.Ack:
                for ack in alike:
                    _check_fields(ack)
                    arguments += ack[:2]
            else:
                arguments.append(_json(list(map(_ENCODE.get(kind, _plain), alike))).encode())
    except UnicodeEncodeError as error:
        raise BadValue(f"a text cannot be stored: {error}") from None
    return arguments


def alone(name: str, said: dict[str, Any]) -> list[str | bytes | int]:
    """The arguments of a call for one thing that is no verb of the protocol's, or not quite."""
    return [name, 1, _json([said]).encode()]


def _check_fields(verb: Any) -> None:
    """BadValue for a value that cannot be stored. Of one whose type alone says that it can, only the type is looked at."""
    kind = type(verb)
    shape = (kind, *map(type, verb))
    numbers = _shapes.get(shape)
    if numbers is not None:
        for at in numbers:
            if not -INTEGER_MAX <= verb[at] <= INTEGER_MAX:
                break
        else:
            return
    checks = _checks(kind)
    for (name, check), value in zip(checks, verb, strict=True):
        if not check(value):
            raise BadValue(f"{kind.__name__}.{name} cannot be {_shown(value)}.")
    if all(_is_enough(part, check) for part, (_, check) in zip(shape[1:], checks, strict=True)):
        _shapes[shape] = tuple(at for at, part in enumerate(shape[1:]) if part in (int, float))


def _is_enough(part: type, check: Check) -> bool:
    """Whether a value of this type needs no other check than that of its size. (A flag may be 0 or 1, and no other number.)"""
    return part in (str, bool, float, NoneType) or (part is int and check(INTEGER_MAX))


_shapes: dict[tuple[type, ...], tuple[int, ...]] = {}
"""Of verbs that were found good and have nothing but texts, flags and numbers: their types, and which fields are numbers.

A number within the bounds of an integer is good as a float too."""


def _plain(verb: Any) -> dict[str, Any]:
    _check_fields(verb)
    return {name: value for name, value in zip(verb._fields, verb, strict=True) if value is not None}


# -- entries


def _record(record: verbs.Record) -> tuple[int, int, int, str, bytes, bytes]:
    before, value, after = _parts(record)
    marks = _MARKS.get(record[3], "")
    said = "null" if value is None else _quoted(value)
    key = record[4].encode() if "d" in marks else b""
    return (*record[:3], marks, key, f"{before}{said}{after}".encode())


_NO_REST = (None,) * 5


def _parts(record: verbs.Record) -> tuple[str, str | None, str]:
    """The text of an entry: what stands before its value, the value, and what stands behind it."""
    _check_fields(record)
    _, _, fence, kind, key, at, args, value, *_ = record
    time = float.__repr__(at) if isinstance(at, float) else int.__repr__(at)
    before = f"{fence} [{_quoted(kind)},{_quoted(key)},{time},{'null' if args is None else _quoted(args)},"
    if record[8:] == _NO_REST:
        return before, value, "]"
    rest = list(record[8:])
    while rest[-1] is None:
        rest.pop()
    return before, value, f",{_json(rest)[1:]}"


def _noted(record: verbs.Record) -> dict[str, Any]:
    """A record whose value the store writes."""
    before, _, after = _parts(record)
    return {
        "run": str(record.run), "seq": str(record.seq), "fence": str(record.fence), "marks": _MARKS.get(record.kind, ""),
        "key": record.key, "before": before, "after": after,
    }  # fmt: skip


# -- verbs that need more than their fields


def _fenced(verb: Any) -> dict[str, Any]:
    return _plain(verb) | {"run": str(verb.run)}


def _submit(verb: verbs.Submit) -> dict[str, Any]:
    said = _plain(verb)
    if abs(verb.priority) > PRIORITY_MAX:
        raise BadValue(f"Submit.priority cannot be {verb.priority}.")
    return said


def _submit_many(verb: verbs.SubmitMany) -> dict[str, Any]:
    if len(verb.runs) > SUBMIT_MANY_MAX:
        raise BadValue(
            f"{len(verb.runs):,} runs are too many for one submit_many on Redis, which serves nobody else meanwhile: submit at "
            f"most {SUBMIT_MANY_MAX:,} at once."
        )
    return {"runs": [_submit(run) for run in verb.runs]}


def _decide(verb: verbs.Decide) -> dict[str, Any]:
    said = _plain(verb)
    try:
        decision = json.dumps(json.loads(verb.decision) | {"token": verb.token})
    except (ValueError, TypeError, RecursionError) as error:
        raise BadValue(f"a decision must be a JSON object: {error}") from None
    return said | {"decision": decision}


def _enlist(verb: verbs.Enlist) -> dict[str, Any]:
    if verb.worker == "":
        raise BadValue("a worker's id cannot be empty: that says that nobody has a run.")
    said = _plain(verb)
    "".join((*verb.queues, *verb.workflows)).encode()  # with its escapes json.dumps would take anything
    return said | {"queues": json.dumps(verb.queues), "workflows": json.dumps(verb.workflows)}


def _prune(verb: verbs.Prune) -> dict[str, Any]:
    said = {"start": 0, "look": PRUNE_LOOK, "ids": list(dict.fromkeys(verb.ids)), "dead": bool(verb.dead)}
    return _plain(verb) | said


def more_of(prune: verbs.Prune, count: int, start: int) -> list[str | bytes | int]:
    """The arguments of another call for the rest of a Prune: so many, from the so manyth on."""
    said = _prune(prune) | {"limit": prune.limit - count, "start": start}
    return alone("Prune", said)


def _send(verb: verbs.Send) -> dict[str, Any]:
    _plain(verb)
    rest = _json([verb.message, verb.value])
    return {
        "id": verb.id,
        "name": verb.name,
        "message": verb.message,
        "named": _json([verb.name]),
        "rest": rest,
        **({} if verb.messages_max is None else {"messages_max": verb.messages_max}),
    }


def _keep(verb: verbs.Keep) -> dict[str, Any]:
    said = _plain(verb)
    said["fields"] = [[field] if value is None else [field, value] for field, value in verb.fields.items()]
    said["appends"] = [{"field": field} | _plain(more) for field, more in verb.appends.items()]
    if verb.record is not None:
        said["record"] = _noted(verb.record)
    return said


def _forget(verb: verbs.Forget) -> dict[str, Any]:
    said = _plain(verb)
    if verb.record is not None:
        said["record"] = _noted(verb.record)
    return said


_ENCODE: dict[type, Callable[[Any], dict[str, Any]]] = {
    verbs.Save: _fenced,
    verbs.Wait: _fenced,
    verbs.Settle: _fenced,
    verbs.Release: _fenced,
    verbs.Undo: _fenced,
    verbs.Submit: _submit,
    verbs.SubmitMany: _submit_many,
    verbs.Prune: _prune,
    verbs.Decide: _decide,
    verbs.Enlist: _enlist,
    verbs.Send: _send,
    verbs.Keep: _keep,
    verbs.Forget: _forget,
}

# -- values


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -INTEGER_MAX <= value <= INTEGER_MAX


def _is_number(value: Any) -> bool:
    return (isinstance(value, float) and math.isfinite(value)) or _is_integer(value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, int) and value in (0, 1))


_BY_TYPE: dict[Any, Check] = {str: _is_text, int: _is_integer, float: _is_number, bool: _is_flag}
_found: dict[type, tuple[tuple[str, Check], ...]] = {}


def _checks(kind: type) -> tuple[tuple[str, Check], ...]:
    """What each field of a verb must be, by its annotation."""
    checks = _found.get(kind)
    if checks is None:
        hints = get_type_hints(kind)
        checks = _found[kind] = tuple((name, _check(hints[name])) for name in kind._fields)  # type: ignore[attr-defined]
    return checks


def _check(hint: Any) -> Check:
    if hint in _BY_TYPE:
        return _BY_TYPE[hint]
    origin, inner = get_origin(hint), get_args(hint)
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


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def integers(*values: int) -> Iterator[int]:
    """Numbers that a read asks for. BadValue for one that no row can have."""
    for value in values:
        if not _is_integer(value):
            raise BadValue(f"{_shown(value)} is no number of a row.")
        yield value
