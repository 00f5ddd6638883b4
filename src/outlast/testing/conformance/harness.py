"""Provide what the contracts need: a manual clock, and short helpers for the commands."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, ClassVar, TypeAlias, cast

import pytest

from outlast.store.commands import (
    ITEM,
    Claim,
    Command,
    Record,
    Refused,
    RegisterWorker,
    Release,
    Renew,
    Settle,
    Submit,
    Submitted,
    Sweep,
    Swept,
)
from outlast.store.protocol import Store
from outlast.store.rows import (
    ENDED,
    NEVER,
    NEW_HELD_BACK,
    Entry,
    ExecutionRow,
    QueueRow,
    RunQuery,
    RunRow,
    Status,
)

LEASE = 60.0
WAIT_SECONDS = 60.0
"""How long a test waits for something that must happen. Matters only when the test fails."""
EVERYTHING = RunQuery(limit=1_000_000)
NOBODY = Swept((), (), ())


class ManualClock:
    """Stand still until the test moves the clock."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def forward(self, seconds: float) -> None:
        """Move the clock forward, or back with a negative number, as real clocks do."""
        self.now += seconds


MakeStore: TypeAlias = Callable[[Callable[[], float]], Store]
"""Creates an unopened store on a clock, at the same location each time."""
Opened: TypeAlias = Callable[[], Store]


class StoreDriver:
    """Drive one open store.

    Each helper issues one command and asserts that it was not refused, except `one` and `record`.
    """

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self._count = count(1)

    def token(self) -> str:
        return f"token-{next(self._count)}"

    def commit(self, *commands: Command) -> list[Any]:
        return self.store.commit(commands)

    def one(self, command: Command) -> Any:
        (outcome,) = self.store.commit([command])
        return outcome

    def register_worker(self, worker: str = "w1", lease: float = LEASE) -> str:
        self.store.acquire_liveness(worker)
        assert self.one(RegisterWorker(worker, "host", 1, lease)) is None
        return worker

    def submit(self, id: str = "r", **fields: Any) -> RunRow:
        """Submit a new run, and return its row as read back."""
        fields = {"workflow": "flow", "args": "[]", "token": self.token(), "seed": "seed"} | fields
        outcome = self.one(Submit(id=id, **fields))
        assert isinstance(outcome, Submitted), outcome
        assert outcome.new
        row = self.row(id)
        if outcome.row is not None:
            assert outcome.row == row
        return row

    def put(self, id: str = "i", queue: str = "items", **fields: Any) -> RunRow:
        """Submit a new item, and return its row."""
        return self.submit(id, queue=queue, workflow=ITEM, **fields)

    def held(self, id: str = "r", worker: str = "w1", **fields: Any) -> RunRow:
        """Submit a new run that the worker executes, and return its row."""
        if worker not in [known.id for known in self.store.workers()]:
            self.register_worker(worker)
        return self.submit(id, worker=worker, **fields)

    def claim(self, worker: str = "w1", **fields: Any) -> list[RunRow]:
        if worker not in [known.id for known in self.store.workers()]:
            self.register_worker(worker)
        rows: list[RunRow] | Refused = self.one(Claim(worker, self.token(), **fields))
        assert isinstance(rows, list), rows
        return rows

    def claim_again(self, row: RunRow) -> list[RunRow]:
        """Repeat the claim that gave a run to its worker."""
        assert row.worker is not None
        assert row.token is not None
        rows: list[RunRow] = self.one(Claim(row.worker, row.token, ids=(row.id,)))
        return rows

    def take(self, id: str = "r", worker: str = "w1") -> RunRow:
        (row,) = self.claim(worker, ids=(id,))
        return row

    def release(self, row: RunRow, reason: str = "drain", **fields: Any) -> str:
        status = self.one(Release(row.pk, row.fence, reason, **fields))
        assert isinstance(status, str), status
        return status

    def wait(self, row: RunRow, due: float = NEVER, **fields: Any) -> RunRow:
        """Release a run that waits, and return its row afterwards."""
        assert self.release(row, "waits", waiting=True, due=due, **fields) == "waiting"
        return self.row(row.id)

    def renew(self, worker: str = "w1", lease: float = LEASE, *, draining: bool = False) -> None:
        assert self.one(Renew(worker, lease, draining)) is None

    def sweep(self, **fields: Any) -> Swept:
        swept = self.one(Sweep(**fields))
        assert isinstance(swept, Swept), swept
        return swept

    def lease_over(self, *alive: str, lease: float = LEASE, **fields: Any) -> Swept:
        """Let a whole lease pass with regular sweeps, while the workers in `alive` renew.

        Return everything that was swept.
        """
        swept = [self.sweep(**fields)]
        for _ in range(4):
            self.clock.forward(lease / 4)
            for worker in alive:
                self.renew(worker)
            swept.append(self.sweep(**fields))
        return Swept(*(sum(parts, ()) for parts in zip(*swept, strict=True)))

    def die(self, row: RunRow, **fields: Any) -> RunRow:
        """Let the worker of a held run die, and return the run's row after the sweep."""
        assert row.worker is not None
        assert row.id in self.lease_over(**fields).runs
        return self.row(row.id)

    def suspect(self, id: str = "r", **fields: Any) -> RunRow:
        """Return a new, unheld run that died twice without recording anything."""
        self.die(self.held(id, "first", **fields))
        row = self.die(self.take(id, "second"), backoff=0.0)
        assert (row.deaths_in_a_row, row.ready) == (2, 2)
        return row

    def record(self, row: RunRow, seq: int, **fields: Any) -> Any:
        return self.one(entry(row, seq, **fields))

    def settle(self, row: RunRow, status: str = "done", **fields: Any) -> None:
        assert self.one(Settle(row.pk, row.fence, cast("Status", status), **fields)) is None

    def ended(self, id: str = "r", status: str = "done", **fields: Any) -> RunRow:
        """Return a new run that has ended with this status, or was parked."""
        self.settle(self.held(id, **fields), status, reason="because")
        return self.row(id)

    def row(self, id: str = "r") -> RunRow:
        row = self.store.run(id)
        assert row is not None
        return row

    def kinds(self, row: RunRow) -> list[str]:
        return [entry.kind for entry in self.store.journal(row.pk)]

    def check(self) -> None:
        """Check the invariants of any store, after a claim that searched and took nothing."""
        assert self.claim("checker", workflows=("a workflow that nobody has",)) == []
        check_rows(self.store)


def entry(row: RunRow, seq: int, **fields: Any) -> Record:
    defaults: dict[str, Any] = {"kind": "step", "key": f"flow/step#{seq}", "at": 1.5}
    return Record(run=row.pk, seq=seq, fence=row.fence, **(defaults | fields))


def seen_of(driver: StoreDriver, row: RunRow) -> tuple[float | None, str | None]:
    """Return when the run's last worker was last seen, and how, from the journal's last entry."""
    facts = json.loads(driver.store.journal(row.pk)[-1].value or "{}")
    return facts.get("seen"), facts.get("by")


def check_rows(store: Store) -> None:
    """Check the invariants of the rows.

    Queue counts match the rows, `ready` is what a claim finds, and a run has a worker and a valid
    fence or neither.
    """
    now, rows = store.now(), store.runs(EVERYTHING)
    queues = {queue.name: queue for queue in store.queues()}
    assert list(queues) == sorted({row.queue for row in rows} | set(queues))
    for name, queue in queues.items():
        there = [row for row in rows if row.queue == name]
        statuses = Counter(row.status for row in there)
        assert (queue.queued, queue.waiting, queue.parked, queue.dead) == (
            statuses["queued"], statuses["waiting"], statuses["parked"], statuses["dead"]
        ), queue  # fmt: skip
        assert queue.running == sum(
            row.status == "running" and row.parent is None for row in there
        ), queue
        due = [row.created for row in there if row.status == "queued" and row.due <= now]
        assert queue.oldest == min(due, default=None), queue
        assert store.depth(name) == queue.ready
        check_apart(queue, there, now)
    held = Counter(row.worker for row in rows if row.worker is not None)
    assert all(worker.held == held[worker.id] for worker in store.workers())
    for row in rows:
        claimable = row.status in ("queued", "waiting") and row.due <= now
        assert row.ready == (readiness(row) if claimable else 0), row
        assert (row.turn is not None) == (row.key is not None and row.ready > 0), row
        assert (row.worker is not None) == (row.status == "running") == (row.fence > 0), row
        assert (row.ended is not None) == (row.status in ENDED), row
        if row.lives > 1:
            check_fences(row, store.journal(row.pk))
        check_executions(row, store.executions(row.pk))


def readiness(row: RunRow) -> int:
    """Return what `ready` must be for a run that is due. A run with a key may be held back."""
    level = 2 if row.is_suspect else 1
    if row.key is None or row.undoing is not None or row.ready > 0:
        return level
    return NEW_HELD_BACK if row.started is None else -level


def check_apart(queue: QueueRow, rows: Sequence[RunRow], now: float) -> None:
    """Check the counts of returned runs and of runs being compensated."""
    returned = [
        row
        for row in rows
        if row.status == "queued" and (row.interrupted is not None or row.deaths_in_a_row)
    ]
    assert queue.returned == len(returned), queue
    assert queue.returned_since == min(
        (row.due for row in returned if 0 < row.due <= now), default=None
    ), queue
    undoing = Counter(row.status for row in rows if row.undoing is not None)
    assert queue.undoing == undoing["queued"] + undoing["running"] + undoing["waiting"], queue
    assert queue.stuck == undoing["parked"], queue
    assert queue.delayed == sum(row.is_delayed(now) for row in rows), queue


def check_fences(row: RunRow, journal: Sequence[Entry]) -> None:
    """Check that no stale writer got in.

    Fences never decrease, a void fence is not written under again, and none exceeds the run's own.
    """
    last = 0
    for one in journal:
        assert abs(one.fence) > abs(last) or (abs(one.fence) == abs(last) and one.fence <= last), (
            row,
            journal,
        )
        last = one.fence
    assert abs(last) <= abs(row.fence), (row, journal)


def check_executions(row: RunRow, executions: Sequence[ExecutionRow]) -> None:
    """Check that the executions are in order, and that only the last one may go on."""
    fences = [one.fence for one in executions]
    assert fences == sorted(set(fences)), executions
    # A retry of a run that never started counts as a life.
    assert row.lives - 1 <= len(executions) <= row.lives, (row, executions)
    assert (row.started is None) == (not executions), (row, executions)
    for one in executions[:-1]:
        assert one.ended is not None, executions
    if executions:
        last = executions[-1]
        assert (last.fence, last.ended is None) == (abs(row.fence), row.worker is not None), row
        assert executions[0].began == row.started, (row, executions)
        assert row.worker in (None, last.worker), (row, executions)


class Contract:
    """Provide the fixtures. A store's own suite only has to provide `make_store`."""

    shared: ClassVar[bool] = False
    """Whether several objects and processes may have the store open at once."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        raise NotImplementedError("give a fixture make_store: see outlast.testing.conformance")

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def opened(self, make_store: MakeStore, clock: ManualClock) -> Iterator[Opened]:
        """Return a function that opens another store at the test's location, closed at the end."""
        stores: list[Store] = []

        def open_one() -> Store:
            store = make_store(clock)
            store.open()
            stores.append(store)
            return store

        yield open_one
        for store in reversed(stores):
            store.close()

    @pytest.fixture
    def driver(self, opened: Opened, clock: ManualClock) -> Iterator[StoreDriver]:
        """Yield a driver, and check that the test left the store consistent."""
        driver = StoreDriver(opened(), clock)
        yield driver
        driver.check()
