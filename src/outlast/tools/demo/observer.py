"""Observe the demo from outside: poll the store and the servers, and report what has changed."""

from __future__ import annotations

import time
from collections.abc import Callable

from outlast.store.protocol import Store
from outlast.store.rows import RunRow
from outlast.tools.chaos.fleet import Fleet, Member
from outlast.tools.demo.library import CUT, TOPICS
from outlast.tools.demo.model import Model
from outlast.tools.demo.outbox import Outbox
from outlast.tools.demo.state import Mood, RunState, State, WorkerState

STATES = {"alive": "working", "dead": "gone"}
Report = Callable[[str, Mood], None]


def name_of(member: Member) -> str:
    return "ABC"[member.lane]


class Observer:
    """Keep the state of the demo up to date, as of the last `poll`."""

    def __init__(
        self, store: Store, fleet: Fleet, model: Model, outbox: Outbox, state: State, report: Report
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._model = model
        self._outbox = outbox
        self._state = state
        self._report = report
        self._began = time.monotonic()
        self._names: dict[str, str] = {}
        """Names of workers, by their ids in the store."""
        self._rows: dict[str, RunRow] = {}
        self._released: set[str] = set()
        """Runs that a worker released in its drain."""
        self.executions: dict[tuple[str, int], str] = {}
        """Which worker executed which run, by the run's id and fence."""
        self.answer_saved = False
        """Whether the step that streams the answer of CUT has saved progress."""

    def poll(self) -> None:
        """Read the store and the servers. Raise StoreUnavailable and change nothing."""
        names = {member.pid: name_of(member) for member in self._fleet.members}
        self._names |= {row.id: names[row.pid] for row in self._store.workers() if row.pid in names}
        rows = {topic: row for topic in TOPICS if (row := self._store.run(topic)) is not None}
        answer_saved = CUT in rows and bool(self._store.progress(rows[CUT].pk))
        runs = [self._run_state(row) for row in rows.values()]
        # The store has answered everything: record all of it or nothing.
        before = self._rows
        self._rows = rows
        self.answer_saved = answer_saved
        for topic, row in rows.items():
            self._report_changes(topic, row, before.get(topic))
        self._state.seconds = time.monotonic() - self._began
        self._state.runs = runs
        self._state.workers = [self._worker_state(member) for member in self._fleet.members]
        self._state.messages = len(self._outbox.messages)
        self._state.tokens = self._model.used

    def is_done(self, topic: str) -> bool:
        return topic in self._rows and self._rows[topic].status == "done"

    def is_waiting(self, topic: str) -> bool:
        """Return whether the run waits and no worker holds it."""
        row = self._rows.get(topic)
        return row is not None and row.status == "waiting" and self._holder(row) is None

    def is_on(self, topic: str, member: Member) -> bool:
        return topic in self._rows and self._holder(self._rows[topic]) == name_of(member)

    def reason(self, topic: str) -> str:
        """Return why the run failed, was parked or became a dead letter."""
        row = self._rows[topic]
        return row.reason or row.error or ""

    def _holder(self, row: RunRow) -> str | None:
        return self._names.get(row.worker or "")

    def _report_changes(self, topic: str, row: RunRow, before: RunRow | None) -> None:
        if row.interruptions and topic not in self._released:
            self._released.add(topic)
            self._report(f"the tool call has ended and is recorded; A releases {topic}", "warn")
        name = self._holder(row)
        if name is not None and (topic, row.fence) not in self.executions:
            self.executions[topic, row.fence] = name
            if row.lives > 1:
                self._report(f"{topic} continues on {name}", "good")
            else:
                self._report(f"{topic} begins on {name}", "plain")
        if row.status == "done" and (before is None or before.status != "done"):
            self._report(f"{topic} is done, and its report is sent", "good")

    def _worker_state(self, member: Member) -> WorkerState:
        name = name_of(member)
        held = (id for id, row in self._rows.items() if self._holder(row) == name)
        return WorkerState(
            name,
            STATES.get(member.state, member.state),
            member.pid,
            () if member.gone else tuple(held),
        )

    def _run_state(self, row: RunRow) -> RunState:
        steps = sum(entry.kind in ("step", "message") for entry in self._store.journal(row.pk))
        doing = self._model.doing.get(row.id, "") if row.worker else ""
        return RunState(row.id, row.status, steps, doing)
