"""Start the compensation of a run on an open transaction.

The run execution or the parent requests it, or no worker takes the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from outlast.codec.exceptions import encode_error
from outlast.errors import Abandoned
from outlast.store import commands
from outlast.store.commands import FENCE, STATUS, UNKNOWN, Refused, verdict
from outlast.store.fleet import names_of
from outlast.store.rows import RunRow
from outlast.store.sqlite import statements as sql
from outlast.store.sqlite import workers

if TYPE_CHECKING:
    from outlast.store.sqlite.transaction import Transaction

UNDOING = "undoing"

ERROR_TEXT_MAX = 20_000


def undo(transaction: Transaction, command: commands.Undo) -> Refused | None:
    held = transaction.db.execute(sql.RUN_BY_FENCE, (command.run, command.fence)).fetchone()
    if held is None:
        again = transaction.db.execute(
            sql.UNDONE_BY, (command.run, -command.fence, command.verdict)
        ).fetchone()
        return None if again else Refused(FENCE)
    row = RunRow(*held)
    if row.undoing is not None:
        return Refused(STATUS, UNDOING)
    begin(transaction, row, command.verdict)
    return None


def undo_child(transaction: Transaction, command: commands.UndoChild) -> str | Refused:
    row = transaction.row(command.id)
    if row is None or row.parent != command.parent:
        return Refused(UNKNOWN)
    left_alone = row.worker is None and row.started is not None and row.undoing is None
    unheld = command.unheld and left_alone and row.status in ("queued", "waiting", "parked", "dead")
    if not unheld and (row.status != "done" or not may_need_compensation(transaction, row)):
        return row.status
    begin(transaction, row, verdict("cancelled", reason=command.why))
    return "queued"


def begin(transaction: Transaction, row: RunRow, verdict: str) -> None:
    """Start the compensation: queue the run without an owner."""
    transaction.db.execute(sql.UNDO, {"run": row.pk, "verdict": verdict, "now": transaction.now})
    transaction.moved(row.queue, row.parent, row.status, "queued")
    transaction.mark(row, UNDOING, verdict)


def abandon(transaction: Transaction, pk: int) -> bool:
    """Compensate a run that no worker took for too long, if a live worker could have.

    Return whether it is compensated.
    """
    row = transaction.row_at(pk)
    if row.abandon_after is None:
        return False
    since = max(row.claimable_since, workers.awake(transaction))
    if since + row.abandon_after >= transaction.now or not _a_worker_could(transaction, row):
        return False
    error = encode_error(Abandoned(row.id, transaction.now - since), ERROR_TEXT_MAX)
    begin(transaction, row, verdict("failed", error=error))
    return True


def _a_worker_could(transaction: Transaction, row: RunRow) -> bool:
    """Return whether a live worker has served the run's queue and workflow since it was due."""
    return any(
        row.queue in names_of(queues)
        and (workflows == "[]" or row.workflow in names_of(workflows))
        and workers.death(worker, until, transaction.now, transaction.alive) is None
        for worker, until, queues, workflows in transaction.db.execute(
            sql.ABLE, (row.due,)
        ).fetchall()
    )


def may_need_compensation(transaction: Transaction, row: RunRow) -> bool:
    """Return whether there may be something to compensate."""
    return transaction.db.execute(sql.MAY_NEED_COMPENSATION, {"id": row.id}).fetchone() is not None
