from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from cli_processes import CommandClock
from effect_tools import TRIPS

from outlast.store.address import store_at
from outlast.store.commands import Record, RegisterWorker, Release, Submit
from outlast.store.rows import RunRow
from outlast.testing.store_images import empty_file
from support.cli import Answer, answer_of

PROGRAM = """
from __future__ import annotations

import datetime
from dataclasses import dataclass

from outlast import receive, step, workflow


@dataclass
class Topic:
    name: str
    when: datetime.date


@step
async def research(topic: str) -> str:
    if topic == "bad":
        raise RuntimeError("boom")
    return f"notes on {topic}"


@workflow
async def report(topic: str) -> str:
    print("the program prints")
    return await research(topic)


@workflow
async def echo(value: object = None) -> object:
    return value


@workflow(name="dated")
async def typed(topic: Topic, *rest: int, flag: bool = False) -> list:
    return [topic.name, topic.when.year, list(rest), flag]


@workflow
async def waits(step_first: bool = False) -> str:
    return await receive("approval", str)


not_a_workflow = 1
"""


class Place:
    """A folder of a user: a program, a store, and the command line in it."""

    away = "postgresql://postgres@127.0.0.1:1/nobody"
    """A store that cannot be used now: nobody listens there."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.db = folder / "outlast.db"
        self.address = f"sqlite:///{self.db}"

    def __call__(self, *words: str) -> Answer:
        answer = answer_of(words, self._capsys)
        assert "Traceback" not in answer.err or "could not be imported" in answer.err
        return answer

    def commit(self, *commands: Any) -> list[Any]:
        """Write into the store what would be tedious to bring about."""
        if not self.db.exists():
            empty_file(self.db)
        store = store_at(self.address)
        store.open()
        try:
            return store.commit(commands)
        finally:
            store.close()

    def row(self, id: str) -> RunRow:
        store = store_at(self.address)
        store.open()
        try:
            found = store.run(id)
        finally:
            store.close()
        assert found is not None
        return found

    def submitted(
        self, id: str, workflow: str = "report", args: str = '{"topic":"tides"}', **fields: Any
    ) -> RunRow:
        submitted = self.commit(Submit(id, workflow, args, f"token of {id}", "00" * 16, **fields))[
            0
        ]
        return submitted.row or self.row(id)  # of one that nobody holds there is nothing to tell

    def started(
        self, id: str, workflow: str = "report", args: str = '{"topic":"tides"}', lease: float = 1e6
    ) -> RunRow:
        """Held by a worker, alive unless its lease is over."""
        worker = "living" if lease > 0 else "gone"
        submit = Submit(id, workflow, args, f"token of {id}", "00" * 16, worker=worker)
        submitted = self.commit(RegisterWorker(worker, "some-host", 4242, lease), submit)[1]
        return submitted.row or self.row(id)

    def registered(
        self, worker="w1", lease=1e6, queues=("default",), workflows=("report",), concurrency=4
    ) -> None:
        """Register a worker that claims."""
        self.commit(
            RegisterWorker(worker, "some-host", 4242, lease, queues, workflows, concurrency)
        )

    def item(self, id: str, queue: str = "mail", **fields: Any) -> RunRow:
        return self.submitted(f"{queue}/{id}", "", '{"to":"ann"}', queue=queue, **fields)

    def dead_item(self, id: str = "i1") -> None:
        self.commit(RegisterWorker("living", "some-host", 4242, 1e6))
        row = self.item(id, worker="living", attempts_max=1)
        self.commit(Release(row.pk, row.fence, "no such address", interrupted=False, failed=True))
        assert self.row(row.id).status == "dead"

    def entry(self, row: RunRow, seq: int, kind: str, key: str = "", **fields: Any) -> None:
        assert self.commit(
            Record(row.pk, seq, row.fence, kind, key, row.created + seq, **fields)
        ) == [None]


@pytest.fixture
def outlast(tmp_path, monkeypatch, capsys):
    (tmp_path / "agent.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("OUTLAST_STORE", raising=False)
    before = set(sys.modules)
    yield Place(tmp_path, capsys)
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> CommandClock:
    """The clock of `outlast drain`, in which sleeping takes no time."""
    clock = CommandClock()
    monkeypatch.setattr("outlast.cli.drain.time", clock)
    return clock


@pytest.fixture
def watched(monkeypatch):
    """Press Ctrl-C after this many reads."""

    def until(looks):
        left = iter(range(looks - 1))

        def sleep(_):
            if next(left, None) is None:
                raise KeyboardInterrupt

        monkeypatch.setattr("outlast.cli.watch.time.sleep", sleep)

    return until


@pytest.fixture
def trips(outlast, monkeypatch):
    """Return the command line with the workflows of `effect_tools`, whose effects can fail."""
    monkeypatch.setenv("OUTLAST_EFFECT_MARGIN", "0")
    (outlast.folder / "trips.py").write_text(TRIPS)
    outlast.lose = lambda *what: (outlast.folder / "lost").write_text(" ".join(what))
    outlast.lose()
    outlast.trip = lambda *words: outlast("run", "trips.py:trip", *words, "--id", "t1")
    return outlast


@pytest.fixture
def unknown(trips):
    """Park a trip: the flight is booked, and the outcome of booking the hotel is unknown."""
    trips.lose("hotel")
    assert trips.trip().code == 5
    return trips


@pytest.fixture
def stuck(trips):
    """Park a trip that is being undone: the hotel is, the flight cannot be, the file is next."""
    trips.lose("unflight")
    assert trips.trip("true").code == 5
    return trips
