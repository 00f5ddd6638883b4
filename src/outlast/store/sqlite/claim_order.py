"""Decide which runs a worker claims next, on an open transaction.

The order is that of `Claim`: by priority, then interrupted runs before new ones, then by due time,
or by turn for runs with a key: see keys.py.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from outlast.store import commands
from outlast.store.commands import DRAINING, EACH, WORKER, Refused
from outlast.store.rows import NEVER, RunRow
from outlast.store.sqlite import compensation
from outlast.store.sqlite import statements as sql
from outlast.store.sqlite.keys import KeyTurns

if TYPE_CHECKING:
    from outlast.store.sqlite.transaction import Registered, Transaction


def claim(transaction: Transaction, command: commands.Claim) -> list[RunRow] | Refused:
    worker = transaction.registered(command.worker)
    if worker is None:
        return Refused(WORKER, "not registered, or swept")
    again = transaction.db.execute(sql.CLAIMED_BY_TOKEN, (command.worker, command.token)).fetchall()
    if again:
        return [RunRow(*row) for row in again]
    if worker.draining:
        return Refused(DRAINING)
    turns = KeyTurns(transaction)
    if command.ids:
        found = transaction.db.execute(
            sql.CLAIMABLE_BY_ID, (json.dumps(command.ids), transaction.now, command.limit)
        ).fetchall()
        _give(transaction, command, worker, found, turns)
    else:
        _claim_first(transaction, command, worker, turns)
    claimed = transaction.db.execute(sql.CLAIMED_BY_TOKEN, (command.worker, command.token))
    return [RunRow(*row) for row in claimed]


def _claim_first(
    transaction: Transaction, command: commands.Claim, worker: Registered, turns: KeyTurns
) -> None:
    """Claim the first ready runs.

    As long as there is room, the runs that get their turns by these claims are claimed too.
    """
    transaction.db.execute(sql.COME_DUE, (transaction.now,))
    queues = list(dict.fromkeys(command.queues)) or [
        name for (name,) in transaction.db.execute(sql.QUEUE_NAMES)
    ]
    limit = command.limit
    if limit > 0:
        for queue in queues:
            turns.review_changed(queue)
    returned = limit if command.returned is None else min(command.returned, limit)
    more = True
    while limit > 0 and more:
        found = _claimable(transaction, command, queues, limit, returned)
        turns.first_given = None
        held_back = len(turns.lost)
        given = _give(transaction, command, worker, found, turns)
        limit -= len(given)
        returned -= sum(row[1] < NEVER for row in given)
        more = turns.first_given is not None or len(turns.lost) > held_back


def _give(
    transaction: Transaction,
    command: commands.Claim,
    worker: Registered,
    found: Sequence[Any],
    turns: KeyTurns,
) -> list[Any]:
    """Give these runs to the worker, except those that their keys hold back. Return the others.

    Stop where a run that got its turn meanwhile goes before the rest, unless they are named.
    """
    if not found:
        return []
    returned = [row[3] for row in found if row[1] < NEVER]
    if returned:
        came_back = {"runs": json.dumps(returned), "by": command.worker, "now": transaction.now}
        transaction.db.execute(sql.RECOVERED, came_back)
    fence = transaction.next_fences(len(found)) - len(found)
    given: list[Any] = []
    for number, row in enumerate(found, 1):
        _, _, place, pk, queue, status, parent, abandoned_at, claimed_before, limited_by, key = row
        if not command.ids and turns.first_given is not None and turns.first_given < row[:4]:
            break
        if limited_by is not None and not turns.may_start(
            queue, limited_by, pk, new=not claimed_before
        ):
            continue
        given.append(row)
        abandoned = (
            abandoned_at is not None
            and abandoned_at < transaction.now
            and compensation.abandon(transaction, pk)
        )
        if claimed_before:
            transaction.db.execute(sql.KEEP_EXECUTION, (pk,))
        values = (
            fence + number,
            command.worker,
            command.token,
            command.worker,
            worker.host,
            worker.pid,
            transaction.now,
            transaction.now,
            transaction.now,
            pk,
        )
        transaction.db.execute(sql.CLAIM, values)
        transaction.moved(queue, parent, "queued" if abandoned else status, "running")
        if key is not None:
            turns.review(queue, key, transaction.now if command.ids else place)
    return given


def _claimable(
    transaction: Transaction,
    command: commands.Claim,
    queues: Sequence[str],
    limit: int,
    returned: int,
) -> list[Any]:
    """Return the first `limit` ready runs in the contract's order.

    It seeks in the index once per queue, workflow, and interrupted or new.
    """
    ready = 2 if command.suspects else 1
    found: list[Any] = []
    for queue in queues:
        free_slots = transaction.queue_counts(queue).free_slots()
        for workflow in ready_workflows(transaction.db, queue, ready):
            wanted = workflow in command.workflows if command.workflows else workflow != EACH
            if not wanted:
                continue
            line = (queue, workflow)
            if free_slots > 0:
                found += transaction.db.execute(sql.CLAIMABLE[ready, 0], (*line, returned))
                found += transaction.db.execute(sql.CLAIMABLE[ready, 1], (*line, limit))
            # Children take no slot of the queue: their parents do, and may wait for them.
            if free_slots < limit:
                found += transaction.db.execute(sql.CLAIMABLE_CHILDREN[0], (*line, ready, returned))
                found += transaction.db.execute(sql.CLAIMABLE_CHILDREN[1], (*line, ready, limit))
    chosen: list[Any] = []
    taken: Counter[str] = Counter()
    back = 0
    for row in sorted(set(found)):
        is_back = row[1] < NEVER
        is_full = row[6] is None and taken[row[4]] >= transaction.queue_counts(row[4]).free_slots()
        if len(chosen) == limit:
            break
        if (is_back and back == returned) or is_full:
            continue
        back += is_back
        taken[row[4]] += row[6] is None
        chosen.append(row)
    return chosen


def ready_workflows(db: sqlite3.Connection, queue: str, ready: int) -> list[str]:
    """Return the workflows with ready runs in a queue, with one seek per workflow."""
    names: list[str] = []
    if db.execute(sql.READY_ITEM[ready], (queue,)).fetchone():
        names.append(commands.ITEM)
    name = ""
    while found := db.execute(sql.NEXT_WORKFLOW[ready], (queue, name)).fetchone():
        name = found[0]
        names.append(name)
    return names
