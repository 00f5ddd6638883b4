"""The store against a plain dict, over sequences of commands that nobody thought of.

A draw names a command and small numbers; which run, worker or fence they mean depends on what there is by then. Commands are
committed in batches, and after each one everything that can be read must be what the model says.
"""

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from model_draws import EVENTS, draws
from store_model import Model

from outlast.store.commands import (
    EACH,
    ITEM,
    Ack,
    Cancel,
    Claim,
    Decide,
    DeregisterWorker,
    Drain,
    Prune,
    Record,
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
    Sweep,
    Undo,
    UndoChild,
)
from outlast.store.rows import ENDED, NEVER, RunQuery
from outlast.testing.conformance import ManualClock
from outlast.testing.conformance.harness import EVERYTHING, check_apart
from outlast.testing.store_images import EmptyStore, image_of, open_image

MODEL_EXAMPLES = int(os.environ.get("OUTLAST_TEST_MODEL_EXAMPLES", "40"))
PARENTS = {"a": None, "b": "a", "c": "b", "d": "a", "e": None, "i": None, "j": None}
IDS = tuple(PARENTS)
ITEMS = ("i", "j")
QUEUES = ("q0", "q1")
WORKERS = ("w1", "w2", "w3")
LEASES = {"w1": 10.0, "w2": 10.0, "w3": 24.0}
STATUSES = {"queued", "running", "waiting", "parked", *ENDED}
FIELDS = (
    "pk", "workflow", "args", "queue", "priority", "parent", "status", "fence", "worker", "due", "ended", "interrupted",
    "deaths", "interruptions", "deaths_in_a_row", "interruptions_in_a_row", "failures", "cancel", "value", "token",
    "ready", "lives", "mark", "attempts_max", "interruptions_max", "undoing", "abandon_after", "key", "turn",
)  # fmt: skip

VERDICTS = ('{"status":"failed"}', '{"status":"done"}')


def register(worker: str) -> RegisterWorker:
    """One of them claims from nowhere: it is nobody who could have taken anything."""
    return RegisterWorker(worker, "host", 1, LEASES[worker], () if worker == "w2" else QUEUES)


class StoreMachine(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.clock = ManualClock()
        self.store = EmptyStore(clock=self.clock)
        self.store.open()
        self.model = Model(self.clock)
        self.lives: list[tuple[int, int, str]] = []
        """Run, fence and id of every life there was, the youngest last."""
        self.records: list[Record] = []
        self.commit([register(worker) for worker in WORKERS[:2]])
        self.commit(
            [SubmitMany(tuple(self.new(0, y, y % 4)._replace(depth_max=None) for y in range(5)))]
        )

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()

    @rule(story=st.lists(draws, min_size=1, max_size=10))
    def go_on(self, story) -> None:
        """Commands are gathered, and committed together where something else happens."""
        batch = []
        for kind, x, y, z in story:
            if kind in EVENTS or len(batch) == 4:
                self.commit(batch)
                batch = []
            if kind in EVENTS:
                self.happen(kind, x, y, z)
            elif (command := self.make(kind, x, y, z)) is not None:
                batch.append(command)
        self.commit(batch)

    def happen(self, kind: str, x: int, y: int, z: int) -> None:
        worker = WORKERS[z % 3]
        match kind:
            case "time":
                self.clock.forward((0.5, 1.0, 2.0, 4.0, 5.0, 11.0, 100.0, -3.0, -40.0)[x % 9])
            case "lease":
                self.a_lease_goes_by(worker if y else None)
            case "kill":
                self.a_process_is_killed(worker)
            case "kill_holder":
                self.a_run_is_taken_by_a_process_that_is_killed(worker, IDS[y], x)
            case "start":
                self.commit([register(worker)])
            case "reopen":
                self.the_store_is_opened_again()

    def a_lease_goes_by(self, dead: str | None) -> None:
        alive = [worker for worker in self.model.workers if worker != dead]
        for _ in range(5):
            renewals = [Renew(worker, LEASES[worker]) for worker in alive]
            self.commit([*renewals, Sweep(backoff=2.0, backoff_max=5.0)])
            self.clock.forward(2.5)
        self.commit([Sweep()])

    def a_process_is_killed(self, worker: str) -> None:
        self.store.release_liveness(worker)
        self.model.gone.add(worker)

    def a_run_is_taken_by_a_process_that_is_killed(self, worker: str, id: str, x: int) -> None:
        """The way to a dead letter."""
        again = register(worker)
        self.commit([DeregisterWorker(worker), again])
        self.commit([Claim(worker, f"k{x}{id}", ids=(id, IDS[x % 7]), limit=1 + x % 2)])
        self.a_process_is_killed(worker)
        self.commit([Sweep(backoff=x % 3 * 1.0)])
        self.commit([again])

    def the_store_is_opened_again(self) -> None:
        image = image_of(self.store)
        self.store.close()
        self.store = open_image(image, clock=self.clock)
        for worker in set(WORKERS) - self.model.gone:
            self.store.acquire_liveness(worker)

    def commit(self, commands) -> None:
        for command in commands:
            if isinstance(command, RegisterWorker):
                self.store.acquire_liveness(command.worker)
                self.model.gone.discard(command.worker)
        outcomes = self.store.commit(commands)
        assert len(outcomes) == len(commands)
        for command, outcome in zip(commands, outcomes, strict=True):
            self.model.check(command, outcome)
            if isinstance(command, Record) and outcome is None:
                self.records.append(command)
        self.learn()
        self.everything_is_as_the_model_says()
        self.counts_and_workers_are_as_the_model_says()

    def learn(self) -> None:
        """What only reading tells: the numbers of new runs, which grow with their order."""
        runs = sorted(self.model.runs.values(), key=lambda run: run.order)
        for run in runs:
            if run.pk is None:
                row = self.store.run(run.id)
                assert row is not None, f"{run.id} is lost"
                run.pk = row.pk
            life = (run.pk, run.fence, run.id)
            if run.fence > 0 and life not in self.lives:
                self.lives.append(life)
        numbers = [run.pk for run in runs]
        assert numbers == sorted(set(numbers))

    def make(self, kind: str, x: int, y: int, z: int):
        id, worker, token = IDS[y], WORKERS[z % 3], f"token-{x % 3}"
        held = [(one.pk, one.fence, one.id) for one in self.model.runs.values() if one.fence > 0]
        lives = held if held and z else self.lives or [(999, 1, "a")]  # mostly one that goes on
        pk, fence, whose = lives[-1 - x % len(lives)]
        run = self.model.by_pk(pk)
        seq = max((len(run.journal) if run else 0) + (z != 3), 1)  # or one that is taken already
        queues = ((), (), ("q1", "q0"), ("q1", "none"))[z]
        workflows = ((), (), (ITEM, "f1"), ("f1", "f0", EACH))[x % 4]
        match kind:
            case "submit":
                return self.new(x, y, z)
            case "replace":
                # Mostly the same work as that of a run that exists.
                one = self.model.runs.get(id)
                alike = {} if one is None or z == 3 else {"queue": one.queue, "key": one.key}
                new = self.new(x, y, z)
                same = one is not None and z < 2 and one.workflow != ITEM
                workflow = one.workflow if same else new.workflow
                return new._replace(workflow=workflow, replace=True, parent=None, **alike)
            case "many":
                same = [self.new(x, (y + step) % 7, z) for step in (0, 1, 3, 0)[: 1 + z]]
                return SubmitMany(tuple(one._replace(delay=0.0) for one in same))
            case "own":
                return self.new(x, y, z)._replace(worker=worker, delay=0.0, key=None)
            case "claim":
                returned = (None, 0, 1, 2)[x % 4]
                return Claim(
                    worker, f"c{x}{y}", (), queues, workflows, limit=y % 4, returned=returned
                )
            case "claim_suspect":
                return Claim(
                    worker, f"c{x}{y}", (), queues, workflows, limit=1 + y % 3, suspects=True
                )
            case "claim_id":
                return Claim(worker, f"c{x}{y}", ids=(id, IDS[x % 7]), limit=1 + z % 2)
            case "record":
                what = ("step", "intent", "fired", "message", "attempt", "done", "child")[y]
                return Record(pk, seq, fence, what, "key", 1.0, value=f"{x}{y}{z}")
            case "record_again":
                return self.records[-1 - x % len(self.records)] if self.records else None
            case "settle" if whose not in ITEMS:
                status = ("done", "failed", "cancelled", "parked")[y % 4]
                return Settle(pk, fence, status, value=str(z), unless_cancelled=z == 1)
            case "settle" | "ack":
                return Ack(pk, fence, run.queue if run else "q0") if whose in ITEMS else None
            case "release":
                return Release(pk, fence, "drain", delay=y % 3 * 2.0, interrupted=z != 0)
            case "nack":
                failed = Release(pk, fence, "failed", delay=y % 3 * 2.0, failed=True)
                return failed if whose in ITEMS else None
            case "wait" if whose not in ITEMS:
                children = tuple(child for child, parent in PARENTS.items() if parent == whose)[
                    : z % 3
                ]
                return Release(
                    pk, fence, "waits", waiting=True, due=NEVER if y % 2 else self.clock.now + y, seen=z,
                    waits=(("n0",), ("n0", "n1"), ())[y % 3], children=children,
                )  # fmt: skip
            case "wait":
                return None
            case "send":
                most = (None, 2)[y % 2]
                return Send(
                    self.one_of(("waiting",), y, id), f"n{z % 3}", f"m{x % 4}", str(x), most
                )
            case "cancel":
                return Cancel(id, f"why {x}")
            case "cancel_parked":
                return Cancel(self.one_of(("parked", "dead"), y, id), f"why {x}")
            case "retry":
                return Retry(
                    self.one_of(("failed", "cancelled", "dead"), y, id), token, (None, x)[z == 2]
                )
            case "resume":
                return Resume(self.one_of(("parked", "done")[x % 2 :], y, id), token)
            case "undo":
                return Undo(pk, fence, VERDICTS[y % 2]) if whose not in ITEMS else None
            case "undo_child":
                at_rest = ("done", "queued", "waiting", "parked", "dead")
                child = self.one_of(at_rest if z % 2 else ("done",), y, id)
                return UndoChild(child, PARENTS[child] or "a", f"why {x}", unheld=bool(z % 2))
            case "decide":
                one = self.one_of(("parked",), y, id)
                there = self.model.runs.get(one)
                last = len(there.journal) if there else 0
                verdict = (None, *VERDICTS)[x % 3]
                return Decide(one, "key", '{"what":1}', last - (z == 3), token, verdict)
            case "register":
                return register(worker)
            case "renew":
                return Renew(worker, LEASES[worker], draining=x == 0)
            case "leave":
                return DeregisterWorker(worker)
            case "drain":
                return Drain(
                    worker,
                    f"why {x}",
                    tuple(fence for _, fence, _ in held)[: (0, 1, 2, None)[x % 4]],
                )
            case "sweep":
                return Sweep(backoff=z * 1.0, backoff_max=3.0)
            case "limit":
                return SetQueueLimits(QUEUES[z % 2], (None, 2, 4)[x % 3], (None, 0, 1, 2)[y % 4])
            case "limit_keys":
                starts, period = ((None, None), (1, 5.0), (2, 5.0), (2, 30.0))[x % 4]
                return SetQueueLimits(
                    QUEUES[z % 2], None, None, True, True, (None, 1, 1, 2)[y % 4], starts, period,
                    keep_key_concurrency=z == 2, keep_key_rate=z == 3,
                )  # fmt: skip
            case "pause":
                return SetQueueLimits(QUEUES[z % 2], None, None, True, True, paused=x == 0)
            case "prune":
                named = (id, IDS[x % len(IDS)]) if z == 1 else ()
                return Prune(self.clock.now - y, items=z == 0, ids=named, dead=z == 2)
        raise AssertionError(kind)

    def one_of(self, statuses: tuple[str, ...], y: int, id: str) -> str:
        """Mostly a run that is in one of these, where there is one."""
        there = [run.id for run in self.model.runs.values() if run.status in statuses]
        return there[y % len(there)] if there and y else id

    def new(self, x: int, y: int, z: int) -> Submit:
        id = IDS[y]
        workflow = ITEM if id in ITEMS else EACH if id == "e" and x % 2 else f"f{z % 2}"
        return Submit(
            id, workflow, str(x % 2), f"s{x}", "seed", queue=QUEUES[x % 2], priority=z % 2, delay=x % 3 * 2.0,
            parent=PARENTS[id], abandon_after=(None, 3.0)[(x + y) % 2], attempts_max=1 + z % 3, interruptions_max=2 + x % 2, depth_max=(None, 3)[z % 2],
            key=None if PARENTS[id] else (None, "k0", "k0", "k1")[(x + z) % 4],
        )  # fmt: skip

    def everything_is_as_the_model_says(self) -> None:
        rows = {row.id: row for row in self.store.runs(RunQuery())}
        assert set(rows) == set(self.model.runs), "nothing is lost, nothing comes from nowhere"
        for run in self.model.runs.values():
            row = rows[run.id]
            for name in FIELDS:
                assert getattr(row, name) == getattr(run, name), (run.id, name)
            assert row.status in STATUSES
            assert (row.started is not None) == run.started
            assert [name for name in row.waits.split("\n") if name] == list(run.waits)
            assert (row.worker is not None) == (row.status == "running") == (row.fence > 0), (
                "one holder a run"
            )
            assert (row.ended is not None) == (row.status in ENDED)
            journal = self.store.journal(run.pk)
            assert [entry.seq for entry in journal] == [*range(1, len(journal) + 1)]
            own = [
                (entry.kind, entry.value if entry.seq in run.recorded else None)
                for entry in journal
            ]
            assert own == run.journal
            mail = self.store.messages(run.pk)
            assert [(m.number, (m.name, m.id), m.value) for m in mail] == [
                (number, key, value) for number, (key, value) in enumerate(run.mail.items(), 1)
            ]

    def counts_and_workers_are_as_the_model_says(self) -> None:
        queues, rows = self.store.queues(), self.store.runs(EVERYTHING)
        assert [queue.name for queue in queues] == sorted(self.model.queues)
        counts = self.model.counts()
        for queue in queues:
            bounds, count = self.model.queues[queue.name], counts[queue.name]
            assert (queue.queued, queue.waiting, queue.parked, queue.dead) == (
                count["queued"], count["waiting"], count["parked"], count["dead"]
            )  # fmt: skip
            assert queue.running == self.model.running(queue.name)
            assert queue.concurrency_max == bounds.concurrency_max
            assert queue.depth_max == bounds.depth_max
            assert (queue.key_concurrency_max, queue.key_starts_max, queue.key_period, queue.paused) == (
                bounds.key_concurrency_max, bounds.key_starts_max, bounds.key_period, bounds.paused
            )  # fmt: skip
            assert self.store.depth(queue.name) == queue.ready
            check_apart(queue, [row for row in rows if row.queue == queue.name], self.clock.now)
        workers = {worker.id: worker for worker in self.store.workers()}
        assert set(workers) == set(self.model.workers)
        for id, worker in self.model.workers.items():
            row, held = workers[id], self.model.held(id)
            assert (row.lease_until, row.lease, bool(row.draining)) == (
                worker.until,
                worker.lease,
                worker.draining,
            )
            assert row.held == len(held)
            assert set(self.store.held(id)) == {(run.pk, run.fence, run.id) for run in held}
            asked = {(run.id, run.cancel) for run in held if run.cancel is not None}
            assert set(self.store.cancels(id)) == asked
        reports = {drain.worker: drain for drain in self.store.drains()}
        assert set(reports) == set(self.model.drains)
        for id, report in self.model.drains.items():
            row = reports[id]
            assert (row.reason, row.began, row.ended, row.held) == (
                report.reason, report.began, report.ended, report.held
            )  # fmt: skip
            assert list(row.recoveries) == sorted(report.recoveries.values())
        assert set(self.store.dead_workers()) == self.model.seem_dead()


StoreMachine.TestCase.settings = settings(
    max_examples=MODEL_EXAMPLES,
    stateful_step_count=20,
    derandomize=bool(os.environ.get("CI")),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
TestStoreAgainstModel = StoreMachine.TestCase
