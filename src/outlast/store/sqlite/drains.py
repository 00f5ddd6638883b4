"""The verbs of a drain, on an open transaction: its beginning, its report, and what came back to life after it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from outlast.store import verbs
from outlast.store.sqlite import statements as sql
from outlast.store.verbs import DRAINS_MAX, DURATIONS_MAX, WORKER, Refused

if TYPE_CHECKING:
    from outlast.store.sqlite.apply import Transaction

NOT_BEGUN = "its worker drains before it began"


def drain(transaction: Transaction, verb: verbs.Drain) -> tuple[str, ...] | Refused:
    draining = transaction.standing(verb.worker)
    if draining is None:
        return Refused(WORKER, "not enlisted, or swept")
    if not draining:
        transaction.db.execute(sql.DRAIN, (verb.worker,))
        _forget(transaction, [verb.worker])  # an earlier drain of a worker that is back under its id
    back = transaction.give_back_all_but(verb.worker, verb.keep, NOT_BEGUN)
    open_report(transaction, verb.worker, verb.reason)
    transaction.rings = transaction.rings or bool(back)
    return back


def ask_drain(transaction: Transaction, verb: verbs.AskDrain) -> Refused | None:
    asked = transaction.db.execute(sql.ASK_DRAIN, verb._asdict()).rowcount
    return None if asked else Refused(WORKER, "not enlisted, or swept")


def report(transaction: Transaction, verb: verbs.Report) -> None:
    transaction.db.execute(sql.DRAIN_REPORT, {**verb._asdict(), "now": transaction.now})
    _keep_newest(transaction)


def cut_short(transaction: Transaction, worker: str, left: Sequence[str], why: str, seen: float) -> None:
    """A draining worker died: close its report, if it did not do so itself."""
    text = json.dumps({"cut_short": True, "left": left, "why": why, "seen": seen})
    transaction.db.execute(sql.DRAIN_SWEPT, {"worker": worker, "report": text, "now": transaction.now})


def measured(transaction: Transaction, verb: verbs.Measured) -> None:
    samples = [
        {"workflow": workflow, "step": step, "seconds": seconds} for workflow, step, seconds in verb.samples
    ]
    pairs = dict.fromkeys((workflow, step) for workflow, step, _ in verb.samples)
    transaction.db.executemany(sql.MEASURED, samples)
    transaction.db.executemany(
        sql.DURATIONS_TOO_MANY,
        [{"workflow": workflow, "step": step, "kept": DURATIONS_MAX} for workflow, step in pairs],
    )


def open_report(transaction: Transaction, worker: str, reason: str) -> None:
    """Open the report of a worker that is enlisted. One that is there stays as it is."""
    values = {"worker": worker, "reason": reason, "now": transaction.now}
    if transaction.db.execute(sql.DRAIN_OPEN, values).rowcount:
        _keep_newest(transaction)


def _keep_newest(transaction: Transaction) -> None:
    older = transaction.db.execute(sql.DRAINS_TOO_MANY, {"kept": DRAINS_MAX}).fetchall()
    _forget(transaction, [worker for (worker,) in older])


def _forget(transaction: Transaction, workers: Sequence[str]) -> None:
    for statement in sql.DRAIN_FORGET:
        transaction.db.executemany(statement, [(worker,) for worker in workers])
