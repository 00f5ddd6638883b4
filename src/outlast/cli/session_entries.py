"""Show the session entries of a run's timeline in words."""

from __future__ import annotations

import json
from typing import Any

from outlast.cli.documents import value_of
from outlast.cli.text import one_line, recorded, safe, short
from outlast.store.rows import Entry

CHANGES = frozenset({"append", "set", "update", "delete", "clear"})
FIELDS_MAX = 5


def session_words(entry: Entry, room: int | None) -> str:
    """Return what a session call did and what came of it: `chat-1: append turns → version 1`."""
    call = _call(entry)
    session, *rest = _arguments(entry.args or "") or [""]
    fields = _fields(rest[0]) if rest else []
    named = ", ".join(map(one_line, fields[:FIELDS_MAX])) + (", …" if fields[FIELDS_MAX:] else "")
    of = f"{one_line(str(session))}: {one_line(call)}" + (f" {named}" if named else "")
    result = _change(value_of(entry.value)) if call in CHANGES else _found(call, entry, room)
    of = of if room is None else short(of, room)
    return f"{of} → {result}" if result else of


def is_refused(entry: Entry) -> bool:
    """Return whether an entry records a change that found another version than it expected."""
    facts = value_of(entry.value)
    return _call(entry) in CHANGES and isinstance(facts, dict) and "conflict" in facts


def _call(entry: Entry) -> str:
    return entry.key.rpartition("#")[0].rpartition(".")[2]


def _change(facts: Any) -> str:
    if not isinstance(facts, dict) or not facts:
        return ""
    if "conflict" in facts:
        return f"refused, it was at version {safe(str(facts['conflict']))}"
    return f"version {safe(str(facts.get('version')))}"


def _found(call: str, entry: Entry, room: int | None) -> str:
    """Return what a read found."""
    value = value_of(entry.value)
    if call == "get" and isinstance(value, dict):
        return recorded(json.dumps(value["value"]), room) if "value" in value else "nothing"
    if call == "info" and isinstance(value, list) and len(value) > 1:
        return f"version {safe(str(value[1]))}"
    return recorded(entry.value, room)


def _fields(argument: Any) -> list[str]:
    """Return the names of the fields that a call's first argument is about."""
    if isinstance(argument, str):
        return [argument]
    return [str(name) for name in argument] if isinstance(argument, (dict, list)) else []


def _arguments(text: str) -> list[Any]:
    """Return the arguments of a call: JSON values between commas.

    Long arguments are recorded shortened. Return those before the cut.
    """
    decoder = json.JSONDecoder()
    found: list[Any] = []
    at = 0
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        found.append(value)
        at += len(",")
    return found
