"""Turn changes of sessions into requests, and the answers into what a store returns."""

from __future__ import annotations

import json
from typing import Any

from outlast.client.rows import Document, json_text
from outlast.execution.session_changes import Change, Outcome
from outlast.store.commands import Changed, Refused


def change_request(change: Change) -> tuple[str, dict[str, Any]]:
    """Return the action and the body of the request that makes a change."""
    at = change.at
    owned: dict[str, Any] = {} if at.owner is None else {"owner": at.owner}
    kept: dict[str, Any] = owned if at.extends else {**owned, "ttl": at.ttl}
    if change.forget or change.empty:
        return "clear", owned
    if change.take:
        return "take", {} if at.extends else {"ttl": at.ttl}
    if change.pops:
        ((field, count),) = change.pops.items()
        return "pop", {**kept, "field": field, "count": count}
    if change.replaces:
        ((field, item),) = change.replaces.items()
        value = json.loads(item.value)
        return "replace", {**kept, "field": field, "index": item.at, "value": value}
    body = {
        **kept,
        "set": {name: json.loads(text) for name, text in change.fields.items() if text is not None},
        "delete": [name for name, text in change.fields.items() if text is None],
        "append": {
            name: [json.loads(text) for text in part.values]
            for name, part in change.appends.items()
        },
        "keep": next((part.keep for part in change.appends.values()), None),
        "version": change.version,
        "if_absent": sorted(change.absent) or False,
        "fields_max": at.fields_max,
    }
    return "update", {name: value for name, value in body.items() if value is not None}


def outcome_of(change: Change, answer: Document) -> Outcome:
    """Return what a store would have returned for a change."""
    if change.pops:
        (field,) = change.pops
        return Changed(0, {field: tuple(json_text(one) for one in answer["items"])})
    if change.take:
        return Changed(0, owner=answer["owner"])
    if change.forget or change.empty:
        return None
    version: int = answer["version"]
    return version if answer.get("made", True) else Refused("absent", str(version))
