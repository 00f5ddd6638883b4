"""Each verb on an open transaction. The contracts are in `outlast.store.verbs`."""

from __future__ import annotations

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from outlast.store import verbs
from outlast.store.rows import ENDED, NEVER, RunRow
from outlast.store.sqlite import drains, requests, sessions, undo, workers
from outlast.store.sqlite import statements as sql
from outlast.store.verbs import (
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


class Tally:
    """What a transaction knows and changes of one queue. Written once, at its end."""

    __slots__ = ("concurrency_max", "depth_max", "listed", "more_queued", "more_running", "queued", "running")

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
        """How many more of its runs may be claimed."""
        return (
            math.inf
            if self.concurrency_max is None
            else self.concurrency_max - self.running - self.more_running
        )


class Place(NamedTuple):
    """Where a Prune has stopped: the next one like it goes on from there, and passes what stays once, not in each batch anew."""

    verb: verbs.Prune | None = None
    ended: float = -math.inf
    pk: int = 0

    def of(self, verb: verbs.Prune) -> tuple[float, int]:
        """The end and the number of the last one that it has deleted."""
        found = self if self.verb == verb else Place()
        return found.ended, found.pk


class Transaction:
    """One transaction's view of the store: a connection, the time, and who is alive."""

    def __init__(
        self, db: sqlite3.Connection, now: float, alive: workers.Alive, place: Place | None = None
    ) -> None:
        self.db, self.now, self.alive = db, now, alive
        self.place = place or Place()
        self.buried: list[str] = []
        self.rings = False
        """Something has changed that others may wait for, and that no verb's name tells."""
        self._tallies: dict[str, Tally] = {}

    def apply(self, batch: Sequence[verbs.Verb]) -> list[Any]:
        outcomes: list[Any] = []
        for kind, group in groupby(batch, type):
            if kind is verbs.Record:
                outcomes += self._record(list(group))  # type: ignore[arg-type]
            elif kind is verbs.Submit:
                outcomes += self._submit(list(group))  # type: ignore[arg-type]
            else:
                outcomes += [_APPLY[kind](self, verb) for verb in group]
        for name, tally in self._tallies.items():
            if tally.more_queued or tally.more_running:
                moved = {"name": name, "queued": tally.more_queued, "running": tally.more_running}
                self.db.execute(sql.MOVED, moved)
        return outcomes

    def _tally(self, queue: str) -> Tally:
        tally = self._tallies.get(queue)
        if tally is None:
            row = self.db.execute(sql.QUEUE, (queue,)).fetchone()
            # A file may have anything there: a count that is none is 0, such a limit is none.
            queued, running, *limits = (one if isinstance(one, int) else None for one in row or (None,) * 4)
            tally = self._tallies[queue] = Tally(queued or 0, running or 0, *limits)
            tally.listed = row is not None
        return tally

    def moved(self, queue: str, parent: str | None, before: str | None, after: str | None) -> None:
        """A run went from one status to another (None: it is new, or gone)."""
        if before != after:
            tally = self._tally(queue)
            if not tally.listed:
                self.db.execute(sql.LISTED, (queue,))
                tally.listed = True
            tally.more_queued += (after == "queued") - (before == "queued")
            if parent is None:
                tally.more_running += (after == "running") - (before == "running")
                self.rings = self.rings or (before == "running" and tally.concurrency_max is not None)

    # -- recording

    def _record(self, records: Sequence[verbs.Record]) -> list[Refused | None]:
        """Most batches are entries and nothing else, all of them good: one statement, one count."""
        written = self.db.executemany(
            sql.RECORD, [(*record, record[0], record[2]) for record in records]
        ).rowcount
        if written == len(records):
            return [None] * written
        return [self._recorded(record) for record in records]

    def _recorded(self, record: verbs.Record) -> Refused | None:
        here = self.db.execute(sql.RECORDED, (record.run, record.seq, record.fence)).fetchone()
        return None if here else Refused(FENCE)

    # -- submitting

    def _submit(self, submits: Sequence[verbs.Submit]) -> list[verbs.Submitted | Refused]:
        outcomes: list[verbs.Submitted | Refused] = []
        for owned, group in groupby(submits, lambda verb: verb.worker is not None):
            alike = list(group)
            outcomes += map(self._submit_owned, alike) if owned else self._enqueue(alike)
        return outcomes

    def _submit_owned(self, verb: verbs.Submit) -> verbs.Submitted | Refused:
        draining = self.standing(verb.worker)
        if draining is None:
            return Refused(WORKER, "not enlisted, or swept")
        if draining:
            held = self.row(verb.id)
            again = held is not None and _own(held, verb)
            return verbs.Submitted(held, new=True) if again else Refused(DRAINING)
        values = {**verb._asdict(), "fence": self._next_fences(1), "now": self.now}
        row = self.db.execute(sql.SUBMIT, values).fetchone()
        if row is not None:
            self.moved(verb.queue, verb.parent, None, "running")
            return verbs.Submitted(RunRow(*row), new=True)
        existing = self.row(verb.id)
        assert existing is not None, "a conflicting row exists in the same transaction"
        return verbs.Submitted(existing, new=_own(existing, verb))

    def _enqueue(self, submits: Sequence[verbs.Submit]) -> list[verbs.Submitted | Refused]:
        """Each for itself: joined if it is there, refused if its queue is full, else inserted with the others."""
        there = self._there(submits)
        fresh: list[verbs.Submit] = []
        outcomes: list[verbs.Submitted | Refused] = []
        for verb in submits:
            if verb.id in there:
                if fresh and there[verb.id] is None:  # it came twice
                    self._insert(fresh)
                    fresh = []
                row = there[verb.id] or self.row(verb.id)
                assert row is not None
                outcomes.append(verbs.Submitted(row, new=_untouched(row, verb)))
                continue
            full = self._full(verb, 1)
            if full is None:
                self.moved(verb.queue, verb.parent, None, "queued")
                there[verb.id] = None
                fresh.append(verb)
            outcomes.append(full or verbs.Submitted(None, new=True))
        self._insert(fresh)
        return outcomes

    def _submit_many(self, verb: verbs.SubmitMany) -> list[verbs.Submitted | Refused] | Refused:
        """Everything is checked before anything is written."""
        there = self._there(verb.runs)
        asked: dict[str, tuple[str, str]] = {id: (row.workflow, row.args) for id, row in there.items() if row}
        fresh: dict[str, list[verbs.Submit]] = {}
        for run in verb.runs:
            if asked.setdefault(run.id, (run.workflow, run.args)) != (run.workflow, run.args):
                return Refused(CONFLICT, run.id)
            if run.id not in there:
                fresh.setdefault(run.queue, []).append(run)
        for runs in fresh.values():
            full = self._full(runs[0], len({run.id for run in runs}))
            if full is not None:
                return full
        return self._enqueue([run._replace(depth_max=None) for run in verb.runs])

    def _there(self, submits: Sequence[verbs.Submit]) -> dict[str, RunRow | None]:
        ids = json.dumps([verb.id for verb in submits])
        return {row[1]: RunRow(*row) for row in self.db.execute(sql.RUNS_BY_ID, (ids,))}

    def _full(self, verb: verbs.Submit, count: int) -> Refused | None:
        tally = self._tally(verb.queue)
        limit = tally.depth_max if tally.depth_max is not None else verb.depth_max
        depth = tally.queued + tally.more_queued
        return (
            Refused(DEPTH, f"{depth}/{limit}/{count}")
            if limit is not None and depth + count > limit
            else None
        )

    def _insert(self, fresh: Sequence[verbs.Submit]) -> None:
        self.db.executemany(
            sql.ENQUEUE,
            [
                (v.id, v.workflow, v.args, v.queue, v.priority, v.token, v.seed, v.parent, v.attempts_max,
                 v.interruptions_max, self.now, self.now + v.delay, v.timeout, v.abandon_after, v.delay <= 0)
                for v in fresh
            ],
        )  # fmt: skip

    # -- claiming

    def _claim(self, verb: verbs.Claim) -> list[RunRow] | Refused:
        draining = self.standing(verb.worker)
        if draining is None:
            return Refused(WORKER, "not enlisted, or swept")
        again = self.db.execute(sql.CLAIMED_BY_TOKEN, (verb.worker, verb.token)).fetchall()
        if again:
            return [mended(RunRow(*row)) for row in again]
        if draining:
            return Refused(DRAINING)
        if verb.ids:
            found = self.db.execute(
                sql.CLAIMABLE_BY_ID, (json.dumps(verb.ids), self.now, verb.limit)
            ).fetchall()
        else:
            found = self._claimable(verb)
        if not found:
            return []
        returned = [row[3] for row in found if row[1] < NEVER]
        if returned:
            came_back = {"runs": json.dumps(returned), "by": verb.worker, "now": self.now}
            self.db.execute(sql.RECOVERED, came_back)
        fence = self._next_fences(len(found)) - len(found)
        for number, (_, _, _, pk, queue, status, parent, abandoned_at) in enumerate(found, 1):
            abandoned = abandoned_at is not None and abandoned_at < self.now and undo.abandon(self, pk)
            values = (fence + number, verb.worker, verb.token, self.now, self.now, pk)
            self.db.execute(sql.CLAIM, values)
            self.moved(queue, parent, "queued" if abandoned else status, "running")
        claimed = self.db.execute(sql.CLAIMED_BY_TOKEN, (verb.worker, verb.token))
        return [mended(RunRow(*row)) for row in claimed]

    def _claimable(self, verb: verbs.Claim) -> list[Any]:
        """The first `limit` of what is ready, as the contract orders it: one seek a line of the index."""
        self.db.execute(sql.COME_DUE, (self.now,))
        ready = 2 if verb.suspects else 1
        returned = verb.limit if verb.returned is None else min(verb.returned, verb.limit)
        found: list[Any] = []
        for queue in dict.fromkeys(verb.queues) or [name for (name,) in self.db.execute(sql.QUEUE_NAMES)]:
            room = self._tally(queue).room()
            for workflow in ready_workflows(self.db, queue, ready):
                wanted = workflow in verb.workflows if verb.workflows else workflow != EACH
                if not wanted:
                    continue
                line = (queue, workflow)
                if room > 0:
                    found += self.db.execute(sql.CLAIMABLE[ready, 0], (*line, returned))
                    found += self.db.execute(sql.CLAIMABLE[ready, 1], (*line, verb.limit))
                if room < verb.limit:  # children take no slot of it: their parents do, and may wait for them
                    found += self.db.execute(sql.CLAIMABLE_CHILDREN[0], (*line, ready, returned))
                    found += self.db.execute(sql.CLAIMABLE_CHILDREN[1], (*line, ready, verb.limit))
        chosen: list[Any] = []
        taken: Counter[str] = Counter()
        back = 0
        for row in sorted(set(found)):
            is_back = row[1] < NEVER
            is_full = row[6] is None and taken[row[4]] >= self._tally(row[4]).room()
            if len(chosen) == verb.limit:
                break
            if (is_back and back == returned) or is_full:
                continue
            back += is_back
            taken[row[4]] += row[6] is None
            chosen.append(row)
        return chosen

    def _save(self, verb: verbs.Save) -> Refused | None:
        if self.db.execute(sql.SAVE, {**verb._asdict(), "now": self.now}).rowcount:
            return None
        held = self.db.execute(sql.HAS_FENCE, (verb.run, verb.fence)).fetchone()
        return None if held else Refused(FENCE)

    def _wait(self, verb: verbs.Wait) -> Refused | None:
        return self._fenced(sql.WAIT, (_names(verb.names), verb.run, verb.fence))

    def _settle(self, verb: verbs.Settle) -> Refused | None:
        settled = self.db.execute(sql.SETTLE, {**verb._asdict(), "now": self.now}).fetchone()
        if settled is None:
            held = self.db.execute(sql.RUN_BY_FENCE, (verb.run, verb.fence)).fetchone()
            if held is not None:  # the request to end it kept it from being parked
                return Refused(CANCEL, str(RunRow(*held).cancel))
            again = self.db.execute(sql.SETTLED, (verb.run, -verb.fence)).fetchone()
            return None if again else Refused(FENCE)
        queue, parent = settled
        if verb.status != "parked":
            self.db.execute(sql.FORGET_PROGRESS, (verb.run,))
        self.moved(queue, parent, "running", verb.status)
        if parent is not None:
            self.wake_parent(parent)
        return None

    def _ack(self, verb: verbs.Ack) -> Refused | None:
        if self.db.execute(sql.ACK, (self.now, verb.run, verb.fence)).rowcount:
            self.moved(verb.queue, None, "running", "done")
            return None
        again = self.db.execute(sql.ACKED_BY, (verb.run, -verb.fence)).fetchone()
        return None if again else Refused(FENCE)

    # -- giving back

    def _release(self, verb: verbs.Release) -> str | Refused:
        held = self.db.execute(sql.HELD, (verb.run, verb.fence)).fetchone()
        if held is None:
            again = self.db.execute(sql.GIVEN_BACK, (verb.run, -verb.fence)).fetchone()
            return str(again[0]) if again else Refused(FENCE)
        row, _ = _as_held(held)
        if verb.waiting:
            due = verb.due
            children = list(dict.fromkeys(verb.children))
            lists = {"waits": json.dumps(verb.waits), "children": json.dumps(children)}
            news = {"run": verb.run, "seen": verb.seen, **lists}
            if row.cancel is not None or self.db.execute(sql.NEWS, news).fetchone()[0]:
                due = min(due, self.now)
            after = row._replace(status="waiting", due=due, interrupted=None, waits=_names(verb.waits))
        elif verb.failed:
            after = row._replace(status="queued", due=self.now + verb.delay, failures=row.failures + 1)
            if after.failures >= row.attempts_max:
                after = after._replace(status="dead")
        else:
            after = row._replace(status="queued", due=self.now + verb.delay)
        after = after._replace(reason=verb.reason)
        if verb.interrupted and not verb.waiting and not verb.failed:
            return self.interrupt(row, after, draining=bool(self.standing(row.worker)))
        status = self.give_back(row, after)
        if verb.failed:
            self._append(row.pk, row.fence, "failure", {"why": verb.reason})
        return status

    def interrupt(
        self, row: RunRow, after: RunRow, *, draining: bool, seen: workers.Seen | None = None
    ) -> str:
        """Free, and ahead of new work; but not for ever without getting anywhere.

        Left by a draining worker, its next claim is a recovery of that drain. `seen`: its worker did not give it back itself.
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
        """Write what became of a held run. Its fence is void."""
        if row.workflow == verbs.ITEM and row.cancel is not None:
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
        """All that a worker holds but these fences, neither interrupted nor charged, in one statement: their ids."""
        values = {"worker": worker, "keep": json.dumps(keep), "reason": reason, "now": self.now}
        back = sorted(self.db.execute(sql.GIVE_BACK_ALL_BUT, values).fetchall())
        for _, _, queue, parent, status in back:
            self.moved(queue, parent, "running", status)
            if status in ENDED and parent is not None:
                self.wake_parent(parent)
        return tuple(row[1] for row in back)

    def held_by(self, worker: str) -> list[tuple[RunRow, bool]]:
        """What a worker has, and whether each has got anywhere."""
        return [_as_held(row) for row in self.db.execute(sql.HELD_BY, (worker,)).fetchall()]

    def mark(self, row: RunRow, kind: str, value: dict[str, Any] | str, key: str = "") -> None:
        """Append an entry; what comes after it is progress. A text is JSON already."""
        self.db.execute(sql.MARK, (self._append(row.pk, row.fence, kind, value, key), row.pk))

    def wake_parent(self, parent: str) -> None:
        self.db.execute(sql.WAKE_PARENT, {"parent": parent, "now": self.now})

    def _send(self, verb: verbs.Send) -> Refused | None:
        row = self.row(verb.id)
        if row is None:
            return Refused(UNKNOWN)
        if row.workflow == verbs.ITEM:
            return Refused(STATUS, "item")
        if row.status in ENDED:
            return Refused(STATUS, row.status)
        if verb.messages_max is not None:
            sent, known = self.db.execute(sql.MAILBOX, {**verb._asdict(), "run": row.pk}).fetchone()
            if sent >= verb.messages_max and not known:
                return Refused(DEPTH, str(sent))
        if self.db.execute(sql.SEND, {**verb._asdict(), "run": row.pk, "now": self.now}).rowcount:
            self.db.execute(sql.WAKE, {"run": row.pk, "name": verb.name, "now": self.now})
        return None

    # -- queues, and what is old

    def _limit(self, verb: verbs.Limit) -> None:
        self.db.execute(sql.LIMIT, verb._asdict())
        tally = self._tally(verb.queue)
        tally.listed = True
        if not verb.keep_depth:
            tally.depth_max = verb.depth_max
        if not verb.keep_concurrency:
            tally.concurrency_max = verb.concurrency_max

    def _prune(self, verb: verbs.Prune) -> int:
        if verb.sessions:
            return sessions.prune(self, verb)
        which = sql.PRUNABLE_BY_ID if verb.ids else sql.ACKED if verb.items else sql.PRUNABLE
        dead = bool(verb.dead or verb.ids)
        ended, pk = self.place.of(verb)
        values = {
            "before": verb.before, "limit": verb.limit, "ids": json.dumps(verb.ids), "dead": dead, "last_ended": ended, "last_pk": pk,
        }  # fmt: skip
        runs = self.db.execute(which, values).fetchall()
        for statement in sql.PRUNE:
            self.db.executemany(statement, [(pk,) for _, pk in runs])
        self.place = Place(verb, *runs[-1]) if runs and len(runs) == verb.limit else Place()
        return len(runs)

    def standing(self, worker: str | None) -> int | None:
        """0 for a worker, 1 for one that drains, None for one that is not enlisted."""
        row = self.db.execute(sql.STANDING, (worker,)).fetchone()
        return int(row[0]) if row else None

    def _next_fences(self, count: int) -> int:
        """The last of so many new ones."""
        return int(self.db.execute(sql.NEXT_FENCE, (count,)).fetchone()[0])

    def row(self, id: str) -> RunRow | None:
        row = self.db.execute(sql.RUN_BY_ID, (id,)).fetchone()
        return mended(RunRow(*row)) if row else None

    def row_at(self, pk: int) -> RunRow:
        """Of a run that is there."""
        return mended(RunRow(*self.db.execute(sql.RUN_BY_PK, (pk,)).fetchone()))

    def _fenced(self, statement: str, values: Any) -> Refused | None:
        return None if self.db.execute(statement, values).rowcount else Refused(FENCE)

    def _append(self, run: int, fence: int, kind: str, value: dict[str, Any] | str, key: str = "") -> int:
        """An entry by the store itself, in a verb that has just made the fence void. Its seq.

        It is under the void fence: the life that lost the run may still record this seq, and under its own fence the entry
        would pass for that record's repeat.
        """
        text = value if isinstance(value, str) else json.dumps(value)
        values = {"run": run, "fence": -abs(fence), "kind": kind, "key": key, "now": self.now, "value": text}
        return int(self.db.execute(sql.APPEND, values).fetchone()[0])


def ready_workflows(db: sqlite3.Connection, queue: str, ready: int) -> list[str]:
    """Which workflows have ready runs in a queue: one seek for each, however many runs there are."""
    names: list[str] = []
    if db.execute(sql.READY_ITEM[ready], (queue,)).fetchone():
        names.append(verbs.ITEM)
    name = ""
    while found := db.execute(sql.NEXT_WORKFLOW[ready], (queue, name)).fetchone():
        name = found[0]
        names.append(name)
    return names


def _as_held(found: Sequence[Any]) -> tuple[RunRow, bool]:
    """A run that somebody has, and whether it has got anywhere since it was last taken away: then no row goes on."""
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
    """With what stands for a number where a file has something else: who has such a run must be able to go on with it, and to lose it."""
    if _KINDS.issuperset(map(type, _numbers_of(row))):
        return row
    return row._replace(
        **{name: new for name, new in _NUMBERS.items() if type(getattr(row, name)) not in _KINDS}
    )


def _own(row: RunRow, verb: verbs.Submit) -> bool:
    """Its worker has it by this submission."""
    return row.token == verb.token and row.worker == verb.worker


def _untouched(row: RunRow, verb: verbs.Submit) -> bool:
    """It is as this submission left it."""
    return row.token == verb.token and row.status == "queued" and row.lives == 0


def _names(names: Sequence[str]) -> str:
    """A line break before, between and after: a name is found with its two, and no other text is."""
    return "\n".join(("", *names, "")) if names else ""


_APPLY: dict[type, Callable[[Transaction, Any], Any]] = {
    verbs.SubmitMany: Transaction._submit_many,
    verbs.Claim: Transaction._claim,
    verbs.Save: Transaction._save,
    verbs.Wait: Transaction._wait,
    verbs.Settle: Transaction._settle,
    verbs.Release: Transaction._release,
    verbs.Ack: Transaction._ack,
    verbs.Send: Transaction._send,
    verbs.Undo: undo.undo,
    verbs.UndoChild: undo.undo_child,
    verbs.Cancel: requests.cancel,
    verbs.Retry: requests.retry,
    verbs.Resume: requests.resume,
    verbs.Decide: requests.decide,
    verbs.Enlist: workers.enlist,
    verbs.Renew: workers.renew,
    verbs.Leave: workers.leave,
    verbs.Sweep: workers.sweep,
    verbs.Drain: drains.drain,
    verbs.AskDrain: drains.ask_drain,
    verbs.Report: drains.report,
    verbs.Measured: drains.measured,
    verbs.Limit: Transaction._limit,
    verbs.Prune: Transaction._prune,
    verbs.Keep: sessions.keep,
    verbs.Touch: sessions.touch,
    verbs.Forget: sessions.forget,
}
