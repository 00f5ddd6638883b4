"""Apply the commands of a drain on an open transaction.

They start a drain, request it, store its report, and record durations of steps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from outlast.store import commands
from outlast.store.commands import DRAINS_MAX, DURATIONS_MAX, WORKER, Refused
from outlast.store.sqlite import statements as sql
from outlast.store.sqlite.releasing import release_all_but

if TYPE_CHECKING:
    from outlast.store.sqlite.transaction import Transaction

NOT_BEGUN = "its worker drains before it began"


def drain(transaction: Transaction, command: commands.Drain) -> tuple[str, ...] | Refused:
    worker = transaction.registered(command.worker)
    if worker is None:
        return Refused(WORKER, "not registered, or swept")
    if not worker.draining:
        transaction.db.execute(sql.DRAIN, (command.worker,))
        # The worker may have drained before under the same id. Delete that drain's report.
        _forget(transaction, [command.worker])
    back = release_all_but(transaction, command.worker, command.keep, NOT_BEGUN)
    open_report(transaction, command.worker, command.reason)
    transaction.notifies = transaction.notifies or bool(back)
    return back


def request_drain(transaction: Transaction, command: commands.RequestDrain) -> Refused | None:
    asked = transaction.db.execute(sql.ASK_DRAIN, command._asdict()).rowcount
    return None if asked else Refused(WORKER, "not registered, or swept")


def store_report(transaction: Transaction, command: commands.StoreDrainReport) -> None:
    transaction.db.execute(sql.DRAIN_REPORT, {**command._asdict(), "now": transaction.now})
    _keep_newest(transaction)


def cut_short(
    transaction: Transaction, worker: str, left: Sequence[str], why: str, seen: float
) -> None:
    """Close the report of a draining worker that died, unless the worker has closed it."""
    text = json.dumps({"cut_short": True, "left": left, "why": why, "seen": seen})
    transaction.db.execute(
        sql.DRAIN_SWEPT, {"worker": worker, "report": text, "now": transaction.now}
    )


def record_durations(transaction: Transaction, command: commands.RecordDurations) -> None:
    samples = [
        {"workflow": workflow, "step": step, "seconds": seconds}
        for workflow, step, seconds in command.samples
    ]
    pairs = dict.fromkeys((workflow, step) for workflow, step, _ in command.samples)
    transaction.db.executemany(sql.MEASURED, samples)
    transaction.db.executemany(
        sql.DURATIONS_TOO_MANY,
        [{"workflow": workflow, "step": step, "kept": DURATIONS_MAX} for workflow, step in pairs],
    )


def open_report(transaction: Transaction, worker: str, reason: str) -> None:
    """Open the drain report of a registered worker. An existing report stays as it is."""
    values = {"worker": worker, "reason": reason, "now": transaction.now}
    if transaction.db.execute(sql.DRAIN_OPEN, values).rowcount:
        _keep_newest(transaction)


def _keep_newest(transaction: Transaction) -> None:
    older = transaction.db.execute(sql.DRAINS_TOO_MANY, {"kept": DRAINS_MAX}).fetchall()
    _forget(transaction, [worker for (worker,) in older])


def _forget(transaction: Transaction, workers: Sequence[str]) -> None:
    for statement in sql.DRAIN_FORGET:
        transaction.db.executemany(statement, [(worker,) for worker in workers])
