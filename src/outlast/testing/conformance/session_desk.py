"""What the promises of sessions are looked at with."""

from __future__ import annotations

from typing import Any

from outlast.store.rows import RunRow, SessionQuery, SessionRow
from outlast.store.verbs import Record
from outlast.testing.conformance.harness import Desk, entry


def kept(desk: Desk, id: str = "s") -> SessionRow:
    session = desk.store.session(id)
    assert session is not None
    return session


def ids(desk: Desk, **query: Any) -> list[str]:
    return [session.id for session in desk.store.sessions(SessionQuery(**query))]


def noted(row: RunRow, seq: int, **fields: Any) -> Record:
    return entry(row, seq, kind="session", key=f"flow/s#{seq}", **fields)
