"""Apply commands on an open transaction. Their contracts are in `outlast.store.commands`."""

from __future__ import annotations

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from outlast.store import commands
from outlast.store.commands import (
    CANCEL,
    CONFLICT,
    DEPTH,
    DRAINING,
    EACH,
    FENCE,
    STATUS,
    UNKNOWN,
    WORKER,
    Refused,
)
from outlast.store.rows import ENDED, NEVER, RunRow
from outlast.store.sqlite import drains, requests, sessions, undo, workers
from outlast.store.sqlite import statements as sql


class QueueCounts:
    """The counts and limits of one queue in a transaction, which writes them once, at its end."""

    __slots__ = (
        "concurrency_max",
        "depth_max",
        "listed",
        "more_queued",
        "more_running",
        "queued",
        "running",
    )

    def __init__(
        self,
        queued: int = 0,
        running: int = 0,
        depth_max: int | None = None,
        concurrency_max: int | None = None,
    ) -> None:
        self.queued, self.running, self.depth_max, self.concurrency_max = (
            queued,
            running,
            depth_max,
            concurrency_max,
        )
        self.more_queued = self.more_running = 0
        self.listed = True

    def room(self) -> float:
        """Return how many more of the queue's runs may be claimed."""
        return (
            math.inf
            if self.concurrency_max is None
            else self.concurrency_max - self.running - self.more_running
        )


class PruneCursor(NamedTuple):
    """Where a Prune has stopped.

    The next Prune with the same parameters continues there, so it skips what stays only once and
    not in each batch.
    """

    command: commands.Prune | None = None
    ended: float = -math.inf
    pk: int = 0

    def of(self, command: commands.Prune) -> tuple[float, int]:
        """Return the end time and pk of the last run that this command has deleted."""
        found = self if self.command == command else PruneCursor()
        return found.ended, found.pk


class Transaction:
    """One transaction on the store: a connection, the time, and which workers are alive."""

    def __init__(
        self,
        db: sqlite3.Connection,
        now: float,
        alive: workers.Alive,
        place: PruneCursor | None = None,
    ) -> None:
        self.db, self.now, self.alive = db, now, alive
        self.place = place or PruneCursor()
        self.buried: list[str] = []
        self.rings = False
        """Whether something changed that others may wait for, and that no command's type shows."""
        self._counts_by_queue: dict[str, QueueCounts] = {}

    def apply(self, batch: Sequence[commands.Command]) -> list[Any]:
        outcomes: list[Any] = []
        for kind, group in groupby(batch, type):
            if kind is commands.Record:
                outcomes += self._record(list(group))  # type: ignore[arg-type]
            elif kind is commands.Submit:
                outcomes += self._submit(list(group))  # type: ignore[arg-type]
            else:
                outcomes += [_APPLY[kind](self, command) for command in group]
        for name, counts in self._counts_by_queue.items():
            if counts.more_queued or counts.more_running:
                moved = {"name": name, "queued": counts.more_queued, "running": counts.more_running}
                self.db.execute(sql.MOVED, moved)
        return outcomes

    def _queue_counts(self, queue: str) -> QueueCounts:
        counts = self._counts_by_queue.get(queue)
        if counts is None:
            row = self.db.execute(sql.QUEUE, (queue,)).fetchone()
            # A damaged file may have anything there. Take such a count as 0 and such a limit as
            # none.
            queued, running, *limits = (
                one if isinstance(one, int) else None for one in row or (None,) * 4
            )
            counts = self._counts_by_queue[queue] = QueueCounts(queued or 0, running or 0, *limits)
            counts.listed = row is not None
        return counts

    def moved(self, queue: str, parent: str | None, before: str | None, after: str | None) -> None:
        """Count a run's change of status (None: it is new, or gone)."""
        if before != after:
            counts = self._queue_counts(queue)
            if not counts.listed:
                self.db.execute(sql.LISTED, (queue,))
                counts.listed = True
            counts.more_queued += (after == "queued") - (before == "queued")
            if parent is None:
                counts.more_running += (after == "running") - (before == "running")
                self.rings = self.rings or (
                    before == "running" and counts.concurrency_max is not None
                )

    # -- recording

    def _record(self, records: Sequence[commands.Record]) -> list[Refused | None]:
        """Write entries with one statement and one count.

        Only if some were not written is each one checked: it is a repeat, or it is refused.
        """
        written = self.db.executemany(
            sql.RECORD, [(*record, record[0], record[2]) for record in records]
        ).rowcount
        if written == len(records):
            return [None] * written
        return [self._recorded(record) for record in records]

    def _recorded(self, record: commands.Record) -> Refused | None:
        here = self.db.execute(sql.RECORDED, (record.run, record.seq, record.fence)).fetchone()
        return None if here else Refused(FENCE)

    # -- submitting

    def _submit(self, submits: Sequence[commands.Submit]) -> list[commands.Submitted | Refused]:
        outcomes: list[commands.Submitted | Refused] = []
        for owned, group in groupby(submits, lambda command: command.worker is not None):
            alike = list(group)
            outcomes += map(self._submit_owned, alike) if owned else self._enqueue(alike)
        return outcomes

    def _submit_owned(self, command: commands.Submit) -> commands.Submitted | Refused:
        draining = self.standing(command.worker)
        if draining is None:
            return Refused(WORKER, "not enlisted, or swept")
        if draining:
            held = self.row(command.id)
            again = held is not None and _own(held, command)
            return commands.Submitted(held, new=True) if again else Refused(DRAINING)
        values = {**command._asdict(), "fence": self._next_fences(1), "now": self.now}
        row = self.db.execute(sql.SUBMIT, values).fetchone()
        if row is not None:
            self.moved(command.queue, command.parent, None, "running")
            return commands.Submitted(RunRow(*row), new=True)
        existing = self.row(command.id)
        assert existing is not None, "a conflicting row exists in the same transaction"
        return commands.Submitted(existing, new=_own(existing, command))

    def _enqueue(self, submits: Sequence[commands.Submit]) -> list[commands.Submitted | Refused]:
        """Queue runs independently of each other.

        A run that exists is joined, one whose queue is full is refused, and the others are inserted
        together.
        """
        there = self._there(submits)
        fresh: list[commands.Submit] = []
        outcomes: list[commands.Submitted | Refused] = []
        for command in submits:
            if command.id in there:
                # The id occurs twice in this batch, so insert the first one now.
                if fresh and there[command.id] is None:
                    self._insert(fresh)
                    fresh = []
                row = there[command.id] or self.row(command.id)
                assert row is not None
                outcomes.append(commands.Submitted(row, new=_untouched(row, command)))
                continue
            full = self._full(command, 1)
            if full is None:
                self.moved(command.queue, command.parent, None, "queued")
                there[command.id] = None
                fresh.append(command)
            outcomes.append(full or commands.Submitted(None, new=True))
        self._insert(fresh)
        return outcomes

    def _submit_many(
        self, command: commands.SubmitMany
    ) -> list[commands.Submitted | Refused] | Refused:
        """Queue several runs, all or none: check everything before writing anything."""
        there = self._there(command.runs)
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
            full = self._full(runs[0], len({run.id for run in runs}))
            if full is not None:
                return full
        return self._enqueue([run._replace(depth_max=None) for run in command.runs])

    def _there(self, submits: Sequence[commands.Submit]) -> dict[str, RunRow | None]:
        ids = json.dumps([command.id for command in submits])
        return {row[1]: RunRow(*row) for row in self.db.execute(sql.RUNS_BY_ID, (ids,))}

    def _full(self, command: commands.Submit, count: int) -> Refused | None:
        counts = self._queue_counts(command.queue)
        limit = counts.depth_max if counts.depth_max is not None else command.depth_max
        depth = counts.queued + counts.more_queued
        return (
            Refused(DEPTH, f"{depth}/{limit}/{count}")
            if limit is not None and depth + count > limit
            else None
        )

    def _insert(self, fresh: Sequence[commands.Submit]) -> None:
        self.db.executemany(
            sql.ENQUEUE,
            [
                (v.id, v.workflow, v.args, v.queue, v.priority, v.token, v.seed, v.parent, v.attempts_max,
                 v.interruptions_max, self.now, self.now + v.delay, v.timeout, v.abandon_after, v.delay <= 0)
                for v in fresh
            ],
        )  # fmt: skip

    # -- claiming

    def _claim(self, command: commands.Claim) -> list[RunRow] | Refused:
        draining = self.standing(command.worker)
        if draining is None:
            return Refused(WORKER, "not enlisted, or swept")
        again = self.db.execute(sql.CLAIMED_BY_TOKEN, (command.worker, command.token)).fetchall()
        if again:
            return [mended(RunRow(*row)) for row in again]
        if draining:
            return Refused(DRAINING)
        if command.ids:
            found = self.db.execute(
                sql.CLAIMABLE_BY_ID, (json.dumps(command.ids), self.now, command.limit)
            ).fetchall()
        else:
            found = self._claimable(command)
        if not found:
            return []
        returned = [row[3] for row in found if row[1] < NEVER]
        if returned:
            came_back = {"runs": json.dumps(returned), "by": command.worker, "now": self.now}
            self.db.execute(sql.RECOVERED, came_back)
        fence = self._next_fences(len(found)) - len(found)
        for number, (_, _, _, pk, queue, status, parent, abandoned_at) in enumerate(found, 1):
            abandoned = (
                abandoned_at is not None and abandoned_at < self.now and undo.abandon(self, pk)
            )
            values = (fence + number, command.worker, command.token, self.now, self.now, pk)
            self.db.execute(sql.CLAIM, values)
            self.moved(queue, parent, "queued" if abandoned else status, "running")
        claimed = self.db.execute(sql.CLAIMED_BY_TOKEN, (command.worker, command.token))
        return [mended(RunRow(*row)) for row in claimed]

    def _claimable(self, command: commands.Claim) -> list[Any]:
        """Return the first `limit` ready runs in the contract's order.

        It seeks in the index once per queue, workflow, and interrupted or new.
        """
        self.db.execute(sql.COME_DUE, (self.now,))
        ready = 2 if command.suspects else 1
        returned = (
            command.limit if command.returned is None else min(command.returned, command.limit)
        )
        found: list[Any] = []
        for queue in dict.fromkeys(command.queues) or [
            name for (name,) in self.db.execute(sql.QUEUE_NAMES)
        ]:
            room = self._queue_counts(queue).room()
            for workflow in ready_workflows(self.db, queue, ready):
                wanted = workflow in command.workflows if command.workflows else workflow != EACH
                if not wanted:
                    continue
                line = (queue, workflow)
                if room > 0:
                    found += self.db.execute(sql.CLAIMABLE[ready, 0], (*line, returned))
                    found += self.db.execute(sql.CLAIMABLE[ready, 1], (*line, command.limit))
                # Children take no slot of the queue: their parents do, and may wait for them.
                if room < command.limit:
                    found += self.db.execute(sql.CLAIMABLE_CHILDREN[0], (*line, ready, returned))
                    found += self.db.execute(
                        sql.CLAIMABLE_CHILDREN[1], (*line, ready, command.limit)
                    )
        chosen: list[Any] = []
        taken: Counter[str] = Counter()
        back = 0
        for row in sorted(set(found)):
            is_back = row[1] < NEVER
            is_full = row[6] is None and taken[row[4]] >= self._queue_counts(row[4]).room()
            if len(chosen) == command.limit:
                break
            if (is_back and back == returned) or is_full:
                continue
            back += is_back
            taken[row[4]] += row[6] is None
            chosen.append(row)
        return chosen

    def _save(self, command: commands.SaveProgress) -> Refused | None:
        if self.db.execute(sql.SAVE, {**command._asdict(), "now": self.now}).rowcount:
            return None
        held = self.db.execute(sql.HAS_FENCE, (command.run, command.fence)).fetchone()
        return None if held else Refused(FENCE)

    def _wait(self, command: commands.SetWaiting) -> Refused | None:
        return self._fenced(sql.WAIT, (_names(command.names), command.run, command.fence))

    def _settle(self, command: commands.Settle) -> Refused | None:
        settled = self.db.execute(sql.SETTLE, {**command._asdict(), "now": self.now}).fetchone()
        if settled is None:
            held = self.db.execute(sql.RUN_BY_FENCE, (command.run, command.fence)).fetchone()
            # A request to cancel kept the run from being parked.
            if held is not None:
                return Refused(CANCEL, str(RunRow(*held).cancel))
            again = self.db.execute(sql.SETTLED, (command.run, -command.fence)).fetchone()
            return None if again else Refused(FENCE)
        queue, parent = settled
        if command.status != "parked":
            self.db.execute(sql.FORGET_PROGRESS, (command.run,))
        self.moved(queue, parent, "running", command.status)
        if parent is not None:
            self.wake_parent(parent)
        return None

    def _ack(self, command: commands.Ack) -> Refused | None:
        if self.db.execute(sql.ACK, (self.now, command.run, command.fence)).rowcount:
            self.moved(command.queue, None, "running", "done")
            return None
        again = self.db.execute(sql.ACKED_BY, (command.run, -command.fence)).fetchone()
        return None if again else Refused(FENCE)

    # -- releasing

    def _release(self, command: commands.Release) -> str | Refused:
        held = self.db.execute(sql.HELD, (command.run, command.fence)).fetchone()
        if held is None:
            again = self.db.execute(sql.GIVEN_BACK, (command.run, -command.fence)).fetchone()
            return str(again[0]) if again else Refused(FENCE)
        row, _ = _as_held(held)
        if command.waiting:
            due = command.due
            children = list(dict.fromkeys(command.children))
            lists = {"waits": json.dumps(command.waits), "children": json.dumps(children)}
            news = {"run": command.run, "seen": command.seen, **lists}
            if row.cancel is not None or self.db.execute(sql.NEWS, news).fetchone()[0]:
                due = min(due, self.now)
            after = row._replace(
                status="waiting", due=due, interrupted=None, waits=_names(command.waits)
            )
        elif command.failed:
            after = row._replace(
                status="queued", due=self.now + command.delay, failures=row.failures + 1
            )
            if after.failures >= row.attempts_max:
                after = after._replace(status="dead")
        else:
            after = row._replace(status="queued", due=self.now + command.delay)
        after = after._replace(reason=command.reason)
        if command.interrupted and not command.waiting and not command.failed:
            return self.interrupt(row, after, draining=bool(self.standing(row.worker)))
        status = self.give_back(row, after)
        if command.failed:
            self._append(row.pk, row.fence, "failure", {"why": command.reason})
        return status

    def interrupt(
        self, row: RunRow, after: RunRow, *, draining: bool, seen: workers.Seen | None = None
    ) -> str:
        """Release an interrupted run ahead of new work, or make it a dead letter after too many.

        If a draining worker left the run, its next claim is a recovery of that drain. `seen` is
        given if the worker did not release the run itself.
        """
        in_a_row = row.interruptions_in_a_row + 1
        after = after._replace(
            interrupted=self.now if row.interrupted is None else row.interrupted,
            interruptions=row.interruptions + 1,
            interruptions_in_a_row=in_a_row,
        )
        if in_a_row >= row.interruptions_max:
            times = "once" if in_a_row == 1 else f"{in_a_row} times in a row"
            why = f"interrupted {times} without recording anything; the last time: {after.reason}"
            after = after._replace(status="dead", reason=why)
        status = self.give_back(row, after)
        self.mark(row, "interruption", {"why": after.reason} | (seen._asdict() if seen else {}))
        if draining and status == "queued":
            self.db.execute(sql.LEFT, (row.worker, seen.seen if seen else self.now, row.pk))
        return status

    def give_back(self, row: RunRow, after: RunRow) -> str:
        """Write the new state of a held run, void its fence, and return its status."""
        if row.workflow == commands.ITEM and row.cancel is not None:
            after = after._replace(status="cancelled", reason=row.cancel)
        claimable = after.status in ("queued", "waiting") and after.due <= self.now
        ready = (2 if after.is_suspect else 1) if claimable else 0
        values = {**after._asdict(), "run": row.pk, "ready": ready, "now": self.now}
        self.db.execute(sql.GIVE_BACK, values)
        self.moved(row.queue, row.parent, "running", after.status)
        if after.status in ENDED and row.parent is not None:
            self.wake_parent(row.parent)
        return after.status

    def give_back_all_but(self, worker: str, keep: Sequence[int], reason: str) -> tuple[str, ...]:
        """Release everything a worker holds except these fences, in one statement. Return the ids.

        The runs are neither interrupted nor charged.
        """
        values = {"worker": worker, "keep": json.dumps(keep), "reason": reason, "now": self.now}
        back = sorted(self.db.execute(sql.GIVE_BACK_ALL_BUT, values).fetchall())
        for _, _, queue, parent, status in back:
            self.moved(queue, parent, "running", status)
            if status in ENDED and parent is not None:
                self.wake_parent(parent)
        return tuple(row[1] for row in back)

    def held_by(self, worker: str) -> list[tuple[RunRow, bool]]:
        """Return the runs a worker holds, each with whether it has made progress."""
        return [_as_held(row) for row in self.db.execute(sql.HELD_BY, (worker,)).fetchall()]

    def mark(self, row: RunRow, kind: str, value: dict[str, Any] | str, key: str = "") -> None:
        """Append an entry. Any later entry counts as progress.

        A value that is a string is already JSON.
        """
        self.db.execute(sql.MARK, (self._append(row.pk, row.fence, kind, value, key), row.pk))

    def wake_parent(self, parent: str) -> None:
        self.db.execute(sql.WAKE_PARENT, {"parent": parent, "now": self.now})

    def _send(self, command: commands.Send) -> Refused | None:
        row = self.row(command.id)
        if row is None:
            return Refused(UNKNOWN)
        if row.workflow == commands.ITEM:
            return Refused(STATUS, "item")
        if row.status in ENDED:
            return Refused(STATUS, row.status)
        if command.messages_max is not None:
            sent, known = self.db.execute(
                sql.MAILBOX, {**command._asdict(), "run": row.pk}
            ).fetchone()
            if sent >= command.messages_max and not known:
                return Refused(DEPTH, str(sent))
        if self.db.execute(
            sql.SEND, {**command._asdict(), "run": row.pk, "now": self.now}
        ).rowcount:
            self.db.execute(sql.WAKE, {"run": row.pk, "name": command.name, "now": self.now})
        return None

    # -- queues, and what is old

    def _limit(self, command: commands.SetQueueLimits) -> None:
        self.db.execute(sql.LIMIT, command._asdict())
        counts = self._queue_counts(command.queue)
        counts.listed = True
        if not command.keep_depth:
            counts.depth_max = command.depth_max
        if not command.keep_concurrency:
            counts.concurrency_max = command.concurrency_max

    def _prune(self, command: commands.Prune) -> int:
        if command.sessions:
            return sessions.prune(self, command)
        which = sql.PRUNABLE_BY_ID if command.ids else sql.ACKED if command.items else sql.PRUNABLE
        dead = bool(command.dead or command.ids)
        ended, pk = self.place.of(command)
        values = {
            "before": command.before, "limit": command.limit, "ids": json.dumps(command.ids), "dead": dead, "last_ended": ended, "last_pk": pk,
        }  # fmt: skip
        runs = self.db.execute(which, values).fetchall()
        for statement in sql.PRUNE:
            self.db.executemany(statement, [(pk,) for _, pk in runs])
        self.place = (
            PruneCursor(command, *runs[-1])
            if runs and len(runs) == command.limit
            else PruneCursor()
        )
        return len(runs)

    def standing(self, worker: str | None) -> int | None:
        """Return 0 for a registered worker, 1 for a draining one, and None for any other."""
        row = self.db.execute(sql.STANDING, (worker,)).fetchone()
        return int(row[0]) if row else None

    def _next_fences(self, count: int) -> int:
        """Reserve `count` new fences and return the last."""
        return int(self.db.execute(sql.NEXT_FENCE, (count,)).fetchone()[0])

    def row(self, id: str) -> RunRow | None:
        row = self.db.execute(sql.RUN_BY_ID, (id,)).fetchone()
        return mended(RunRow(*row)) if row else None

    def row_at(self, pk: int) -> RunRow:
        """Return the row of a run that exists."""
        return mended(RunRow(*self.db.execute(sql.RUN_BY_PK, (pk,)).fetchone()))

    def _fenced(self, statement: str, values: Any) -> Refused | None:
        return None if self.db.execute(statement, values).rowcount else Refused(FENCE)

    def _append(
        self, run: int, fence: int, kind: str, value: dict[str, Any] | str, key: str = ""
    ) -> int:
        """Append an entry by the store itself after a command has voided the fence. Return its seq.

        The entry has the void fence. The execution that lost the run may still record this seq, and
        an entry under its own fence would pass for a repeat of that record.
        """
        text = value if isinstance(value, str) else json.dumps(value)
        values = {
            "run": run,
            "fence": -abs(fence),
            "kind": kind,
            "key": key,
            "now": self.now,
            "value": text,
        }
        return int(self.db.execute(sql.APPEND, values).fetchone()[0])


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


def _as_held(found: Sequence[Any]) -> tuple[RunRow, bool]:
    """Return a held run, and whether it has made progress since its last death or interruption.

    Progress resets its counts of consecutive deaths and interruptions.
    """
    row, progress = mended(RunRow(*found[:-1])), bool(found[-1])
    return row._replace(deaths_in_a_row=0, interruptions_in_a_row=0) if progress else row, progress


_NUMBERS: dict[str, Any] = {
    "fence": 0, "priority": 0, "created": 0.0, "started": None, "due": 0.0, "timeout": None, "deadline": None, "interrupted": None, "deaths": 0,
    "interruptions": 0, "lives": 0, "mark": 0, "deaths_in_a_row": 0, "interruptions_in_a_row": 0, "failures": 0, "attempts_max": 0,
    "interruptions_max": 0, "abandon_after": None, "ended": None, "failed_at": None, "ready": 0,
}  # fmt: skip


_numbers_of = attrgetter(*_NUMBERS)
_KINDS = {int, float, type(None)}


def mended(row: RunRow) -> RunRow:
    """Replace what is not a number in a numeric column of a damaged row.

    A worker that holds such a run must be able to continue it, and to lose it.
    """
    if _KINDS.issuperset(map(type, _numbers_of(row))):
        return row
    return row._replace(
        **{name: new for name, new in _NUMBERS.items() if type(getattr(row, name)) not in _KINDS}
    )


def _own(row: RunRow, command: commands.Submit) -> bool:
    """Return whether the worker holds the run by this submission."""
    return row.token == command.token and row.worker == command.worker


def _untouched(row: RunRow, command: commands.Submit) -> bool:
    """Return whether the run is as this submission left it."""
    return row.token == command.token and row.status == "queued" and row.lives == 0


def _names(names: Sequence[str]) -> str:
    """Join names with a line break before, between and after them.

    So a search for a name with both line breaks finds nothing else.
    """
    return "\n".join(("", *names, "")) if names else ""


_APPLY: dict[type, Callable[[Transaction, Any], Any]] = {
    commands.SubmitMany: Transaction._submit_many,
    commands.Claim: Transaction._claim,
    commands.SaveProgress: Transaction._save,
    commands.SetWaiting: Transaction._wait,
    commands.Settle: Transaction._settle,
    commands.Release: Transaction._release,
    commands.Ack: Transaction._ack,
    commands.Send: Transaction._send,
    commands.Undo: undo.undo,
    commands.UndoChild: undo.undo_child,
    commands.Cancel: requests.cancel,
    commands.Retry: requests.retry,
    commands.Resume: requests.resume,
    commands.Decide: requests.decide,
    commands.RegisterWorker: workers.enlist,
    commands.Renew: workers.renew,
    commands.DeregisterWorker: workers.leave,
    commands.Sweep: workers.sweep,
    commands.Drain: drains.drain,
    commands.RequestDrain: drains.ask_drain,
    commands.StoreDrainReport: drains.report,
    commands.RecordDurations: drains.measured,
    commands.SetQueueLimits: Transaction._limit,
    commands.Prune: Transaction._prune,
    commands.UpdateSession: sessions.keep,
    commands.ExtendSession: sessions.touch,
    commands.DeleteSession: sessions.forget,
}
