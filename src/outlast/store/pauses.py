"""Read which workflows are paused. A pause is a session, so every store can keep it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

from outlast.store.protocol import Store
from outlast.store.session_rows import SessionQuery, SessionRow

PAUSES = "pauses"
"""The session space of pauses. A session's id is the name of the workflow."""
PAUSE = "pause"
PAGE = 100


class PausedWorkflow(NamedTuple):
    """A workflow whose runs no worker claims until it is resumed."""

    name: str
    since: datetime
    by: str | None
    """Who paused it, if that was said."""


def read_pauses(store: Store) -> list[PausedWorkflow]:
    """Return the paused workflows of a store, ordered by name."""
    found: list[PausedWorkflow] = []
    query = SessionQuery(PAUSES, by_id=True, values=True, limit=PAGE)
    while page := store.sessions(query):
        found += map(_pause_of, page)
        query = query._replace(after=page[-1].id)
    return found


def _pause_of(row: SessionRow) -> PausedWorkflow:
    """Return a pause. One whose session is damaged still is a pause."""
    try:
        facts: Any = json.loads(row.fields[PAUSE])
        since, by = datetime.fromtimestamp(facts["since"], UTC), facts["by"]
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        since, by = datetime.fromtimestamp(row.updated, UTC), None
    return PausedWorkflow(row.id, since, by if isinstance(by, str) else None)
