"""Each verb on an open transaction. The contracts are in `outlast.store.verbs`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from outlast.store import verbs
from outlast.store.rows import ENDED, NEVER, RunRow
from outlast.store.sqlite import statements as sql
from outlast.store.verbs import FENCE, STATUS, UNKNOWN, VERSION, WORKER, Refused


class Alive(Protocol):
    def is_dead(self, worker: str) -> bool: ...


class Transaction:
    """One transaction's view of the store: a connection, the time, and who is alive."""

    def __init__(self, db: sqlite3.Connection, now: float, alive: Alive) -> None:
        self.db, self.now, self.alive = db, now, alive
        self.buried: list[str] = []

    def apply(self, batch: Sequence[verbs.Verb]) -> list[Any]:
        outcomes: list[Any] = []
        position = 0
        while position < len(batch):
            verb = batch[position]
            if type(verb) is verbs.Record:
                end = position + 1
                while end < len(batch) and type(batch[end]) is verbs.Record:
                    end += 1
                outcomes += self._record(batch[position:end])  # type: ignore[arg-type]
                position = end
            else:
                outcomes.append(_APPLY[type(verb)](self, verb))
                position += 1
        return outcomes

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

    def _submit(self, verb: verbs.Submit) -> verbs.Submitted | Refused:
        owned = verb.worker is not None
        if owned and not self._enlisted(verb.worker):
            return Refused(WORKER, "not enlisted, or swept")
        row = self.db.execute(
            sql.SUBMIT,
            {
                **verb._asdict(),
                "status": "running" if owned else "queued",
                "fence": self._next_fence() if owned else 0,
                "now": self.now,
                "started": self.now if owned else None,
                "due": self.now + verb.delay,
                "deadline": self.now + verb.timeout if owned and verb.timeout is not None else None,
            },
        ).fetchone()
        if row is not None:
            return verbs.Submitted(RunRow(*row), new=True)
        existing = self._row(verb.id)
        assert existing is not None, "a conflicting row exists in the same transaction"
        mine = existing.token == verb.token and existing.worker == verb.worker
        return verbs.Submitted(existing, new=mine)

    def _claim(self, verb: verbs.Claim) -> list[RunRow] | Refused:
        if not self._enlisted(verb.worker):
            return Refused(WORKER, "not enlisted, or swept")
        again = self.db.execute(sql.CLAIMED_BY_TOKEN, (verb.worker, verb.token)).fetchall()
        if again:
            return [RunRow(*row) for row in again]
        if verb.ids:
            found = self.db.execute(sql.CLAIMABLE_BY_ID, {"ids": json.dumps(verb.ids), "limit": verb.limit})
        else:
            found = self.db.execute(
                sql.CLAIMABLE_BY_QUEUE,
                {
                    "now": self.now,
                    "queues": json.dumps(verb.queues) if verb.queues else None,
                    "workflows": json.dumps(verb.workflows) if verb.workflows else None,
                    "limit": verb.limit,
                },
            )
        claim = {"worker": verb.worker, "token": verb.token, "now": self.now}
        return [
            RunRow(*self.db.execute(sql.CLAIM, {**claim, "pk": pk, "fence": self._next_fence()}).fetchone())
            for (pk,) in found.fetchall()
        ]

    def _wait(self, verb: verbs.Wait) -> Refused | None:
        names = "".join(f"\n{name}\n" for name in verb.names)
        return self._fenced(sql.WAIT, (names, verb.run, verb.fence))

    def _settle(self, verb: verbs.Settle) -> Refused | None:
        refused = self._fenced(sql.SETTLE, {**verb._asdict(), "now": self.now})
        if refused and self.db.execute(sql.SETTLED, (verb.run, -verb.fence)).fetchone():
            return None
        return refused

    def _release(self, verb: verbs.Release) -> Refused | None:
        due = NEVER if verb.waiting and verb.delay >= NEVER else self.now + verb.delay
        refused = self._fenced(sql.RELEASE, {**verb._asdict(), "now": self.now, "due": due})
        if not refused and verb.interrupted:
            self._append(verb.run, verb.fence, "interruption", {"why": verb.reason})
        if refused and self.db.execute(sql.RELEASED, (verb.run, -verb.fence)).fetchone():
            return None
        return refused

    def _send(self, verb: verbs.Send) -> Refused | None:
        row = self._row(verb.id)
        if row is None:
            return Refused(UNKNOWN)
        if row.status in ENDED:
            return Refused(STATUS, row.status)
        self.db.execute(sql.SEND, {**verb._asdict(), "run": row.pk, "now": self.now})
        self.db.execute(sql.WAKE, {"run": row.pk, "now": self.now})
        return None

    def _cancel(self, verb: verbs.Cancel) -> str | Refused:
        row = self._row(verb.id)
        if row is None:
            return Refused(UNKNOWN)
        if row.status in ENDED:
            return Refused(STATUS, row.status)
        values = {"run": row.pk, "why": verb.why, "now": self.now}
        if row.started is None or row.status == "parked":
            self.db.execute(sql.CANCEL_AT_ONCE, values)
            return "cancelled"
        self.db.execute(sql.CANCEL, values)
        return row.status

    def _retry(self, verb: verbs.Retry) -> Refused | None:
        return self._requeue(verb, ("failed", "cancelled", "dead"), "retry")

    def _resume(self, verb: verbs.Resume) -> Refused | None:
        return self._requeue(verb, ("parked",), "resume")

    def _requeue(
        self, verb: verbs.Retry | verbs.Resume, allowed: tuple[str, ...], kind: str
    ) -> Refused | None:
        row = self._row(verb.id)
        if row is None:
            return Refused(UNKNOWN)
        if self.db.execute(sql.REQUEUED, (row.pk, kind, verb.token)).fetchone():
            return None
        if row.status not in allowed:
            return Refused(STATUS, row.status)
        self.db.execute(
            sql.REQUEUE, {"run": row.pk, "now": self.now, "again": kind == "retry", "token": verb.token}
        )
        self._append(row.pk, row.fence, kind, {"from": row.failed_at, "was": row.status, "token": verb.token})
        return None

    def _enlist(self, verb: verbs.Enlist) -> None:
        self.db.execute(sql.ENLIST, {**verb._asdict(), "now": self.now})

    def _renew(self, verb: verbs.Renew) -> Refused | None:
        values = (self.now, verb.lease, verb.draining, verb.worker)
        return None if self.db.execute(sql.RENEW, values).rowcount else Refused(WORKER, "swept")

    def _leave(self, verb: verbs.Leave) -> None:
        for pk, _, fence in self.db.execute(sql.HELD_BY, (verb.worker,)).fetchall():
            self._release(verbs.Release(pk, fence, "its worker left"))
        self.db.execute(sql.LEAVE, (verb.worker,))

    def _sweep(self, _: verbs.Sweep) -> list[str]:
        swept: list[str] = []
        for worker, lease_until in self.db.execute(sql.HOLDERS).fetchall():
            why = death(worker, lease_until, self.now, self.alive)
            if why is None:
                continue
            for pk, id, fence in self.db.execute(sql.HELD_BY, (worker,)).fetchall():
                self.db.execute(sql.DIED, {"run": pk, "now": self.now})
                self._append(pk, fence, "death", {"worker": worker, "why": why})
                swept.append(id)
            self.db.execute(sql.LEAVE, (worker,))
            self.buried.append(worker)
        return swept

    def _prune(self, verb: verbs.Prune) -> int:
        runs = self.db.execute(sql.PRUNABLE, (verb.before, verb.limit)).fetchall()
        for statement in sql.PRUNE:
            self.db.executemany(statement, runs)
        return len(runs)

    def _keep(self, verb: verbs.Keep) -> int | Refused:
        found = self.db.execute(sql.SESSION, (verb.session, self.now)).fetchone()
        version: int = found[0] if found else 0
        if found and found[3] == verb.token:
            return version
        if verb.version is not None and verb.version != version:
            return Refused(VERSION, str(version))
        if not found:  # it may be there and expired
            self.db.execute(sql.SESSION_FORGET[0], (verb.session,))
        self.db.execute(
            sql.SESSION_KEEP,
            {
                "session": verb.session,
                "token": verb.token,
                "version": version + 1,
                "now": self.now,
                "expires": None if verb.ttl is None else self.now + verb.ttl,
            },
        )
        for field, value in verb.fields.items():
            if value is None:
                self.db.execute(sql.SESSION_UNSET, (verb.session, field))
            else:
                self.db.execute(sql.SESSION_SET, (verb.session, field, value))
        return version + 1

    def _forget(self, verb: verbs.Forget) -> None:
        for statement in sql.SESSION_FORGET:
            self.db.execute(statement, (verb.session,))

    def _enlisted(self, worker: str | None) -> bool:
        return self.db.execute(sql.ENLISTED, (worker,)).fetchone() is not None

    def _next_fence(self) -> int:
        return int(self.db.execute(sql.NEXT_FENCE, (1,)).fetchone()[0])

    def _row(self, id: str) -> RunRow | None:
        row = self.db.execute(sql.RUN_BY_ID, (id,)).fetchone()
        return RunRow(*row) if row else None

    def _fenced(self, statement: str, values: Any) -> Refused | None:
        return None if self.db.execute(statement, values).rowcount else Refused(FENCE)

    def _append(self, run: int, fence: int, kind: str, value: dict[str, Any]) -> None:
        """An entry by the store itself, in a verb that has just made the fence void.

        It is under the void fence: the life that lost the run may still record this seq, and under its own fence the entry
        would pass for that record's repeat.
        """
        values = {"run": run, "fence": -abs(fence), "kind": kind, "now": self.now, "value": json.dumps(value)}
        self.db.execute(sql.APPEND, values)


def death(worker: str, lease_until: float | None, now: float, alive: Alive) -> str | None:
    """Why a worker counts as dead, None if it does not."""
    if lease_until is None:
        return "its worker was struck off"
    if lease_until <= now:
        return "its worker's lease ran out"
    return "its worker died" if alive.is_dead(worker) else None


_APPLY: dict[type, Callable[[Transaction, Any], Any]] = {
    verbs.Submit: Transaction._submit,
    verbs.Claim: Transaction._claim,
    verbs.Wait: Transaction._wait,
    verbs.Settle: Transaction._settle,
    verbs.Release: Transaction._release,
    verbs.Send: Transaction._send,
    verbs.Cancel: Transaction._cancel,
    verbs.Retry: Transaction._retry,
    verbs.Resume: Transaction._resume,
    verbs.Enlist: Transaction._enlist,
    verbs.Renew: Transaction._renew,
    verbs.Leave: Transaction._leave,
    verbs.Sweep: Transaction._sweep,
    verbs.Prune: Transaction._prune,
    verbs.Keep: Transaction._keep,
    verbs.Forget: Transaction._forget,
}
