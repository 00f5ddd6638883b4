"""Insert runs on an open transaction, queued or owned by a worker at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from outlast.store import commands
from outlast.store.commands import CONFLICT, DEPTH, DRAINING, WORKER, Refused
from outlast.store.rows import NEW_HELD_BACK, RunRow
from outlast.store.sqlite import statements as sql

if TYPE_CHECKING:
    from outlast.store.sqlite.transaction import Transaction


def submit(
    transaction: Transaction, submits: Sequence[commands.Submit]
) -> list[commands.Submitted | Refused]:
    outcomes: list[commands.Submitted | Refused] = []
    for owned, group in groupby(submits, lambda command: command.worker is not None):
        alike = list(group)
        outcomes += (
            [_submit_owned(transaction, command) for command in alike]
            if owned
            else _enqueue(transaction, alike)
        )
    return outcomes


def _submit_owned(
    transaction: Transaction, command: commands.Submit
) -> commands.Submitted | Refused:
    worker = transaction.registered(command.worker)
    if worker is None:
        return Refused(WORKER, "not registered, or swept")
    if worker.draining:
        held = transaction.row(command.id)
        again = held is not None and _own(held, command)
        return commands.Submitted(held, new=True) if again else Refused(DRAINING)
    values = {
        **command._asdict(),
        "fence": transaction.next_fences(1),
        "now": transaction.now,
        "host": worker.host,
        "pid": worker.pid,
    }
    row = transaction.db.execute(sql.SUBMIT, values).fetchone()
    if row is not None:
        transaction.moved(command.queue, command.parent, None, "running")
        return commands.Submitted(RunRow(*row), new=True)
    existing = transaction.row(command.id)
    assert existing is not None, "a conflicting row exists in the same transaction"
    return commands.Submitted(existing, new=_own(existing, command))


def _enqueue(
    transaction: Transaction, submits: Sequence[commands.Submit]
) -> list[commands.Submitted | Refused]:
    """Queue runs independently of each other.

    A run that exists is joined, one whose queue is full is refused, and the others are inserted
    together.
    """
    there = _there(transaction, submits)
    fresh: list[commands.Submit] = []
    outcomes: list[commands.Submitted | Refused] = []
    for command in submits:
        if command.id in there:
            # The id occurs twice in this batch, so insert the first one now.
            if fresh and there[command.id] is None:
                _insert(transaction, fresh)
                fresh = []
            row = there[command.id] or transaction.row(command.id)
            assert row is not None
            if command.replace and _may_replace(row, command):
                transaction.db.execute(sql.REPLACE, _replacement(row, command, transaction.now))
                # A later command of this batch reads what it is now.
                there[command.id] = None
                outcomes.append(commands.Submitted(None, new=True))
            else:
                outcomes.append(commands.Submitted(row, new=_untouched(row, command)))
            continue
        full = _full(transaction, command, 1)
        if full is None:
            transaction.moved(command.queue, command.parent, None, "queued")
            there[command.id] = None
            fresh.append(command)
        outcomes.append(full or commands.Submitted(None, new=True))
    _insert(transaction, fresh)
    return outcomes


def submit_many(
    transaction: Transaction, command: commands.SubmitMany
) -> list[commands.Submitted | Refused] | Refused:
    """Queue several runs, all or none: check everything before writing anything."""
    there = _there(transaction, command.runs)
    asked: dict[str, tuple[str, str]] = {
        id: (row.workflow, row.args) for id, row in there.items() if row
    }
    fresh: dict[str, list[commands.Submit]] = {}
    for run in command.runs:
        if asked.setdefault(run.id, (run.workflow, run.args)) != (run.workflow, run.args):
            return Refused(CONFLICT, run.id)
        if run.id not in there:
            fresh.setdefault(run.queue, []).append(run)
    for runs in fresh.values():
        full = _full(transaction, runs[0], len({run.id for run in runs}))
        if full is not None:
            return full
    return _enqueue(transaction, [run._replace(depth_max=None) for run in command.runs])


def _there(
    transaction: Transaction, submits: Sequence[commands.Submit]
) -> dict[str, RunRow | None]:
    ids = json.dumps([command.id for command in submits])
    return {row[1]: RunRow(*row) for row in transaction.db.execute(sql.RUNS_BY_ID, (ids,))}


def _full(transaction: Transaction, command: commands.Submit, count: int) -> Refused | None:
    counts = transaction.queue_counts(command.queue)
    limit = counts.depth_max if counts.depth_max is not None else command.depth_max
    depth = counts.queued + counts.more_queued
    return (
        Refused(DEPTH, f"{depth}/{limit}/{count}")
        if limit is not None and depth + count > limit
        else None
    )


def _insert(transaction: Transaction, fresh: Sequence[commands.Submit]) -> None:
    transaction.db.executemany(
        sql.ENQUEUE,
        [
            (
                v.id,
                v.workflow,
                v.args,
                v.queue,
                v.priority,
                v.token,
                v.seed,
                v.parent,
                v.attempts_max,
                v.interruptions_max,
                transaction.now,
                transaction.now + v.delay,
                v.timeout,
                v.abandon_after,
                v.by,
                v.key,
                NEW_HELD_BACK if v.key is not None and v.delay <= 0 else v.delay <= 0,
            )
            for v in fresh
        ],
    )
    keys = {(v.queue, v.key, 0.0) for v in fresh if v.key is not None}
    if keys:
        transaction.db.execute(sql.KEY_RULE)
        transaction.db.executemany(sql.KEY_REVIEW_AT, keys)


def _replacement(row: RunRow, command: commands.Submit, now: float) -> dict[str, Any]:
    # A trigger puts a run with a key into its lane.
    values = {"pk": row.pk, "due": now + command.delay, "ready": command.delay <= 0}
    return command._asdict() | values


def _own(row: RunRow, command: commands.Submit) -> bool:
    """Return whether the worker holds the run by this submission."""
    return row.token == command.token and row.worker == command.worker


def _may_replace(row: RunRow, command: commands.Submit) -> bool:
    """Return whether the run becomes this submission. A repeat of the last one changes nothing."""
    return (
        row.status == "queued"
        and row.lives == 0
        and row.parent is None
        and row.token != command.token
        and (row.workflow, row.queue, row.key) == (command.workflow, command.queue, command.key)
    )


def _untouched(row: RunRow, command: commands.Submit) -> bool:
    """Return whether the run is as this submission left it."""
    return row.token == command.token and row.status == "queued" and row.lives == 0
