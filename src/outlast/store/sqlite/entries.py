"""Record what a run did, on an open transaction: entries, progress and what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outlast.store import commands
from outlast.store.commands import FENCE, Refused
from outlast.store.sqlite import statements as sql

if TYPE_CHECKING:
    from outlast.store.sqlite.transaction import Transaction


def record(transaction: Transaction, records: Sequence[commands.Record]) -> list[Refused | None]:
    """Write entries with one statement and one count.

    Only if some were not written is each one checked: it is a repeat, or it is refused.
    """
    written = transaction.db.executemany(
        sql.RECORD, [(*record, record[0], record[2]) for record in records]
    ).rowcount
    if written == len(records):
        return [None] * written
    return [_recorded(transaction, record) for record in records]


def _recorded(transaction: Transaction, record: commands.Record) -> Refused | None:
    here = transaction.db.execute(sql.RECORDED, (record.run, record.seq, record.fence)).fetchone()
    return None if here else Refused(FENCE)


def save_progress(transaction: Transaction, command: commands.SaveProgress) -> Refused | None:
    if transaction.db.execute(sql.SAVE, {**command._asdict(), "now": transaction.now}).rowcount:
        return None
    held = transaction.db.execute(sql.HAS_FENCE, (command.run, command.fence)).fetchone()
    return None if held else Refused(FENCE)


def set_waiting(transaction: Transaction, command: commands.SetWaiting) -> Refused | None:
    values = (joined_names(command.names), command.run, command.fence)
    written = transaction.db.execute(sql.WAIT, values).rowcount
    return None if written else Refused(FENCE)


def joined_names(names: Sequence[str]) -> str:
    """Join names with a line break before, between and after them.

    So a search for a name with both line breaks finds nothing else.
    """
    return "\n".join(("", *names, "")) if names else ""
