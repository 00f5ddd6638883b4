"""Apply the commands of workers on an open transaction.

Workers register, renew and deregister; a sweep finds the dead ones and releases their runs.
"""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, NamedTuple, Protocol

from outlast.store import commands
from outlast.store.commands import WORKER, Refused
from outlast.store.rows import (
    FLEET_DEATHS_MAX,
    FLEET_SECONDS,
    FLEET_SECONDS_MIN,
    SUSPECT_DEATHS,
    RunRow,
    deaths_allowed,
)
from outlast.store.sqlite import drains
from outlast.store.sqlite import statements as sql
from outlast.store.sqlite.releasing import Seen, held_by, interrupt, release_run

if TYPE_CHECKING:
    from outlast.store.sqlite.transaction import Transaction

RAN_OUT = "its worker's lease ran out"
DIED = "its worker died"
AWAY = "the store was away, and its worker did not come back"


class Alive(Protocol):
    def is_dead(self, worker: str) -> bool: ...
    def has_left(self, worker: str) -> bool: ...

    def silence(self, worker: str) -> float | None:
        """Return the seconds since the worker's last heartbeat; None if they are not known."""
        ...


class Holder(NamedTuple):
    """A worker as a sweep sees it.

    It has no lease if it is only a name that runs carry and no worker has.
    """

    worker: str
    until: float | None
    lease: float | None
    draining: int
    renewed: float | None


def register(transaction: Transaction, command: commands.RegisterWorker) -> None:
    values = {
        **command._asdict(),
        "queues": json.dumps(command.queues),
        "workflows": json.dumps(command.workflows),
    }
    transaction.db.execute(sql.ENLIST, {**values, "now": transaction.now})
    _beat(transaction)


def renew(transaction: Transaction, command: commands.Renew) -> Refused | None:
    values = {**command._asdict(), "now": transaction.now}
    if not transaction.db.execute(sql.RENEW, values).rowcount:
        return Refused(WORKER, "swept")
    _beat(transaction)
    return None


def deregister(transaction: Transaction, command: commands.DeregisterWorker) -> None:
    draining = transaction.is_draining(command.worker)
    seen = Seen(transaction.now, "leave")
    for row, _ in held_by(transaction, command.worker):
        after = row._replace(status="queued", due=transaction.now, reason="its worker left")
        interrupt(transaction, row, after, draining=draining, seen=seen)
    transaction.db.execute(sql.LEAVE, (command.worker,))


def sweep(transaction: Transaction, command: commands.Sweep) -> commands.Swept:
    swept: list[str] = []
    dead: list[str] = []
    workers: list[str] = []
    awake = _beat(transaction)
    for worker, until, lease, draining, renewed in _holders(transaction.db):
        why = death(worker, until, transaction.now, transaction.alive)
        if why is None or (why is RAN_OUT and awake + (lease or 0.0) > transaction.now):
            continue
        if draining:
            # The report is already open, unless only a renewal said that the worker drains.
            drains.open_report(transaction, worker, "")
        seen = _seen(transaction, worker, why, until, renewed)
        taken = _take(transaction, worker, why, seen, draining=bool(draining), command=command)
        swept += taken
        dead += [id for id, status in taken.items() if status == "dead"]
        if draining:
            drains.cut_short(transaction, worker, tuple(taken), why, seen.seen)
        transaction.db.execute(sql.LEAVE, (worker,))
        workers.append(worker)
    transaction.swept += workers
    transaction.notifies = transaction.notifies or bool(workers)
    return commands.Swept(tuple(swept), tuple(dead), tuple(workers))


def _holders(db: sqlite3.Connection) -> list[Holder]:
    """Return all workers, and all unregistered names that runs carry as their worker."""
    return [Holder(*row) for row in db.execute(sql.HOLDERS).fetchall()]


def _take(
    transaction: Transaction,
    worker: str,
    why: str,
    seen: Seen,
    *,
    draining: bool,
    command: commands.Sweep,
) -> dict[str, str]:
    """Take everything from a dead worker. Return the new status of each run, by id."""
    taken: dict[str, str] = {}
    charged: list[int] = []
    held = held_by(transaction, worker)
    parents = {row.id: row.parent for row, _ in held}
    for row, progress in held:
        if draining:
            reason = f"{why} while it was draining"
            after = row._replace(status="queued", due=transaction.now, reason=reason)
            taken[row.id] = interrupt(transaction, row, after, draining=True, seen=seen)
        elif why == AWAY:
            after = row._replace(status="queued", due=transaction.now, reason=why)
            taken[row.id] = interrupt(transaction, row, after, draining=False, seen=seen)
        else:
            innocent = progress or row.id in parents.values()
            alone = len(parents) == len(_line(row.id, parents))
            charged += [] if innocent else [row.pk]
            taken[row.id] = _die(
                transaction, row, why, innocent=innocent, alone=alone, command=command
            )
            transaction.mark(row, "death", {"worker": worker, "why": why} | seen._asdict())
    if not draining and why != AWAY:
        common = {"now": transaction.now, "worker": worker}
        transaction.db.executemany(
            sql.RECORD_DEATH, [{**common, "run": run} for run in charged or [0]]
        )
        transaction.db.execute(sql.DEATHS_TOO_MANY, {"kept": FLEET_DEATHS_MAX})
    return taken


def _seen(
    transaction: Transaction, worker: str, why: str, until: float | None, renewed: float | None
) -> Seen:
    """Return a dead worker's last sign of life."""
    now = transaction.now
    if until is None or renewed is None:
        return Seen(now, "sweep")
    if why is RAN_OUT:
        return Seen(min(now, renewed), "lease")
    silence = transaction.alive.silence(worker)
    return Seen(min(now, until if silence is None else max(now - silence, renewed)), "lock")


def _die(
    transaction: Transaction,
    row: RunRow,
    why: str,
    *,
    innocent: bool,
    alone: bool,
    command: commands.Sweep,
) -> str:
    """Charge a run for the death of its worker unless it is innocent. Return its new status."""
    now = transaction.now
    after = row._replace(status="queued", due=now, reason=why, deaths=row.deaths + 1)
    in_a_row = 0 if innocent else row.deaths_in_a_row + (alone or not row.is_suspect)
    after = after._replace(deaths_in_a_row=in_a_row)
    if after.is_suspect:
        doubled = 2 ** min(in_a_row - SUSPECT_DEATHS, 60)
        after = after._replace(due=now + min(command.backoff * doubled, command.backoff_max))
    else:
        after = after._replace(interrupted=now if row.interrupted is None else row.interrupted)
    if alone and not innocent and _is_final(transaction, row, in_a_row):
        times = "once" if in_a_row == 1 else f"{in_a_row} times in a row"
        why = f"died {times} without recording anything; the last time: {why}"
        after = after._replace(status="dead", reason=why)
    return release_run(transaction, row, after)


def _is_final(transaction: Transaction, row: RunRow, in_a_row: int) -> bool:
    """Return whether this death condemns the run, given what else died meanwhile: see `Sweep`."""
    if in_a_row < row.attempts_max:
        return False
    db, now = transaction.db, transaction.now
    own = [at for (at,) in db.execute(sql.OWN_DEATHS, {"run": row.pk, "limit": in_a_row - 1})]
    since = max(now - FLEET_SECONDS, min([now - FLEET_SECONDS_MIN, *own]))
    (others,) = db.execute(sql.OTHER_DEATHS, {"since": since, "now": now, "run": row.pk}).fetchone()
    (workers,) = db.execute(sql.FLEET_SIZE, {"now": now}).fetchone()
    return in_a_row >= deaths_allowed(row.attempts_max, others, workers)


def _beat(transaction: Transaction) -> float:
    """Record a sign of life. Return since when such signs have come without a gap."""
    since = awake(transaction)
    if since == transaction.now:
        transaction.db.execute(sql.CUT_LEASES, {"now": transaction.now})
    transaction.db.execute(sql.BEAT, (transaction.now, since))
    return since


def awake(transaction: Transaction) -> float:
    """Return since when signs of life have come without a gap of more than half a lease.

    A clock that was set back counts as a gap, too.
    """
    beat, since, lease = transaction.db.execute(sql.PULSE).fetchone()
    return float(since) if 0 <= transaction.now - beat <= lease / 2 else transaction.now


def death(worker: str, until: float | None, now: float, alive: Alive) -> str | None:
    """Return why a worker seems dead, or None. An expired lease is no proof: see `Sweep`."""
    if until is None:
        return "its worker is no longer registered"
    if alive.is_dead(worker):
        return AWAY if alive.has_left(worker) else DIED
    return None if until > now else RAN_OUT


def _line(id: str, parents: dict[str, str | None]) -> list[str]:
    """Return a run and its ancestors, as far as they are in `parents`."""
    line = [id]
    while (parent := parents[line[-1]]) is not None and parent in parents and parent not in line:
        line.append(parent)
    return line
