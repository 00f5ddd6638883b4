"""Delete ended runs and expired sessions, on an open transaction."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, NamedTuple

from outlast.store import commands
from outlast.store.sqlite import sessions
from outlast.store.sqlite import statements as sql

if TYPE_CHECKING:
    from outlast.store.sqlite.transaction import Transaction


class PruneCursor(NamedTuple):
    """Where a Prune has stopped.

    The next Prune with the same parameters continues there, so it skips what stays only once and
    not in each batch.
    """

    command: commands.Prune | None = None
    ended: float = -math.inf
    pk: int = 0

    def of(self, command: commands.Prune) -> tuple[float, int]:
        """Return the end time and pk of the last run that this command has deleted."""
        found = self if self.command == command else PruneCursor()
        return found.ended, found.pk


def prune(transaction: Transaction, command: commands.Prune) -> int:
    if command.sessions:
        return sessions.prune(transaction, command)
    which = sql.PRUNABLE_BY_ID if command.ids else sql.ACKED if command.items else sql.PRUNABLE
    dead = bool(command.dead or command.ids)
    ended, pk = transaction.prune_cursor.of(command)
    values = {
        "before": command.before,
        "limit": command.limit,
        "ids": json.dumps(command.ids),
        "dead": dead,
        "now": transaction.now,
        "last_ended": ended,
        "last_pk": pk,
    }
    runs = transaction.db.execute(which, values).fetchall()
    for statement in sql.PRUNE:
        transaction.db.executemany(statement, [(pk,) for _, pk in runs])
    transaction.prune_cursor = (
        PruneCursor(command, *runs[-1]) if runs and len(runs) == command.limit else PruneCursor()
    )
    return len(runs)
