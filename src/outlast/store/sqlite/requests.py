"""Apply people's requests about a run on an open transaction: cancel, retry, resume and decide."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from outlast.store import commands
from outlast.store.commands import EACH, PARENT, STATUS, UNKNOWN, VERSION, Refused, verdict
from outlast.store.protocol import BadValue
from outlast.store.rows import ENDED, RunRow
from outlast.store.sqlite import compensation
from outlast.store.sqlite import statements as sql

if TYPE_CHECKING:
    from outlast.store.sqlite.transaction import Transaction


def cancel(transaction: Transaction, command: commands.Cancel) -> str | Refused:
    row = transaction.row(command.id)
    if row is None:
        return Refused(UNKNOWN)
    if row.status in ENDED and row.status != "dead":
        return Refused(STATUS, row.status)
    if row.undoing is not None:
        return Refused(STATUS, compensation.UNDOING)
    at_rest = row.status in ("parked", "dead")
    if at_rest and compensation.may_need_compensation(transaction, row):
        compensation.begin(transaction, row, verdict("cancelled", reason=row.cancel or command.why))
        return "queued"
    values = {"run": row.pk, "why": command.why, "now": transaction.now}
    if at_rest or row.started is None or (row.workflow == commands.ITEM and row.worker is None):
        transaction.db.execute(sql.CANCEL_AT_ONCE, values)
        transaction.moved(row.queue, row.parent, row.status, "cancelled")
        if row.parent is not None:
            transaction.wake_parent(row.parent)
        return "cancelled"
    transaction.db.execute(sql.CANCEL, values)
    return row.status


def retry(transaction: Transaction, command: commands.Retry) -> Refused | None:
    row = transaction.row(command.id)
    if row is None:
        return Refused(UNKNOWN)
    if _was_asked(transaction, row, "retry", command.token):
        return None
    stuck = row.status == "parked" and row.undoing is not None
    if row.status not in ("failed", "cancelled", "dead") and not stuck:
        return Refused(STATUS, row.status)
    refused = _parent_refuses(transaction, row, command.seen)
    if refused is not None:
        return refused
    # A run that is being compensated keeps its whole journal.
    start = row.failed_at if row.undoing is None else None
    _queue(transaction, row, command.token, again=True)
    value = {
        "from": start,
        "was": row.status,
        "undoing": row.undoing is not None,
        "token": command.token,
        **_by(command),
    }
    transaction.mark(row, "retry", value)
    return None


def _parent_refuses(transaction: Transaction, row: RunRow, seen: int | None) -> Refused | None:
    """Return why a child cannot be retried without its parent; None if it can."""
    if row.parent is None or row.undoing is not None or row.workflow == EACH:
        return None
    parent = transaction.row(row.parent)
    if parent is None:
        return Refused(PARENT, "gone")
    if parent.undoing is not None:
        return Refused(PARENT, compensation.UNDOING)
    if parent.status in ENDED:
        return Refused(PARENT, parent.status)
    last = transaction.db.execute(sql.LAST_SEQ, (parent.pk,)).fetchone()[0]
    return Refused(VERSION, str(last)) if seen is not None and last != seen else None


def resume(transaction: Transaction, command: commands.Resume) -> Refused | None:
    row = transaction.row(command.id)
    if row is None:
        return Refused(UNKNOWN)
    if _was_asked(transaction, row, "resume", command.token):
        return None
    if row.status != "parked" and not (row.workflow == EACH and row.status == "done"):
        return Refused(STATUS, row.status)
    _queue(transaction, row, command.token, again=False)
    facts = {"from": row.failed_at, "was": row.status, "token": command.token, **_by(command)}
    transaction.mark(row, "resume", facts)
    return None


def decide(transaction: Transaction, command: commands.Decide) -> Refused | None:
    row = transaction.row(command.id)
    if row is None:
        return Refused(UNKNOWN)
    if transaction.db.execute(sql.DECIDED, (row.pk, command.token)).fetchone():
        return None
    if row.status != "parked":
        return Refused(STATUS, row.status)
    last = transaction.db.execute(sql.LAST_SEQ, (row.pk,)).fetchone()[0]
    if last != command.seen:
        return Refused(VERSION, str(last))
    decision = _with_token(command)
    _queue(transaction, row, command.token, again=False)
    transaction.mark(row, "decision", decision, key=command.key)
    if command.verdict is not None:
        compensation.begin(transaction, row._replace(status="queued"), command.verdict)
    return None


def _with_token(command: commands.Decide) -> str:
    try:
        return json.dumps(json.loads(command.decision) | {"token": command.token})
    except (ValueError, TypeError) as error:
        raise BadValue(f"a decision must be a JSON object: {error}") from None


def _by(command: commands.Retry | commands.Resume) -> dict[str, str]:
    return {} if command.by is None else {"by": command.by}


def _was_asked(transaction: Transaction, row: RunRow, kind: str, token: str) -> bool:
    return transaction.db.execute(sql.REQUEUED, (row.pk, kind, token)).fetchone() is not None


def _queue(transaction: Transaction, row: RunRow, token: str, *, again: bool) -> None:
    values = {"run": row.pk, "now": transaction.now, "again": again, "token": token}
    transaction.db.execute(sql.REQUEUE, values)
    transaction.moved(row.queue, row.parent, row.status, "queued")
