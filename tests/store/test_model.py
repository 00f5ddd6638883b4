"""The store against a plain dict, over sequences of verbs that nobody thought of.

A draw names a verb and small numbers; which run, worker or fence they mean depends on what there is by then. Verbs are
committed in batches, and after each one everything that can be read must be what the model says.
"""

import os
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from outlast.store.rows import ENDED, RunQuery
from outlast.store.sqlite.store import SQLiteStore
from outlast.store.verbs import (
    FENCE,
    STATUS,
    UNKNOWN,
    WORKER,
    Cancel,
    Claim,
    Enlist,
    Leave,
    Prune,
    Record,
    Refused,
    Release,
    Renew,
    Resume,
    Retry,
    Send,
    Settle,
    Submit,
    Submitted,
    Sweep,
)
from outlast.testing.conformance import HandClock

IDS = ("a", "b", "c", "d")
WORKERS = ("w1", "w2", "w3")
LEASE = 10.0


@dataclass
class Run:
    id: str
    pk: int
    args: str
    priority: int
    parent: str | None
    token: str
    due: float
    status: str = "queued"
    fence: int = 0
    worker: str | None = None
    started: bool = False
    ended: float | None = None
    interrupted: float | None = None
    deaths: int = 0
    interruptions: int = 0
    cancel: str | None = None
    value: str | None = None
    journal: list[tuple[str, str | None]] = field(default_factory=list)
    """Kind, and for what a life recorded its value."""
    recorded: dict[int, int] = field(default_factory=dict)
    """The fence of each entry that a life recorded, by seq."""
    mail: dict[tuple[str, str], str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)

    def void(self, status: str) -> None:
        self.status, self.fence, self.worker = status, -abs(self.fence), None

    def claimable(self) -> bool:
        return self.status in ("queued", "waiting")


class Model:
    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.runs: dict[str, Run] = {}
        self.workers: dict[str, float] = {}
        self.fence = 0
        self.pk = 0

    def check(self, verb, outcome) -> None:
        """Do what the verb's contract says, and insist that the store said so too."""
        expected = getattr(self, type(verb).__name__.lower())(verb, outcome)
        if isinstance(outcome, Refused):
            outcome = outcome.why
        assert outcome == expected, (verb, outcome, expected)

    def by_pk(self, pk: int) -> Run | None:
        return next((run for run in self.runs.values() if run.pk == pk), None)

    def given(self, run: Run, fence: int) -> None:
        assert fence > self.fence, "a fence only grows"
        self.fence = run.fence = fence

    def submit(self, verb: Submit, outcome):
        if verb.worker and verb.worker not in self.workers:
            return WORKER
        assert isinstance(outcome, Submitted)
        run = self.runs.get(verb.id)
        if run is not None:
            new = run.token == verb.token and run.worker == verb.worker
        else:
            new = True
            assert outcome.row.pk > self.pk
            self.pk = outcome.row.pk
            due = self.clock.now + verb.delay
            run = Run(verb.id, self.pk, verb.args, verb.priority, verb.parent, verb.token, due)
            self.runs[verb.id] = run
            if verb.worker:
                run.status, run.worker, run.started = "running", verb.worker, True
                self.given(run, outcome.row.fence)
        assert (outcome.row.pk, outcome.row.args, outcome.row.fence) == (run.pk, run.args, run.fence)
        return Submitted(outcome.row, new)

    def claim(self, verb: Claim, outcome):
        if verb.worker not in self.workers:
            return WORKER
        now = self.clock.now
        again = [run for run in self.runs.values() if run.worker == verb.worker and run.token == verb.token]
        if again:
            assert {row.id for row in outcome} == {run.id for run in again}
            return outcome
        if verb.ids:
            found = sorted(
                (r for r in self.runs.values() if r.claimable() and r.id in verb.ids), key=lambda r: r.pk
            )
        else:
            found = sorted(
                (run for run in self.runs.values() if run.claimable() and run.due <= now),
                key=lambda run: (-run.priority, run.interrupted or 1e12, run.pk),
            )
        found = found[: verb.limit]
        assert [row.id for row in outcome] == [run.id for run in found]
        for row, run in zip(outcome, found, strict=True):
            run.status, run.worker, run.token, run.started = "running", verb.worker, verb.token, True
            self.given(run, row.fence)
        return outcome

    def record(self, verb: Record, _):
        run = self.by_pk(verb.run)
        if run is None:
            return FENCE
        if run.recorded.get(verb.seq) == verb.fence:
            return None
        if run.fence != verb.fence or verb.seq <= len(run.journal):
            return FENCE
        assert verb.seq == len(run.journal) + 1
        run.journal.append((verb.kind, verb.value))
        run.recorded[verb.seq] = verb.fence

    def settle(self, verb: Settle, _):
        run = self.by_pk(verb.run)
        if run is None:
            return FENCE
        if run.fence == -verb.fence and run.status in ENDED | {"parked"}:
            return None
        if run.fence != verb.fence:
            return FENCE
        run.void(verb.status)
        run.value, run.interrupted = verb.value, None
        if verb.status == "parked":
            run.due = self.clock.now
        else:
            run.ended = self.clock.now

    def release(self, verb: Release, _):
        run = self.by_pk(verb.run)
        if run is None:
            return FENCE
        if run.fence == -verb.fence and run.claimable():
            return None
        if run.fence != verb.fence:
            return FENCE
        self._release(run, verb)

    def _release(self, run: Run, verb: Release) -> None:
        run.void("waiting" if verb.waiting else "queued")
        run.due = self.clock.now + verb.delay
        if verb.interrupted:
            run.interruptions += 1
            run.interrupted = run.interrupted or self.clock.now
            run.journal.append(("interruption", None))

    def send(self, verb: Send, _):
        run = self.runs.get(verb.id)
        if run is None:
            return UNKNOWN
        if run.status in ENDED:
            return STATUS
        run.mail.setdefault((verb.name, verb.message), verb.value)
        if run.status == "waiting":
            run.due = min(run.due, self.clock.now)

    def cancel(self, verb: Cancel, _):
        run = self.runs.get(verb.id)
        if run is None:
            return UNKNOWN
        if run.status in ENDED:
            return STATUS
        if not run.started or run.status == "parked":
            run.void("cancelled")
            run.ended, run.cancel = self.clock.now, verb.why
        else:
            run.cancel = run.cancel or verb.why
            run.due = min(run.due, self.clock.now)
        return run.status

    def retry(self, verb: Retry, _):
        return self._requeue(verb, ("failed", "cancelled"), "retry")

    def resume(self, verb: Resume, _):
        return self._requeue(verb, ("parked",), "resume")

    def _requeue(self, verb, allowed, kind):
        run = self.runs.get(verb.id)
        if run is None:
            return UNKNOWN
        if kind + verb.token in run.asked:
            return None
        if run.status not in allowed:
            return STATUS
        run.void("queued")
        run.due, run.ended, run.cancel, run.deaths, run.value = self.clock.now, None, None, 0, None
        run.token = verb.token
        run.asked.add(kind + verb.token)
        run.journal.append((kind, None))

    def enlist(self, verb: Enlist, _):
        self.workers[verb.worker] = self.clock.now + verb.lease

    def renew(self, verb: Renew, _):
        if verb.worker not in self.workers:
            return WORKER
        self.workers[verb.worker] = self.clock.now + verb.lease

    def leave(self, verb: Leave, _):
        for run in self.runs.values():
            if run.worker == verb.worker:
                self._release(run, Release(run.pk, run.fence, ""))
        self.workers.pop(verb.worker, None)

    def sweep(self, _, outcome):
        swept = []
        for worker in [worker for worker, until in self.workers.items() if until <= self.clock.now]:
            for run in self.runs.values():
                if run.worker == worker:
                    run.void("queued")
                    run.due = self.clock.now
                    run.deaths += 1
                    run.journal.append(("death", None))
                    swept.append(run.id)
            del self.workers[worker]
        assert sorted(outcome) == sorted(swept)
        return outcome

    def prune(self, verb: Prune, _):
        gone = [
            run
            for run in sorted(self.runs.values(), key=lambda run: (run.ended or 0, run.pk))
            if run.ended is not None
            and run.ended < verb.before
            and not (run.parent in self.runs and self.runs[run.parent].ended is None)
        ]
        for run in gone:
            del self.runs[run.id]
        return len(gone)


KINDS = [
    "submit", "own", "claim", "claim", "claim_id", "record", "record", "record", "record_again", "settle",
    "settle", "release", "wait", "send", "cancel", "retry", "resume", "enlist", "renew", "leave", "sweep", "prune",
]  # fmt: skip

draws = st.tuples(st.sampled_from(KINDS), st.integers(0, 11), st.integers(0, 3), st.integers(0, 3))


class StoreMachine(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.clock = HandClock()
        self.store = SQLiteStore(None, clock=self.clock)
        self.store.open()
        self.model = Model(self.clock)
        self.lives: list[tuple[int, int]] = []
        """Run and fence of every claim there was, the youngest last."""
        self.records: list[Record] = []
        self.commit([Enlist(worker, "host", 1, LEASE) for worker in WORKERS[:2]])

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()

    @rule(batch=st.lists(draws, min_size=1, max_size=4))
    def verbs(self, batch) -> None:
        self.commit([verb for draw in batch if (verb := self.make(*draw)) is not None])

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.forward(seconds)

    @rule()
    def the_store_is_opened_again(self) -> None:
        image = self.store.image()
        self.store.close()
        self.store = SQLiteStore.from_image(image, clock=self.clock)
        for worker in WORKERS:
            self.store.hold(worker)

    def commit(self, verbs) -> None:
        for verb in verbs:
            if isinstance(verb, Enlist):
                self.store.hold(verb.worker)
        outcomes = self.store.commit(verbs)
        assert len(outcomes) == len(verbs)
        for verb, outcome in zip(verbs, outcomes, strict=True):
            self.model.check(verb, outcome)
            if isinstance(verb, Record) and outcome is None:
                self.records.append(verb)
        for run in self.model.runs.values():
            if run.fence > 0 and (run.pk, run.fence) not in self.lives:
                self.lives.append((run.pk, run.fence))

    def make(self, kind: str, x: int, y: int, z: int):
        id, worker, token = IDS[y], WORKERS[z % 3], f"token-{x % 3}"
        pk, fence = self.lives[-1 - x % len(self.lives)] if self.lives else (1, 1)
        run = self.model.by_pk(pk)
        seq = max((len(run.journal) if run else 0) + (z != 3), 1)  # or one that somebody has taken already
        match kind:
            case "submit":
                parent = IDS[0] if id == IDS[1] else None
                return Submit(
                    id, "flow", str(x), f"s{x}", "seed", priority=z % 2, delay=x % 2 * 2.0, parent=parent
                )
            case "own":
                return Submit(id, "flow", str(x), f"s{x}", "seed", worker=worker)
            case "claim":
                return Claim(worker, f"c{x}{y}", limit=1 + z)
            case "claim_id":
                return Claim(worker, f"c{x}{y}", ids=(id, IDS[x % 4]), limit=1 + z % 2)
            case "record":
                return Record(pk, seq, fence, "step", "key", 1.0, value=f"{x}{y}{z}")
            case "record_again":
                return self.records[-1 - x % len(self.records)] if self.records else None
            case "settle":
                return Settle(pk, fence, ("done", "failed", "cancelled", "parked")[y], value=str(z))
            case "release":
                return Release(pk, fence, "drain", delay=y * 1.0, interrupted=z % 2 == 0)
            case "wait":
                return Release(pk, fence, "waits", delay=1e6, waiting=True, interrupted=False)
            case "send":
                return Send(id, f"n{z % 2}", f"m{x % 4}", str(x))
            case "cancel":
                return Cancel(id, f"why {x}")
            case "retry":
                return Retry(id, token)
            case "resume":
                return Resume(id, token)
            case "enlist":
                return Enlist(worker, "host", 1, LEASE)
            case "renew":
                return Renew(worker, LEASE)
            case "leave":
                return Leave(worker)
            case "sweep":
                return Sweep()
            case "prune":
                return Prune(self.clock.now - y)
        raise AssertionError(kind)

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        if not hasattr(self, "store"):
            return
        rows = {row.id: row for row in self.store.runs(RunQuery())}
        assert set(rows) == set(self.model.runs)
        for run in self.model.runs.values():
            row = rows[run.id]
            for name in ("pk", "args", "priority", "status", "fence", "worker", "due", "ended", "interrupted",
                         "deaths", "interruptions", "cancel", "value", "token"):  # fmt: skip
                assert getattr(row, name) == getattr(run, name), (run.id, name)
            assert (row.started is not None) == run.started
            assert (row.worker is not None) == (row.status == "running") == (row.fence > 0), (
                "one holder a run"
            )
            journal = self.store.journal(run.pk)
            assert [entry.seq for entry in journal] == [*range(1, len(journal) + 1)]
            own = [(entry.kind, entry.value if entry.kind == "step" else None) for entry in journal]
            assert own == run.journal
            mail = self.store.messages(run.pk)
            assert [(m.number, (m.name, m.id), m.value) for m in mail] == [
                (number, key, value) for number, (key, value) in enumerate(run.mail.items(), 1)
            ]
        assert {worker.id: worker.lease_until for worker in self.store.workers()} == self.model.workers


StoreMachine.TestCase.settings = settings(
    max_examples=400,
    stateful_step_count=30,
    derandomize=bool(os.environ.get("CI")),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
TestStoreAgainstModel = pytest.mark.timeout(600)(
    StoreMachine.TestCase
)  # only a failure takes long: it is made small
