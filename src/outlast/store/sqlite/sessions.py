"""Apply the commands of sessions on an open transaction."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from outlast.store import commands
from outlast.store.commands import FENCE, Refused
from outlast.store.session_answers import check_distinct, outcome_of
from outlast.store.sqlite import statements as sql
from outlast.store.sqlite.session_changes import Answer, Plan, bury, drop, find, times

if TYPE_CHECKING:
    from outlast.store.sqlite.transaction import Transaction


def update(transaction: Transaction, command: commands.UpdateSession) -> Any:
    return _recorded(transaction, command.record, partial(_change, transaction, command))


def update_several(transaction: Transaction, command: commands.UpdateSessions) -> Any:
    check_distinct(command)
    return _recorded(
        transaction, command.record, partial(_change_all, transaction, command.changes)
    )


def delete(transaction: Transaction, command: commands.DeleteSession) -> Refused | None:
    if command.record is not None:
        answer = _recorded_answer(transaction, command.record)
        if answer is not None:
            return answer if isinstance(answer, Refused) else None
        _record(transaction, command.record, {})
    found = find(transaction, command)
    if command.token not in found.tokens:
        bury(transaction, command, found, {"version": 0})
    return None


def extend(transaction: Transaction, command: commands.ExtendSession) -> None:
    transaction.db.execute(
        sql.SESSION_EXTEND, {**command._asdict(), **times(transaction, command.ttl)}
    )


def prune(transaction: Transaction, command: commands.Prune) -> int:
    # Sessions that have not expired yet stay.
    before = min(command.before, math.nextafter(transaction.now, math.inf))
    expired = transaction.db.execute(sql.SESSIONS_EXPIRED, (before, command.limit)).fetchall()
    drop(transaction, expired)
    return len(expired)


# -- entries


def _recorded(
    transaction: Transaction, record: commands.Record | None, change: Callable[[], Answer | Refused]
) -> Any:
    """Make a change with its entry, or return what the entry says if this is a repeat."""
    answer = None if record is None else _recorded_answer(transaction, record)
    if answer is None:
        outcome = change()
        answer = {"refused": [*outcome]} if isinstance(outcome, Refused) else outcome
        if record is not None:
            _record(transaction, record, answer)
    return answer if isinstance(answer, Refused) else outcome_of(answer)


def _recorded_answer(transaction: Transaction, record: commands.Record) -> Answer | Refused | None:
    """Return the entry's value if this is a repeat, or a Refused if it may not be written.

    Return None if it may be written.
    """
    values = (record.run, record.seq, record.fence)
    here = transaction.db.execute(sql.RECORDED, values).fetchone()
    if here is not None:
        answer: Answer = json.loads(here[0])
        return answer
    taken = transaction.db.execute(sql.SEQ_TAKEN, (record.run, record.seq)).fetchone()
    held = transaction.db.execute(sql.HAS_FENCE, (record.run, record.fence)).fetchone()
    return None if held and not taken else Refused(FENCE)


def _record(transaction: Transaction, record: commands.Record, answer: Answer) -> None:
    entry = record._replace(value=json.dumps(answer))
    transaction.db.execute(sql.RECORD, (*entry, entry.run, entry.fence))


# -- changes


def _change(transaction: Transaction, command: commands.UpdateSession) -> Answer | Refused:
    found = find(transaction, command)
    if command.token in found.tokens:
        return _answer(found.tokens[command.token])
    plan = Plan(transaction, command, found)
    return plan.refusal() or plan.write()


def _change_all(
    transaction: Transaction, changes: Sequence[commands.UpdateSession]
) -> Answer | Refused:
    found = [find(transaction, change) for change in changes]
    if any(change.token in one.tokens for change, one in zip(changes, found, strict=True)):
        known = zip(changes, found, strict=True)
        return {"changes": [_answer(one.tokens.get(c.token, one.version)) for c, one in known]}
    plans = [Plan(transaction, *both) for both in zip(changes, found, strict=True)]
    for position, plan in enumerate(plans):
        refusal = plan.refusal(alone=False)
        if refusal is not None:
            return Refused(refusal.why, f"{position}/{refusal.detail}")
    return {"changes": [plan.write() for plan in plans]}


def _answer(remembered: int | Answer) -> Answer:
    return {"version": remembered} if isinstance(remembered, int) else remembered
