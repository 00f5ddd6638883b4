"""Turn the documents of journals into the rows that they were made from."""

from __future__ import annotations

import json
from typing import Any

from outlast.client.rows import Document, error_text, json_text, seconds_of, text_of
from outlast.store.rows import Entry, ExecutionRow, Message


def entry_row(document: Document) -> Entry:
    """Return an entry of a journal."""
    value: Any = document["value"]
    if document["kind"] == "attempt" and isinstance(value, str):
        # When the next attempt may start.
        value = seconds_of(value)
    args: Any = document["args"]
    # Why a step was postponed is text. The arguments of a step are JSON.
    is_text = document["kind"] == "attempt" and isinstance(args, str)
    cost = document["cost"]
    return Entry(
        seq=document["seq"],
        kind=document["kind"],
        key=document["key"],
        at=seconds_of(document["at"]) or 0.0,
        args=args if is_text else text_of(args),
        # A result that is null is recorded as such. An error has no result.
        value=json_text(value) if document["error"] is None else text_of(value),
        error=error_text(document["error"]),
        seconds=document["seconds"],
        attempt=document["attempt"],
        asked=document.get("asked"),
        cost=None if cost is None else json.dumps(cost),
        fence=document["fence"],
    )


def execution_row(document: Document) -> ExecutionRow:
    """Return one execution of a run."""
    return ExecutionRow(
        fence=document["fence"],
        worker=document["worker"],
        host=document["host"],
        pid=document["pid"],
        began=seconds_of(document["began"]) or 0.0,
        ended=seconds_of(document["ended"]),
        status=document["status"],
        reason=document["reason"],
    )


def message_row(document: Document) -> Message:
    """Return a message to a run."""
    return Message(
        number=document["number"],
        name=document["name"],
        id=document["id"],
        value=json_text(document["value"]),
        at=seconds_of(document["at"]) or 0.0,
        by=document["by"],
    )
