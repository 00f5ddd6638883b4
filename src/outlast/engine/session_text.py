"""Describe what the session entries of a journal mean."""

from __future__ import annotations

import json
from typing import Any

from outlast.codec.documents import value_of
from outlast.codec.readable import recorded, short
from outlast.codec.text import one_line, safe
from outlast.store.commands import INDEX, LIMIT, OWNER, PRESENT, VERSION
from outlast.store.rows import Entry

CHANGES = frozenset(
    {
        *("append", "set", "update", "delete", "clear", "pop", "replace", "take", "save", "mark"),
        "update_sessions",
    }
)
FIELDS_MAX = 5


def describe_session_call(entry: Entry, width: int | None) -> str:
    """Return what a session call did and what came of it: `chat-1: append turns → version 1`."""
    call = _call(entry)
    arguments = _arguments(entry.args or "")
    if call == "update_sessions":
        changes = [part for part in arguments if isinstance(part, list) and part]
        subject = f"{_listed([str(part[0]) for part in changes])}: {call}"
    else:
        session, *rest = arguments or [""]
        named = _listed(_fields(rest[0]) if rest else [])
        subject = f"{one_line(str(session))}: {one_line(call)}" + (f" {named}" if named else "")
    result = _change(value_of(entry.value)) if call in CHANGES else _found(call, entry, width)
    subject = subject if width is None else short(subject, width)
    return f"{subject} → {result}" if result else subject


def is_refused(entry: Entry) -> bool:
    """Return whether an entry records a change that the store refused."""
    facts = value_of(entry.value)
    return _call(entry) in CHANGES and isinstance(facts, dict) and _refusal(facts) is not None


def _listed(names: list[str]) -> str:
    return ", ".join(map(one_line, names[:FIELDS_MAX])) + (", …" if names[FIELDS_MAX:] else "")


def _call(entry: Entry) -> str:
    return entry.key.rpartition("#")[0].rpartition(".")[2]


def _change(facts: Any) -> str:
    if not isinstance(facts, dict) or not facts:
        return ""
    refusal = _refusal(facts)
    if refusal is not None:
        return _refused(*refusal)
    if isinstance(facts.get("changes"), list):
        return "; ".join(filter(None, map(_change, facts["changes"][:FIELDS_MAX])))
    popped = facts.get("popped")
    count = sum(map(len, popped.values())) if isinstance(popped, dict) else 0
    more = [
        f"{count} item{'' if count == 1 else 's'}" if count else "",
        f"owner {safe(str(facts['owner']))}" if "owner" in facts else "",
    ]
    return ", ".join(filter(None, [f"version {safe(str(facts.get('version')))}", *more]))


def _refusal(facts: dict[str, Any]) -> tuple[str, str] | None:
    """Return why a change was refused, and the detail. None if it was made."""
    found = facts.get("refused")
    if not isinstance(found, list) or len(found) != 2:
        return None
    why, detail = map(str, found)
    return why, detail


def _refused(why: str, detail: str) -> str:
    cleaned = safe(detail)
    texts = {
        VERSION: f"refused, it was at version {cleaned}",
        PRESENT: f"not set, it has a value (version {cleaned})",
        OWNER: f"refused, its owner is {cleaned or 'gone'}",
        INDEX: f"refused, no such item ({cleaned})",
        LIMIT: f"refused, beyond a limit ({cleaned})",
    }
    return texts.get(why, f"refused ({safe(why)} {cleaned})")


def _found(call: str, entry: Entry, width: int | None) -> str:
    """Return what a read found."""
    value = value_of(entry.value)
    if call == "get" and isinstance(value, dict):
        return recorded(json.dumps(value["value"]), width) if "value" in value else "nothing"
    if call == "info" and isinstance(value, list) and len(value) > 1:
        return f"version {safe(str(value[1]))}"
    return recorded(entry.value, width)


def _fields(argument: Any) -> list[str]:
    """Return the names of the fields that a call's first argument is about."""
    if isinstance(argument, str):
        return [argument]
    if isinstance(argument, dict):
        # What a change does, and to which fields.
        return [
            str(name)
            for names in argument.values()
            if isinstance(names, (list, dict))
            for name in names
        ]
    return [str(name) for name in argument] if isinstance(argument, list) else []


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
