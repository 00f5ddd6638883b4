"""End or release a run that a worker holds, on an open transaction.

Settle and Ack end it. Release, an interruption or a death makes it claimable again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from outlast.store import commands
from outlast.store.commands import CANCEL, FENCE, Refused
from outlast.store.rows import ENDED, RunRow
from outlast.store.sqlite import statements as sql
from outlast.store.sqlite.entries import joined_names

if TYPE_CHECKING:
    from outlast.store.sqlite.transaction import Transaction


class Seen(NamedTuple):
    """When a worker was last seen, and by what evidence. Entries contain both: see `Sweep`."""

    seen: float
    by: str


def settle(transaction: Transaction, command: commands.Settle) -> Refused | None:
    settled = transaction.db.execute(
        sql.SETTLE, {**command._asdict(), "now": transaction.now}
    ).fetchone()
    if settled is None:
        held = transaction.db.execute(sql.RUN_BY_FENCE, (command.run, command.fence)).fetchone()
        # A request to cancel kept the run from being parked.
        if held is not None:
            return Refused(CANCEL, str(RunRow(*held).cancel))
        again = transaction.db.execute(sql.SETTLED, (command.run, -command.fence)).fetchone()
        return None if again else Refused(FENCE)
    queue, parent = settled
    if command.status != "parked":
        transaction.db.execute(sql.FORGET_PROGRESS, (command.run,))
    transaction.moved(queue, parent, "running", command.status)
    if parent is not None:
        transaction.wake_parent(parent)
    return None


def ack(transaction: Transaction, command: commands.Ack) -> Refused | None:
    if transaction.db.execute(sql.ACK, (transaction.now, command.run, command.fence)).rowcount:
        transaction.moved(command.queue, None, "running", "done")
        return None
    again = transaction.db.execute(sql.ACKED_BY, (command.run, -command.fence)).fetchone()
    return None if again else Refused(FENCE)


def release(transaction: Transaction, command: commands.Release) -> str | Refused:
    held = transaction.db.execute(sql.HELD, (command.run, command.fence)).fetchone()
    if held is None:
        again = transaction.db.execute(
            sql.RELEASED_EARLIER, (command.run, -command.fence)
        ).fetchone()
        return str(again[0]) if again else Refused(FENCE)
    row, _ = _as_held(held)
    if command.waiting:
        due = command.due
        children = list(dict.fromkeys(command.children))
        lists = {"waits": json.dumps(command.waits), "children": json.dumps(children)}
        news = {"run": command.run, "seen": command.seen, **lists}
        if row.cancel is not None or transaction.db.execute(sql.NEWS, news).fetchone()[0]:
            due = min(due, transaction.now)
        after = row._replace(
            status="waiting", due=due, interrupted=None, waits=joined_names(command.waits)
        )
    elif command.failed:
        after = row._replace(
            status="queued", due=transaction.now + command.delay, failures=row.failures + 1
        )
        if after.failures >= row.attempts_max:
            after = after._replace(status="dead")
    else:
        after = row._replace(status="queued", due=transaction.now + command.delay)
    after = after._replace(reason=command.reason)
    if command.interrupted and not command.waiting and not command.failed:
        return interrupt(transaction, row, after, draining=transaction.is_draining(row.worker))
    status = release_run(transaction, row, after)
    if command.failed:
        transaction.append(row.pk, row.fence, "failure", {"why": command.reason})
    return status


def interrupt(
    transaction: Transaction,
    row: RunRow,
    after: RunRow,
    *,
    draining: bool,
    seen: Seen | None = None,
) -> str:
    """Release an interrupted run ahead of new work, or make it a dead letter after too many.

    If a draining worker left the run, its next claim is a recovery of that drain. `seen` is
    given if the worker did not release the run itself.
    """
    in_a_row = row.interruptions_in_a_row + 1
    after = after._replace(
        interrupted=transaction.now if row.interrupted is None else row.interrupted,
        interruptions=row.interruptions + 1,
        interruptions_in_a_row=in_a_row,
    )
    if in_a_row >= row.interruptions_max:
        times = "once" if in_a_row == 1 else f"{in_a_row} times in a row"
        why = f"interrupted {times} without recording anything; the last time: {after.reason}"
        after = after._replace(status="dead", reason=why)
    status = release_run(transaction, row, after)
    transaction.mark(row, "interruption", {"why": after.reason} | (seen._asdict() if seen else {}))
    if draining and status == "queued":
        transaction.db.execute(
            sql.LEFT, (row.worker, seen.seen if seen else transaction.now, row.pk)
        )
    return status


def release_run(transaction: Transaction, row: RunRow, after: RunRow) -> str:
    """Write the new state of a held run, void its fence, and return its status."""
    if row.workflow == commands.ITEM and row.cancel is not None:
        after = after._replace(status="cancelled", reason=row.cancel)
    claimable = after.status in ("queued", "waiting") and after.due <= transaction.now
    ready = (2 if after.is_suspect else 1) if claimable else 0
    values = {**after._asdict(), "run": row.pk, "ready": ready, "now": transaction.now}
    transaction.db.execute(sql.GIVE_BACK, values)
    transaction.moved(row.queue, row.parent, "running", after.status)
    if after.status in ENDED and row.parent is not None:
        transaction.wake_parent(row.parent)
    return after.status


def release_all_but(
    transaction: Transaction, worker: str, keep: Sequence[int], reason: str
) -> tuple[str, ...]:
    """Release everything a worker holds except these fences, in one statement. Return the ids.

    The runs are neither interrupted nor charged.
    """
    values = {"worker": worker, "keep": json.dumps(keep), "reason": reason, "now": transaction.now}
    back = sorted(transaction.db.execute(sql.GIVE_BACK_ALL_BUT, values).fetchall())
    for _, _, queue, parent, status in back:
        transaction.moved(queue, parent, "running", status)
        if status in ENDED and parent is not None:
            transaction.wake_parent(parent)
    return tuple(row[1] for row in back)


def held_by(transaction: Transaction, worker: str) -> list[tuple[RunRow, bool]]:
    """Return the runs a worker holds, each with whether it has made progress."""
    return [_as_held(row) for row in transaction.db.execute(sql.HELD_BY, (worker,)).fetchall()]


def _as_held(found: Sequence[Any]) -> tuple[RunRow, bool]:
    """Return a held run, and whether it has made progress since its last death or interruption.

    Progress resets its counts of consecutive deaths and interruptions.
    """
    row = RunRow(*found[:-1])
    progress = bool(found[-1])
    return row._replace(deaths_in_a_row=0, interruptions_in_a_row=0) if progress else row, progress
