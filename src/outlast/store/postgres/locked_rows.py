"""Find the rows of a batch that another program keeps locked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from outlast.store.commands import UpdateSessions
from outlast.store.postgres import statements as sql
from outlast.store.postgres.address import Address
from outlast.store.postgres.connection import Connection
from outlast.store.postgres.failures import description


def locked_subjects(
    connection: Connection, format: Callable[[str], str], commands: Sequence[Any]
) -> frozenset[tuple[str, Any]]:
    """Return the runs and sessions of these commands that another transaction keeps locked.

    They have the form that `Blocked` takes. Raise psycopg.Error.
    """
    records = [getattr(command, "record", None) or command for command in commands]
    runs = [command.run for command in records if hasattr(command, "run")]
    ids = [command.id for command in records if hasattr(command, "id")]
    sessions = [
        (change.space, change.session) for command in commands for change in _changes(command)
    ]
    rows = connection.execute(format(sql.LOCKED), (runs, ids))
    held = _locked_sessions(connection, format, sessions) if sessions else set()
    locked = {subject for pk, id in rows for subject in (("run", pk), ("id", id))}
    for command in commands:
        changes = _changes(command)
        if any((change.space, change.session) in held for change in changes):
            record = getattr(command, "record", None)
            locked.add(("session", changes[0].session) if record is None else ("run", record.run))
    return frozenset(locked)


def _changes(command: Any) -> Sequence[Any]:
    """Return the changes of sessions that a command makes."""
    if isinstance(command, UpdateSessions):
        return command.changes
    return (command,) if hasattr(command, "session") else ()


def _locked_sessions(
    connection: Connection, format: Callable[[str], str], sessions: list[tuple[str, str]]
) -> set[tuple[str, str]]:
    spaces, ids = map(list, zip(*sessions, strict=True))
    rows = connection.execute(format(sql.LOCKED_SESSIONS), {"spaces": spaces, "ids": ids})
    return {(space, id) for space, id in rows}


def blocked_message(place: str, error: Exception, address: Address) -> str:
    return (
        f"{place}: another program keeps a row locked. Nothing was written. "
        f"Look for open transactions in pg_stat_activity. ({description(error, address)})"
    )
