"""What the encoders for user interfaces share: server-sent events, and why a run has ended."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from outlast.api.watch import EndEvent


def frame(document: dict[str, Any], cursor: str | None = None) -> str:
    """Return a server-sent event. A client that comes back sends its id as Last-Event-ID."""
    id = "" if cursor is None else f"id: {cursor}\n"
    return f"{id}data: {json.dumps(document, ensure_ascii=False)}\n\n"


def frames(documents: Sequence[dict[str, Any]], cursor: str) -> Iterator[str]:
    """Yield the server-sent events for one event of a viewer.

    Only the last one has the cursor: a client that misses it receives the whole event again.
    """
    for document in documents[:-1]:
        yield frame(document)
    for document in documents[-1:]:
        yield frame(document, cursor)


def why_ended(event: EndEvent) -> str:
    """Return in one text why a run has not ended as done."""
    message = (event.error or {}).get("message")
    return str(message or event.reason or f"the run is {event.status}")
