"""Send a message to a run's mailbox, on an open transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outlast.store import commands
from outlast.store.commands import DEPTH, STATUS, UNKNOWN, Refused
from outlast.store.rows import ENDED
from outlast.store.sqlite import statements as sql

if TYPE_CHECKING:
    from outlast.store.sqlite.transaction import Transaction


def send(transaction: Transaction, command: commands.Send) -> Refused | None:
    row = transaction.row(command.id)
    if row is None:
        return Refused(UNKNOWN)
    if row.workflow == commands.ITEM:
        return Refused(STATUS, "item")
    if row.status in ENDED:
        return Refused(STATUS, row.status)
    if command.messages_max is not None:
        sent, known = transaction.db.execute(
            sql.MAILBOX, {**command._asdict(), "run": row.pk}
        ).fetchone()
        if sent >= command.messages_max and not known:
            return Refused(DEPTH, str(sent))
    if transaction.db.execute(
        sql.SEND, {**command._asdict(), "run": row.pk, "now": transaction.now}
    ).rowcount:
        transaction.db.execute(
            sql.WAKE, {"run": row.pk, "name": command.name, "now": transaction.now}
        )
    return None
