"""What a store is, as plain Python over a dict: the contracts of `outlast.store.commands`, said a second time."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from outlast.store.commands import (
    CANCEL,
    CONFLICT,
    DEPTH,
    DRAINING,
    EACH,
    FENCE,
    ITEM,
    PARENT,
    STATUS,
    UNKNOWN,
    VERSION,
    WORKER,
    Ack,
    Cancel,
    Claim,
    Decide,
    DeregisterWorker,
    Drain,
    Prune,
    Record,
    Refused,
    RegisterWorker,
    Release,
    Renew,
    Resume,
    Retry,
    Send,
    SetQueueLimits,
    Settle,
    Submit,
    SubmitMany,
    Submitted,
    Sweep,
    Undo,
    UndoChild,
)
from outlast.store.rows import ENDED, FLEET_SECONDS, FLEET_SECONDS_MIN, NEVER, deaths_allowed
from outlast.testing.conformance import ManualClock

PROGRESS = ("step", "attempt", "inner", "child", "done")


@dataclass
class Run:
    id: str
    order: int
    """Runs that were submitted earlier have a smaller one."""
    workflow: str
    args: str
    queue: str
    priority: int
    parent: str | None
    token: str
    due: float
    attempts_max: int
    interruptions_max: int
    abandon_after: float | None = None
    pk: int | None = None
    """None until it was read back."""
    status: str = "queued"
    fence: int = 0
    worker: str | None = None
    ready: int = 0
    lives: int = 0
    started: bool = False
    ended: float | None = None
    interrupted: float | None = None
    deaths: int = 0
    interruptions: int = 0
    deaths_in_a_row: int = 0
    interruptions_in_a_row: int = 0
    failures: int = 0
    cancel: str | None = None
    value: str | None = None
    waits: tuple[str, ...] = ()
    undoing: str | None = None
    mark: int = 0
    left: tuple[str, float] | None = None
    """By which draining worker, and when, until it is claimed again."""
    settled_by: int | None = None
    given_back_by: int | None = None
    journal: list[tuple[str, str | None]] = field(default_factory=list)
    """Kind, and for what a life recorded its value."""
    recorded: dict[int, int] = field(default_factory=dict)
    """The fence of each entry that a life recorded, by seq."""
    mail: dict[tuple[str, str], str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)

    def void(self, status: str) -> None:
        self.status, self.fence, self.worker = status, -abs(self.fence), None
        self.ready = 0

    def claimable(self) -> bool:
        return self.status in ("queued", "waiting")

    def make_ready(self) -> None:
        self.ready = 2 if self.deaths_in_a_row >= 2 else 1

    def progress(self) -> bool:
        """Whether the life that has it now has recorded anything of its own."""
        mine = {seq for seq, fence in self.recorded.items() if fence == abs(self.fence)}
        return any(
            kind in PROGRESS and seq in mine
            for seq, (kind, _) in enumerate(self.journal, 1)
            if seq > self.mark
        )

    def append_mark(self, kind: str) -> None:
        self.journal.append((kind, None))
        self.mark = len(self.journal)

    def has(self, *kinds: str) -> bool:
        return any(kind in kinds for kind, _ in self.journal)

    def place(self) -> tuple[float, ...]:
        """Where it stands in the order of claims."""
        return (
            -self.priority,
            NEVER if self.interrupted is None else self.interrupted,
            self.due,
            self.order,
        )


@dataclass
class Hand:
    """A worker."""

    lease: float
    until: float
    started: float
    queues: tuple[str, ...]
    draining: bool = False
    renewed: float = 0.0


@dataclass
class Report:
    """Of a drain."""

    reason: str
    began: float
    held: int
    ended: float | None = None
    recoveries: dict[int, float] = field(default_factory=dict)
    """How long each run that it left was left, by its order."""


@dataclass
class Bounds:
    """A queue's own limits."""

    depth_max: int | None = None
    concurrency_max: int | None = None


class Model:
    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.runs: dict[str, Run] = {}
        self.workers: dict[str, Hand] = {}
        self.drains: dict[str, Report] = {}
        self.gone: set[str] = set()
        self.last_beat: float | None = None
        """Of those who are gone; None: the store does not know it."""
        """Whose lock is free: they are dead for all to see."""
        self.queues: dict[str, Bounds] = {}
        self.worker_deaths: set[tuple[float, str, int]] = set()
        """When, which worker, and the order of each run that is charged; 0: none is."""
        self.beat = self.awake = 0.0
        self.fence = 0
        self.count = 0

    @property
    def now(self) -> float:
        return self.clock.now

    def check(self, command, outcome) -> None:
        """Do what the command's contract says, and insist that the store said so too."""
        expected = getattr(self, type(command).__name__.lower())(command, outcome)
        if isinstance(outcome, Refused) and isinstance(expected, str):
            outcome = outcome.why
        assert outcome == expected, (command, outcome, expected)

    def by_pk(self, pk: int) -> Run | None:
        return next((run for run in self.runs.values() if run.pk == pk), None)

    # -- submitting

    def submit(self, command: Submit, outcome):
        if command.worker and command.worker not in self.workers:
            return WORKER
        run = self.runs.get(command.id)
        again = run is not None and (run.token, run.worker) == (command.token, command.worker)
        if command.worker and self.workers[command.worker].draining and not again:
            return DRAINING
        if run is None and not command.worker and (full := self._full(command, 1)):
            return full
        assert isinstance(outcome, Submitted), outcome
        return self._submitted(command, outcome)

    def submitmany(self, command: SubmitMany, outcome):
        works: dict[str, tuple[str, str]] = {
            id: (run.workflow, run.args) for id, run in self.runs.items()
        }
        for one in command.runs:
            if works.setdefault(one.id, (one.workflow, one.args)) != (one.workflow, one.args):
                return Refused(CONFLICT, one.id)
        fresh = {one.id: one for one in reversed(command.runs) if one.id not in self.runs}
        for queue in dict.fromkeys(one.queue for one in command.runs):
            there = [one for one in fresh.values() if one.queue == queue]
            if there and (full := self._full(there[0], len(there))):
                return full
        assert isinstance(outcome, list), outcome
        return [self._submitted(one, each) for one, each in zip(command.runs, outcome, strict=True)]

    def _submitted(self, command: Submit, outcome: Submitted) -> Submitted:
        run = self.runs.get(command.id)
        if run is None:
            self.count += 1
            run = self.runs[command.id] = Run(
                command.id, self.count, command.workflow, command.args, command.queue, command.priority, command.parent, command.token,
                self.now + command.delay, command.attempts_max, command.interruptions_max, command.abandon_after,
            )  # fmt: skip
            self.queues.setdefault(command.queue, Bounds())
            new = True
            if command.worker:
                assert outcome.row is not None
                run.status, run.worker, run.started, run.lives = "running", command.worker, True, 1
                self._given(run, outcome.row.fence)
            elif command.delay <= 0:
                run.make_ready()
        else:
            assert outcome.row is not None
            new = run.token == command.token and (
                run.worker == command.worker
                if command.worker
                else run.status == "queued" and run.lives == 0
            )
        if outcome.row is not None:
            assert (outcome.row.id, outcome.row.args, outcome.row.fence, outcome.row.status) == (
                run.id,
                run.args,
                run.fence,
                run.status,
            )
        return Submitted(outcome.row, new)

    def _full(self, command: Submit, count: int) -> Refused | None:
        own = self.queues.get(command.queue, Bounds()).depth_max
        limit = command.depth_max if own is None else own
        depth = sum(
            run.status == "queued" for run in self.runs.values() if run.queue == command.queue
        )
        return (
            Refused(DEPTH, f"{depth}/{limit}/{count}")
            if limit is not None and depth + count > limit
            else None
        )

    def _given(self, run: Run, fence: int) -> None:
        assert fence > self.fence, "a fence only grows"
        self.fence = run.fence = fence

    # -- claiming

    def claim(self, command: Claim, outcome):
        if command.worker not in self.workers:
            return WORKER
        again = [
            run
            for run in self.runs.values()
            if run.worker == command.worker and run.token == command.token
        ]
        if again:
            ids = [run.id for run in sorted(again, key=lambda run: run.fence)]
            assert [row.id for row in outcome] == ids
            return outcome
        if self.workers[command.worker].draining:
            return DRAINING
        found = self._named(command) if command.ids else self._first(command)
        assert [row.id for row in outcome] == [run.id for run in found], (command, outcome)
        for row, run in zip(outcome, found, strict=True):
            if not command.ids and self._abandoned(run):
                self._begin_undo(run, row.undoing)
            run.status, run.worker, run.token, run.started = (
                "running",
                command.worker,
                command.token,
                True,
            )
            run.lives += 1
            self._recover(run)
            run.ready, run.waits, run.given_back_by = 0, (), None
            self._given(run, row.fence)
            assert (row.status, row.worker, row.lives) == (run.status, run.worker, run.lives)
            assert row.undoing == run.undoing
            assert run.undoing is None or run.lives > 1
        return outcome

    def _abandoned(self, run: Run) -> bool:
        if run.abandon_after is None or run.undoing or run.cancel or not run.started:
            return False
        able = any(
            run.queue in hand.queues and hand.started <= run.due and not hand.draining
            for id, hand in self.workers.items()
            if id not in self.seem_dead()
        )
        awake = self.awake if self._no_gap() else self.now
        return able and max(run.due, awake) + run.abandon_after < self.now

    def _recover(self, run: Run) -> None:
        if run.left is not None and run.left[0] in self.drains:
            worker, at = run.left
            self.drains[worker].recoveries[run.order] = max(self.now - at, 0.0)
        run.left = None

    def _named(self, command: Claim) -> list[Run]:
        named = [run for run in self.runs.values() if run.id in command.ids and run.claimable()]
        due = [run for run in named if run.ready or run.due <= self.now]
        return sorted(due, key=lambda run: run.order)[: command.limit]

    def _first(self, command: Claim) -> list[Run]:
        for run in self.runs.values():
            if run.claimable() and not run.ready and run.due <= self.now:
                run.make_ready()
        room = {
            name: bounds.concurrency_max - self.running(name)
            for name, bounds in self.queues.items()
            if bounds.concurrency_max is not None
        }
        chosen: list[Run] = []
        for run in sorted(self.runs.values(), key=Run.place):
            if (
                run.ready == (2 if command.suspects else 1)
                and run.queue in (command.queues or self.queues)
                and (
                    run.workflow in command.workflows if command.workflows else run.workflow != EACH
                )
                and len(chosen) < command.limit
                and (run.parent is not None or room.get(run.queue, 1) > 0)
            ):
                back = sum(one.interrupted is not None for one in chosen)
                if (
                    run.interrupted is not None
                    and command.returned is not None
                    and back >= command.returned
                ):
                    continue
                if run.queue in room and run.parent is None:
                    room[run.queue] -= 1
                chosen.append(run)
        return chosen

    def running(self, queue: str) -> int:
        runs = [run for run in self.runs.values() if run.queue == queue and run.parent is None]
        return sum(run.status == "running" for run in runs)

    # -- the life of a run

    def record(self, command: Record, _):
        run = self.by_pk(command.run)
        if run is None:
            return FENCE
        if run.recorded.get(command.seq) == command.fence:
            return None
        if run.fence != command.fence or command.seq <= len(run.journal):
            return FENCE
        assert command.seq == len(run.journal) + 1
        run.journal.append((command.kind, command.value))
        run.recorded[command.seq] = command.fence

    def settle(self, command: Settle, _):
        run = self.by_pk(command.run)
        if run is None:
            return FENCE
        if run.settled_by == command.fence:
            return None
        if run.fence != command.fence:
            return FENCE
        wanted = run.cancel is not None and run.undoing is None
        if command.unless_cancelled and command.status == "parked" and wanted:
            return Refused(CANCEL, run.cancel)
        run.void(command.status)
        run.settled_by = command.fence
        run.value, run.interrupted, run.waits = command.value, None, ()
        run.deaths_in_a_row = run.interruptions_in_a_row = 0
        if command.status == "parked":
            run.due = self.now
        else:
            run.ended, run.undoing = self.now, None
        self._wake_parent(run)

    def undo(self, command: Undo, _):
        run = self.by_pk(command.run)
        if run is None:
            return FENCE
        if (
            run.fence == -command.fence
            and run.status == "queued"
            and run.undoing == command.verdict
        ):
            return None
        if run.fence != command.fence:
            return FENCE
        if run.undoing is not None:
            return Refused(STATUS, "undoing")
        self._begin_undo(run, command.verdict)

    def _begin_undo(self, run: Run, verdict: str) -> None:
        run.void("queued")
        run.undoing, run.due, run.ended, run.cancel, run.waits = verdict, self.now, None, None, ()
        run.deaths_in_a_row = run.interruptions_in_a_row = 0
        run.interrupted = self.now if run.interrupted is None else run.interrupted
        run.settled_by = None
        run.make_ready()
        run.append_mark("undoing")

    def undochild(self, command: UndoChild, _):
        run = self.runs.get(command.id)
        if run is None or run.parent != command.parent:
            return UNKNOWN
        begun = run.started and run.undoing is None
        unheld = command.unheld and begun and run.status in ("queued", "waiting", "parked", "dead")
        if unheld or (run.status == "done" and self._has_dealt(run)):
            self._begin_undo(run, self._cancelled(command.why))
        return run.status

    def _has_dealt(self, run: Run) -> bool:
        return run.has("intent", "compensation", "child") or any(
            one.parent == run.id for one in self.runs.values()
        )

    def _cancelled(self, why: str) -> str:
        return json.dumps(
            {"status": "cancelled", "value": None, "error": None, "reason": why, "failed_at": None}
        )

    def ack(self, command: Ack, _):
        run = self.by_pk(command.run)
        if run is None:
            return FENCE
        if run.settled_by == command.fence:
            return None
        if run.fence != command.fence:
            return FENCE
        run.void("done")
        run.settled_by, run.ended = command.fence, self.now

    def release(self, command: Release, _):
        run = self.by_pk(command.run)
        if run is None:
            return FENCE
        if run.fence == -command.fence and (run.claimable() or run.given_back_by == command.fence):
            return run.status
        if run.fence != command.fence:
            return FENCE
        if command.waiting:
            self._forgive(run)
            news = (
                run.cancel is not None
                or self._mail_after(run, command)
                or self._child_over(command)
            )
            run.interrupted, run.waits = None, command.waits
            return self._give_back(
                run, "waiting", min(command.due, self.now) if news else command.due
            )
        if command.failed:
            self._forgive(run)
            run.failures += 1
            dead = run.failures >= run.attempts_max
            status = self._give_back(run, "dead" if dead else "queued", self.now + command.delay)
            run.journal.append(("failure", None))
            return status
        if command.interrupted:
            worker = run.worker
            assert worker is not None
            draining = worker in self.workers and self.workers[worker].draining
            return self._interrupt(run, self.now + command.delay, worker if draining else None)
        self._forgive(run)
        return self._give_back(run, "queued", self.now + command.delay)

    def _mail_after(self, run: Run, command: Release) -> bool:
        return any(
            name in command.waits
            for number, (name, _) in enumerate(run.mail, 1)
            if number > command.seen
        )

    def _child_over(self, command: Release) -> bool:
        return any(
            id not in self.runs or self.runs[id].ended is not None for id in command.children
        )

    def _forgive(self, run: Run) -> None:
        """Progress ends what was in a row."""
        if run.progress():
            run.deaths_in_a_row = run.interruptions_in_a_row = 0

    def _interrupt(
        self, run: Run, due: float, drain: str | None = None, seen: float | None = None
    ) -> str:
        self._forgive(run)
        run.interruptions += 1
        run.interruptions_in_a_row += 1
        run.interrupted = self.now if run.interrupted is None else run.interrupted
        dead = run.interruptions_in_a_row >= run.interruptions_max
        status = self._give_back(run, "dead" if dead else "queued", due)
        run.append_mark("interruption")
        if drain is not None and status == "queued":
            run.left = (drain, self.now if seen is None else seen)
        return status

    def _give_back(self, run: Run, status: str, due: float) -> str:
        if run.workflow == ITEM and run.cancel is not None:
            status = "cancelled"
        run.given_back_by = run.fence
        run.void(status)
        run.due = due
        if status in ENDED:
            run.ended = self.now
            self._wake_parent(run)
        elif due <= self.now:
            run.make_ready()
        return status

    def _wake_parent(self, run: Run) -> None:
        parent = self.runs.get(run.parent or "")
        if parent is not None:
            self._wake(parent)

    def _wake(self, run: Run) -> None:
        if run.status == "waiting":
            run.due = min(run.due, self.now)
            run.make_ready()

    # -- from outside

    def send(self, command: Send, _):
        run = self.runs.get(command.id)
        if run is None:
            return UNKNOWN
        if run.workflow == ITEM:
            return Refused(STATUS, "item")
        if run.status in ENDED:
            return Refused(STATUS, run.status)
        if (command.name, command.message) not in run.mail:
            if command.messages_max is not None and len(run.mail) >= command.messages_max:
                return Refused(DEPTH, str(len(run.mail)))
            run.mail[command.name, command.message] = command.value
            if command.name in run.waits:
                self._wake(run)

    def cancel(self, command: Cancel, _):
        run = self.runs.get(command.id)
        if run is None:
            return UNKNOWN
        if run.status in ENDED - {"dead"}:
            return Refused(STATUS, run.status)
        if run.undoing is not None:
            return Refused(STATUS, "undoing")
        if run.status in ("parked", "dead") and self._has_dealt(run):
            self._begin_undo(run, self._cancelled(run.cancel or command.why))
            return run.status
        run.cancel = run.cancel or command.why
        at_once = not run.started or run.status in ("parked", "dead")
        if at_once or (run.workflow == ITEM and run.worker is None):
            run.void("cancelled")
            run.ended, run.waits = self.now, ()
            self._wake_parent(run)
        else:
            run.due = min(run.due, self.now)
            if run.claimable():
                run.make_ready()
        return run.status

    def retry(self, command: Retry, _):
        run = self.runs.get(command.id)
        allowed = (
            "failed",
            "cancelled",
            "dead",
            *(("parked",) if run is not None and run.undoing is not None else ()),
        )
        if run is not None and run.status in allowed and "retry" + command.token not in run.asked:
            refused = self._parent_refuses(run, command.seen)
            if refused is not None:
                return refused
        return self._requeue(command, allowed, "retry")

    def _parent_refuses(self, run, seen):
        if run.parent is None or run.undoing is not None or run.workflow == EACH:
            return None
        parent = self.runs.get(run.parent)
        if parent is None:
            return Refused(PARENT, "gone")
        if parent.undoing is not None or parent.status in ENDED:
            return Refused(PARENT, "undoing" if parent.undoing is not None else parent.status)
        last = len(parent.journal)
        return Refused(VERSION, str(last)) if seen not in (None, last) else None

    def resume(self, command: Resume, _):
        return self._requeue(command, ("parked",), "resume", ("parked", "done"))

    def decide(self, command: Decide, _):
        run = self.runs.get(command.id)
        if (
            run is not None
            and run.status == "parked"
            and "decision" + command.token not in run.asked
        ):
            if len(run.journal) != command.seen:
                return Refused(VERSION, str(len(run.journal)))
        outcome = self._requeue(command, ("parked",), "decision")
        if (
            outcome is None
            and command.verdict is not None
            and run.journal[-1][0] == "decision"
            and self._fresh
        ):
            self._begin_undo(run, command.verdict)
        return outcome

    def _requeue(self, command, allowed, kind, of_each=()):
        self._fresh = False
        run = self.runs.get(command.id)
        if run is None:
            return UNKNOWN
        if kind + command.token in run.asked:
            return None
        if run.status not in (of_each if run.workflow == EACH and of_each else allowed):
            return Refused(STATUS, run.status)
        run.void("queued")
        run.due, run.ended, run.deaths, run.value = self.now, None, 0, None
        run.cancel = None if kind == "retry" else run.cancel
        run.deaths_in_a_row = run.interruptions_in_a_row = run.failures = 0
        run.left = None
        run.waits, run.settled_by, run.token, run.lives = (), None, command.token, max(run.lives, 1)
        run.make_ready()
        run.asked.add(kind + command.token)
        run.append_mark(kind)
        self._fresh = True

    # -- workers

    def registerworker(self, command: RegisterWorker, _):
        hand = self.workers.setdefault(command.worker, Hand(0.0, 0.0, self.now, ()))
        hand.lease, hand.until, hand.queues = (
            command.lease,
            self.now + command.lease,
            command.queues,
        )
        hand.renewed = self.now
        self._beat()

    def renew(self, command: Renew, _):
        if command.worker not in self.workers:
            return WORKER
        hand = self.workers[command.worker]
        hand.lease, hand.until, hand.renewed = command.lease, self.now + command.lease, self.now
        hand.draining = hand.draining or command.draining
        self._beat()

    def _beat(self) -> None:
        if not self._no_gap():
            self.awake = self.now
            for hand in self.workers.values():
                if hand.until > self.now + hand.lease + 1:
                    hand.until = self.now + hand.lease
        self.beat = self.now

    def _no_gap(self) -> bool:
        pause = min((hand.lease for hand in self.workers.values()), default=0.0) / 2
        return 0 <= self.now - self.beat <= pause

    def deregisterworker(self, command: DeregisterWorker, _):
        for run in self.held(command.worker):
            self._interrupt(
                run, self.now, command.worker if self.workers[command.worker].draining else None
            )
        self.workers.pop(command.worker, None)

    def drain(self, command: Drain, _):
        hand = self.workers.get(command.worker)
        if hand is None:
            return WORKER
        if not hand.draining:
            self.drains.pop(command.worker, None)
        hand.draining = True
        back = [run for run in self.held(command.worker) if run.fence not in command.keep]
        for run in back:
            self._forgive(run)
            self._give_back(run, "queued", self.now)
        self.drains.setdefault(
            command.worker, Report(command.reason, self.now, len(self.held(command.worker)))
        )
        return tuple(run.id for run in sorted(back, key=lambda run: run.order))

    def held(self, worker: str) -> list[Run]:
        return [run for run in self.runs.values() if run.worker == worker]

    def seem_dead(self) -> set[str]:
        return {
            id for id, hand in self.workers.items() if id in self.gone or hand.until <= self.now
        }

    def sweep(self, command: Sweep, outcome):
        self._beat()
        workers = {
            id
            for id in self.seem_dead()
            if id in self.gone or self.awake + self.workers[id].lease <= self.now
        }
        swept: list[Run] = []
        for worker in sorted(workers):
            held = self.held(worker)
            if self.workers[worker].draining:
                report = self.drains.setdefault(worker, Report("", self.now, len(held)))
                report.ended = self.now if report.ended is None else report.ended
            parents = {run.id: run.parent for run in held}
            charged = []
            for run in held:
                if self.workers[worker].draining:
                    self._interrupt(run, self.now, worker, self._seen(worker))
                else:
                    family = set(self._ancestors(run, parents)) | {run.id}
                    self._die(run, run.id in parents.values(), family == set(parents), command)
                    charged += [run.order] if run.deaths_in_a_row else []
                swept.append(run)
            if not self.workers[worker].draining:
                self.worker_deaths |= {(self.now, worker, run) for run in charged or [0]}
            del self.workers[worker]
        assert sorted(outcome.workers) == sorted(workers)
        assert sorted(outcome.runs) == sorted(run.id for run in swept)
        assert sorted(outcome.dead) == sorted(run.id for run in swept if run.status == "dead")
        return outcome

    def _seen(self, worker: str) -> float:
        """When it gave its last sign of life."""
        hand = self.workers[worker]
        if worker not in self.gone:
            return min(self.now, hand.renewed)
        return min(
            self.now, hand.until if self.last_beat is None else max(hand.renewed, self.last_beat)
        )

    def _ancestors(self, run: Run, parents: dict[str, str | None]) -> list[str]:
        above = parents.get(run.id)
        return [above, *self._ancestors(self.runs[above], parents)] if above in parents else []

    def _die(self, run: Run, has_child: bool, alone: bool, command: Sweep) -> None:
        progress = run.progress()
        self._forgive(run)
        run.deaths += 1
        due, dead = self.now, False
        if progress or has_child:
            run.deaths_in_a_row = 0
        elif run.deaths_in_a_row < 2 or alone:
            run.deaths_in_a_row += 1
        if run.deaths_in_a_row < 2:
            run.interrupted = self.now if run.interrupted is None else run.interrupted
        else:
            due += min(command.backoff * 2 ** (run.deaths_in_a_row - 2), command.backoff_max)
        if run.deaths_in_a_row and alone:
            dead = run.deaths_in_a_row >= run.attempts_max and self._is_final(run)
        self._give_back(run, "dead" if dead else "queued", due)
        run.append_mark("death")

    def _is_final(self, run: Run) -> bool:
        in_a_row = run.deaths_in_a_row
        own = sorted(
            (at for at, _, charged in self.worker_deaths if charged == run.order), reverse=True
        )
        start = max(
            self.now - FLEET_SECONDS, min([self.now - FLEET_SECONDS_MIN, *own[: in_a_row - 1]])
        )
        deaths: dict[tuple[float, str], set[int]] = {}
        for at, worker, charged in self.worker_deaths:
            if start < at <= self.now:
                deaths.setdefault((at, worker), set()).add(charged)
        others = [charged for charged in deaths.values() if run.order not in charged]
        blamed = {min(charged) for charged in others if len(charged) == 1} - {0}
        count = len(blamed) + sum(len(charged) > 1 or charged == {0} for charged in others)
        fleet = {*self.workers, *(worker for at, worker, _ in self.worker_deaths if at == self.now)}
        return in_a_row >= deaths_allowed(run.attempts_max, count, len(fleet))

    # -- the rest

    def setqueuelimits(self, command: SetQueueLimits, _):
        self.queues[command.queue] = Bounds(command.depth_max, command.concurrency_max)

    def prune(self, command: Prune, _):
        dead = bool(command.dead or command.ids)
        gone = [
            run
            for run in self.runs.values()
            if run.ended is not None
            and run.ended < command.before
            and run.undoing is None
            and (dead or not any(one.status == "dead" for one in (run, *self._below(run))))
            and not any(self._needs_those_below(one, dead=dead) for one in self._above(run))
            and (not command.items or (run.workflow == ITEM and run.status == "done"))
            and (not command.ids or run.id in command.ids)
        ]
        for run in gone:
            del self.runs[run.id]
        return len(gone)

    def _needs_those_below(self, run: Run, *, dead: bool) -> bool:
        return run.ended is None or run.undoing is not None or (run.status == "dead" and not dead)

    def _above(self, run: Run) -> Iterator[Run]:
        while (above := self.runs.get(run.parent)) is not None:
            yield above
            run = above

    def _below(self, run: Run) -> Iterator[Run]:
        for one in self.runs.values():
            if one.parent == run.id:
                yield one
                yield from self._below(one)

    def counts(self) -> dict[str, Counter[str]]:
        return {
            name: Counter(run.status for run in self.runs.values() if run.queue == name)
            for name in self.queues
        }
