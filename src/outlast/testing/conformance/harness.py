"""What the promises are written with: a clock moved by hand, and a desk with short words for the verbs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, ClassVar, TypeAlias

import pytest

from outlast.store.protocol import Store
from outlast.store.rows import RunRow
from outlast.store.verbs import Claim, Enlist, Record, Refused, Settle, Submit, Submitted, Verb

LEASE = 60.0


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += seconds


MakeStore: TypeAlias = Callable[[Callable[[], float]], Store]
Opened: TypeAlias = Callable[[], Store]


class Desk:
    """One open store. Each helper does one verb and insists that it was not refused, except `one` and `record`."""

    def __init__(self, store: Store, clock: HandClock) -> None:
        self.store, self.clock = store, clock
        self._count = count(1)

    def token(self) -> str:
        return f"token-{next(self._count)}"

    def commit(self, *verbs: Verb) -> list[Any]:
        return self.store.commit(verbs)

    def one(self, verb: Verb) -> Any:
        (outcome,) = self.store.commit([verb])
        return outcome

    def enlist(self, worker: str = "w1", lease: float = LEASE) -> str:
        self.store.hold(worker)
        assert self.one(Enlist(worker, "host", 1, lease)) is None
        return worker

    def submit(self, id: str = "r", **fields: Any) -> RunRow:
        fields = {"workflow": "flow", "args": "[]", "token": self.token(), "seed": "seed"} | fields
        outcome = self.one(Submit(id=id, **fields))
        assert isinstance(outcome, Submitted), outcome
        assert outcome.new
        return outcome.row

    def held(self, id: str = "r", worker: str = "w1", **fields: Any) -> RunRow:
        """A new run that the worker executes."""
        if worker not in [known.id for known in self.store.workers()]:
            self.enlist(worker)
        return self.submit(id, worker=worker, **fields)

    def claim(self, worker: str = "w1", **fields: Any) -> list[RunRow]:
        if worker not in [known.id for known in self.store.workers()]:
            self.enlist(worker)
        rows: list[RunRow] | Refused = self.one(Claim(worker, self.token(), **fields))
        assert isinstance(rows, list), rows
        return rows

    def take(self, id: str = "r", worker: str = "w1") -> RunRow:
        (row,) = self.claim(worker, ids=(id,))
        return row

    def record(self, row: RunRow, seq: int, **fields: Any) -> Any:
        return self.one(entry(row, seq, **fields))

    def settle(self, row: RunRow, status: str = "done", **fields: Any) -> None:
        assert self.one(Settle(row.pk, row.fence, status, **fields)) is None

    def ended(self, id: str = "r", status: str = "done", **fields: Any) -> RunRow:
        """A new run that has ended so (or was parked)."""
        self.settle(self.held(id, **fields), status, reason="because")
        return self.row(id)

    def row(self, id: str = "r") -> RunRow:
        row = self.store.run(id)
        assert row is not None
        return row

    def kinds(self, row: RunRow) -> list[str]:
        return [entry.kind for entry in self.store.journal(row.pk)]


def entry(row: RunRow, seq: int, **fields: Any) -> Record:
    defaults: dict[str, Any] = {"kind": "step", "key": f"flow/step#{seq}", "at": 1.5}
    return Record(run=row.pk, seq=seq, fence=row.fence, **(defaults | fields))


class Promises:
    """The fixtures. `make_store` is the only one that a store's own suite must give."""

    shared: ClassVar[bool] = False
    """Several objects, and processes, may have it open at once."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        raise NotImplementedError("give a fixture make_store: see outlast.testing.conformance")

    @pytest.fixture
    def clock(self) -> HandClock:
        return HandClock()

    @pytest.fixture
    def opened(self, make_store: MakeStore, clock: HandClock) -> Iterator[Opened]:
        """Opens one more store at the test's place; all are closed at the end."""
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
    def desk(self, opened: Opened, clock: HandClock) -> Desk:
        return Desk(opened(), clock)
