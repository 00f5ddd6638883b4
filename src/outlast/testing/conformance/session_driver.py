"""Provide helpers to read sessions in their contracts."""

from __future__ import annotations

from typing import Any

from outlast.store.commands import Record
from outlast.store.rows import RunRow
from outlast.store.session_rows import SessionQuery, SessionRow
from outlast.testing.conformance.harness import StoreDriver, entry


def kept(driver: StoreDriver, id: str = "s") -> SessionRow:
    session = driver.store.session(id)
    assert session is not None
    return session


def ids(driver: StoreDriver, **query: Any) -> list[str]:
    return [session.id for session in driver.store.sessions(SessionQuery(**query))]


def noted(row: RunRow, seq: int, **fields: Any) -> Record:
    return entry(row, seq, kind="session", key=f"flow/s#{seq}", **fields)
