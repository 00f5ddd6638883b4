"""Run the demo's scenario: start workers, send signals, and wait for the end.

It waits for observable events, never for a fixed time alone.

    A   a worker, gets SIGTERM while the run `tides` is in a tool call; C starts at that moment
    B   a worker, gets SIGKILL while the run `bees` is in a streamed answer
    C   a worker, continues what both left, and `glaciers`, which only waited for its editor

The workers use the defaults of `outlast worker`, except for the number of slots: one each for A and
B, so that each has one run, and two for C.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from outlast.errors import StoreUnavailable
from outlast.store.address import store_at
from outlast.sync import Outlast
from outlast.tools.chaos.fleet import Fleet, Member
from outlast.tools.demo.agent import research
from outlast.tools.demo.library import ASKS, CUT, STOPPED, TOPICS
from outlast.tools.demo.model import Answer, Model, length_of
from outlast.tools.demo.observer import Observer, name_of
from outlast.tools.demo.outbox import Outbox
from outlast.tools.demo.state import Event, Mood, State
from outlast.tools.demo.view import View
from outlast.tools.demo.workspace import (
    QUEUE,
    DemoFailed,
    address_of,
    environ_of,
    isolated_environment,
    make_room,
)

AGENT = "outlast.tools.demo.agent"
POLL_SECONDS = 0.05
READ_SECONDS = 1.5
"""How long the scenario pauses where there is something to read."""
DEADLINE_SECONDS = 150.0
"""Scaled by the pace. START_SECONDS are added unscaled."""
START_SECONDS = 60.0
BAD = ("failed", "dead", "cancelled", "parked")


@dataclass
class Signals:
    """When each signal was sent, by `time.time()`, and the workers' exit codes."""

    term: float = 0.0
    kill: float = 0.0
    exit_codes: dict[str, int] = field(default_factory=dict)
    """Exit code of each worker, once it has ended."""


@dataclass
class ScenarioResult:
    """The result, for the checks. The rest is in the store."""

    address: str
    began: float
    seconds: float
    model: Model
    outbox: Outbox
    signals: Signals
    executions: dict[tuple[str, int], str]
    """Which worker executed which run, by the run's id and fence."""
    pids: dict[int, str]
    """Names of the workers, by process id."""
    surprises: list[str]
    events: list[Event]


class Scenario:
    def __init__(self, path: Path, view: View, *, pace: float = 1.0, agent: str = AGENT) -> None:
        """Prepare the scenario. `agent` is the module that the workers load."""
        self._path = path
        self._view = view
        self._pace = pace
        self._agent = agent
        self._address = address_of(path)
        self._model = Model(pace)
        self._outbox = Outbox()
        self._state = State()
        self._signals = Signals()
        self._began = time.monotonic()
        self._until = 0.0
        """When the scenario gives up, by `time.monotonic()`."""
        self._fleet: Fleet
        self._observer: Observer

    def run(self) -> ScenarioResult:
        """Run the scenario and leave no process behind, whatever happens.

        Raise DemoRefused before anything is created, or DemoFailed if the scenario does not finish.
        """
        make_room(self._path)
        with (
            TemporaryDirectory(prefix="outlast-demo-", ignore_cleanup_errors=True) as logs,
            isolated_environment(),
            self._model.open() as model,
            self._outbox.open() as outbox,
        ):
            environ = environ_of(os.environ, MODEL_URL=model, OUTBOX_URL=outbox)
            self._fleet = Fleet(0, self._command(slots=1), environ, Path(logs), followed=False)
            with (
                Outlast(self._address, signals=0) as app,
                closing(store_at(self._address)) as store,
            ):
                store.open()
                self._began = time.monotonic()
                began = time.time()
                self._until = self._began + DEADLINE_SECONDS / self._pace + START_SECONDS
                self._observer = Observer(
                    store, self._fleet, self._model, self._outbox, self._state, self._report
                )
                try:
                    self._play(app)
                finally:
                    self._fleet.end_all()
        return ScenarioResult(
            self._address,
            began,
            time.monotonic() - self._began,
            self._model,
            self._outbox,
            self._signals,
            self._observer.executions,
            {member.pid: name_of(member) for member in self._fleet.members},
            self._fleet.surprises,
            self._state.events,
        )

    def _command(self, *, slots: int) -> list[str]:
        options = ["--store", self._address, "--queue", QUEUE, "--log", "json"]
        return ["worker", self._agent, *options, "--concurrency", str(slots)]

    # -- the acts

    def _play(self, app: Outlast) -> None:
        seen = self._observer
        call = self._model.gate("search", STOPPED)
        stream = self._model.gate("answer", CUT)
        a = self._start_worker("A")
        self._wait_for("worker A to start", lambda: a.state == "alive")
        app.submit(research(ASKS, ask_first=True), id=ASKS, queue=QUEUE)
        self._wait_for(f"{ASKS} to wait for its editor", lambda: seen.is_waiting(ASKS))
        self._report(f"{ASKS} has asked its editor, and waits. No worker holds it")
        app.submit(research(STOPPED), id=STOPPED, queue=QUEUE)
        self._wait_for(f"{STOPPED} to begin on A", lambda: seen.is_on(STOPPED, a))
        b = self._start_worker("B")
        app.submit(research(CUT), id=CUT, queue=QUEUE)
        self._wait_for(f"{CUT} to begin on B", lambda: seen.is_on(CUT, b))
        self._wait_for(f"{STOPPED} to be in its last tool call", call.reached.is_set)
        self._terminate(a)
        c = self._start_worker("C", slots=2)
        self._pause()
        call.opened.set()
        self._wait_for("A to exit", lambda: a.gone)
        self._signals.exit_codes["A"] = a.process.returncode
        self._report(f"A has exited, with code {a.process.returncode}", "warn")
        self._wait_for(
            f"{CUT} to be in the middle of its answer",
            lambda: stream.reached.is_set() and c.state == "alive" and seen.answer_saved,
        )
        self._kill(b)
        stream.opened.set()
        self._wait_for(f"{CUT} to continue on C", lambda: seen.is_on(CUT, c) or seen.is_done(CUT))
        self._wait_for(f"{CUT} to continue its answer", lambda: len(self._answers()) > 1)
        token = self._answers()[1].first
        self._report(f"{CUT} continues its answer at token {token} of {length_of(CUT)}", "good")
        self._wait_for(
            f"{STOPPED} or {CUT} to end", lambda: seen.is_done(CUT) or seen.is_done(STOPPED)
        )
        app.send(ASKS, "approved", value=True)
        self._report(f"the editor approves, as with `outlast send {ASKS} approved true`")
        self._wait_for("every run to end", lambda: all(map(seen.is_done, TOPICS)))
        self._pause()
        self._fleet.term(c, kind="end")
        self._wait_for("C to exit", lambda: c.gone)
        self._signals.exit_codes["C"] = c.process.returncode

    def _terminate(self, a: Member) -> None:
        self._report(f"{STOPPED} is in a tool call on A; its answer is held until the signal")
        self._pause()
        self._signals.term = time.time()
        self._fleet.term(a)
        self._report(f"SIGTERM to A (process {a.pid}), in the middle of the tool call", "warn")

    def _kill(self, b: Member) -> None:
        token = self._answers()[0].sent
        self._signals.kill = time.time()
        self._fleet.kill(b)
        self._signals.exit_codes["B"] = b.process.returncode
        where = f"at token {token} of {length_of(CUT)} of an answer"
        self._report(f"SIGKILL to B (process {b.pid}), {where}", "bad")

    def _answers(self) -> list[Answer]:
        """Return the requests for the interrupted answer."""
        return [answer for answer in self._model.answers if answer.topic == CUT]

    def _start_worker(self, name: str, *, slots: int = 1) -> Member:
        self._fleet.command = self._command(slots=slots)
        member = self._fleet.start("ABC".index(name))
        self._report(f"worker {name} starts (process {member.pid})")
        return member

    # -- waiting

    def _pause(self) -> None:
        """Pause to let the user read."""
        until = time.monotonic() + READ_SECONDS / self._pace
        while time.monotonic() < until:
            self._tick()

    def _wait_for(self, what: str, is_so: Callable[[], bool]) -> None:
        """Wait until `is_so`. Raise DemoFailed if it can no longer become so, or takes too long."""
        while not is_so():
            if self._fleet.surprises:
                raise DemoFailed(f"while it waited for {what}: {self._fleet.surprises[0]}")
            for run in self._state.runs:
                if run.state in BAD:
                    why = self._observer.reason(run.id)
                    raise DemoFailed(f"while it waited for {what}: {run.id} is {run.state}. {why}")
            if time.monotonic() > self._until:
                tails = " ".join(f"{name_of(one)}: {one.tail()}" for one in self._fleet.members)
                raise DemoFailed(f"it waited too long for {what}. Last log lines: {tails}")
            self._tick()

    def _tick(self) -> None:
        self._fleet.look()
        # The store is busy: the next poll will succeed.
        with suppress(StoreUnavailable):
            self._observer.poll()
        self._view.show(self._state)
        time.sleep(POLL_SECONDS)

    def _report(self, text: str, mood: Mood = "plain") -> None:
        self._state.events.append(Event(time.monotonic() - self._began, text, mood))
        self._view.show(self._state)
