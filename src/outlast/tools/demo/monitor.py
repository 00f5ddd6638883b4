"""Watch the demo: report what changes in the store, and wait for a condition."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress

from rich.text import Text

from outlast.codec.exceptions import describe_error
from outlast.errors import StoreUnavailable
from outlast.shutdown.report import DrainReport
from outlast.store.protocol import Store, whole_journal
from outlast.store.rows import RunRow
from outlast.tools.chaos.fleet import Fleet, Member
from outlast.tools.demo.facts import Facts, RunFacts
from outlast.tools.demo.fake_services import FakeServices
from outlast.tools.demo.topics import KILLED, TOPICS
from outlast.tools.demo.view import Event, State, run_line, worker_line
from outlast.tools.demo.workspace import DemoFailed

POLL_SECONDS = 0.1
PAUSE_SECONDS = 1.5
"""How long the user gets to read an event before the next one. Divided by the pace."""
DEADLINE_SECONDS = 150.0
"""How long the scenario may take. Divided by the pace."""
START_SECONDS = 60.0
"""How much longer it may take because workers start slowly. Not divided by the pace."""
BAD_STATUSES = ("failed", "dead", "cancelled", "parked")


class Monitor:
    """Poll the store, the fake services and the worker processes, and show the state."""

    def __init__(
        self,
        store: Store,
        fleet: Fleet,
        services: FakeServices,
        show: Callable[[State], None],
        pace: float,
    ) -> None:
        self.answer_saved = False
        """Whether KILLED had saved a part of its answer at the last poll."""
        self._store = store
        self._fleet = fleet
        self._services = services
        self._show = show
        self._pace = pace
        self._began = time.monotonic()
        self._state = State()
        self._rows: dict[str, RunRow] = {}
        self._names: dict[str, str] = {}
        """Names of workers, by their ids in the store."""
        self._executions: set[tuple[str, int]] = set()
        """The executions that were reported, by the run's id and fence."""

    def start_worker(self, name: str, *, slots: int) -> Member:
        member = self._fleet.start("ABC".index(name), "--concurrency", str(slots))
        self.report(f"worker {name} starts (process {member.pid})")
        return member

    def report(self, text: str, style: str = "plain") -> None:
        """Add an event and show it."""
        self._state.seconds = time.monotonic() - self._began
        self._state.events.append(Event(self._state.seconds, text, style))
        self._show(self._state)

    def status(self, topic: str) -> str | None:
        """Return the run's status at the last poll, or None before it is submitted."""
        return self._rows[topic].status if topic in self._rows else None

    def holder(self, topic: str) -> str | None:
        """Return the name of the worker that held the run at the last poll."""
        return self._names.get(self._rows[topic].worker or "") if topic in self._rows else None

    def waits_for(self, topic: str, message: str) -> bool:
        """Return whether no worker held the run at the last poll because it waits for a message."""
        row = self._rows.get(topic)
        return row is not None and row.worker is None and message in row.waits.split("\n")

    # -- waiting

    def pause(self) -> None:
        """Let the user read."""
        until = time.monotonic() + PAUSE_SECONDS / self._pace
        while time.monotonic() < until:
            self._tick()

    def wait_for_exit(self, member: Member) -> None:
        name = _name(member)
        self.wait_for(f"{name} to exit", lambda: member.gone)
        self.report(f"{name} exits with code {member.process.returncode}")

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until the condition is true.

        Raise DemoFailed if a worker exited unexpectedly, a run failed, or the wait takes too long.
        """
        while not condition():
            problem = self._problem()
            if problem is not None:
                raise DemoFailed(f"the demo waited for {what}, but {problem}")
            if time.monotonic() - self._began > DEADLINE_SECONDS / self._pace + START_SECONDS:
                tails = " ".join(f"{_name(one)}: {one.tail()}" for one in self._fleet.members)
                raise DemoFailed(f"the demo waited too long for {what}. Last log lines: {tails}")
            self._tick()

    def _problem(self) -> str | None:
        if self._fleet.surprises:
            return self._fleet.surprises[0]
        for row in self._rows.values():
            if row.status in BAD_STATUSES:
                why = row.reason or (describe_error(row.error) if row.error else "")
                return f"{row.id} is {row.status}: {why}"
        return None

    def _tick(self) -> None:
        self._fleet.check()
        # If the store is busy, the next poll will succeed.
        with suppress(StoreUnavailable):
            self._poll()
        time.sleep(POLL_SECONDS)

    # -- polling

    def _poll(self) -> None:
        """Read the store and show the new state. If StoreUnavailable is raised, nothing changes."""
        names = {member.pid: _name(member) for member in self._fleet.members}
        workers = {row.id: names[row.pid] for row in self._store.workers() if row.pid in names}
        rows = {topic: row for topic in TOPICS if (row := self._store.run(topic)) is not None}
        answer_saved = KILLED in rows and bool(self._store.progress(rows[KILLED].pk))
        steps = {
            row.id: sum(entry.kind in ("step", "message") for entry in self._store.journal(row.pk))
            for row in rows.values()
        }
        before = self._rows
        self._names |= workers
        self._rows = rows
        self.answer_saved = answer_saved
        for topic, row in rows.items():
            self._report_changes(row, before.get(topic))
        self._update_state(steps)
        self._show(self._state)

    def _report_changes(self, row: RunRow, before: RunRow | None) -> None:
        if row.interruptions > (before.interruptions if before else 0):
            self.report(f"A records the result of the tool call and releases {row.id}", "warn")
        name = self.holder(row.id)
        if name is not None and (row.id, row.fence) not in self._executions:
            self._executions.add((row.id, row.fence))
            if row.lives > 1:
                self.report(f"{row.id} continues on {name}", "good")
            else:
                self.report(f"{row.id} starts on {name}")
        if row.status == "done" and (before is None or before.status != "done"):
            self.report(f"{row.id} is done and its report is sent", "good")

    def _update_state(self, steps: dict[str, int]) -> None:
        rows = self._rows.values()
        doing = {row.id: self._services.doing.get(row.id, "") if row.worker else "" for row in rows}
        unfinished = (row for row in rows if row.status != "done")
        state = self._state
        state.seconds = time.monotonic() - self._began
        state.workers = [self._worker_line(member) for member in self._fleet.members]
        state.runs = [run_line(row.id, row.status, steps[row.id], doing[row.id]) for row in rows]
        state.doing = "; ".join(f"{row.id} {doing[row.id] or row.status}" for row in unfinished)
        state.messages = len(self._services.traffic.messages)
        state.tokens = self._services.traffic.tokens

    def _worker_line(self, member: Member) -> Text:
        name = _name(member)
        if member.gone:
            killed = member.process.returncode == -signal.SIGKILL
            return worker_line(name, "killed" if killed else "exited", member.pid)
        held = [topic for topic in self._rows if self.holder(topic) == name]
        state = "working" if member.state == "alive" else member.state
        return worker_line(name, state, member.pid, held)

    # -- the end

    def facts(self) -> Facts:
        """Return the facts for the claims, once all workers are gone."""
        rows = [row for topic in TOPICS if (row := self._store.run(topic)) is not None]
        a = self._fleet.members[0]
        drains = (DrainReport.of(row) for row in self._store.drains() if row.pid == a.pid)
        return Facts(
            seconds=time.monotonic() - self._began,
            events=self._state.events,
            runs={row.id: RunFacts(row, tuple(whole_journal(self._store, row.pk))) for row in rows},
            traffic=self._services.traffic,
            exit_codes={_name(one): one.process.returncode for one in self._fleet.members},
            surprises=self._fleet.surprises,
            sigterm_at=a.faults[0][0],
            drain=next(drains, None),
        )


def _name(member: Member) -> str:
    """Return the name of a worker: A, B or C."""
    return "ABC"[member.lane]
