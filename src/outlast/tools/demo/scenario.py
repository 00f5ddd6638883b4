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
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from outlast.errors import StoreUnavailable
from outlast.store.address import store_at
from outlast.store.protocol import Store
from outlast.store.rows import RunRow
from outlast.sync import Outlast
from outlast.tools.chaos.fleet import Fleet, Member
from outlast.tools.demo.agent import research
from outlast.tools.demo.library import TOPICS
from outlast.tools.demo.model import Model, length_of
from outlast.tools.demo.outbox import Outbox
from outlast.tools.demo.state import Hand, Happening, Mood, State, Work
from outlast.tools.demo.view import View
from outlast.tools.demo.workspace import (
    QUEUE,
    DemoFailed,
    address_of,
    alone,
    environ_of,
    make_room,
    taken_turn,
)

AGENT = "outlast.tools.demo.agent"
TICK = 0.05
READ_SECONDS = 1.5
"""How long the scenario pauses where there is something to read."""
DEADLINE_SECONDS = 150.0
"""Scaled by the pace. START_SECONDS are added unscaled."""
START_SECONDS = 60.0
STOPPED, CUT, ASKS = "tides", "bees", "glaciers"
"""The runs: one whose worker is stopped, one whose worker is killed, one that asks its editor."""
BAD = ("failed", "dead", "cancelled", "parked")
STATES = {"alive": "working", "dead": "gone"}


@dataclass
class Struck:
    """When each signal was sent, by `time.time()`, and the workers' exit codes."""

    term: float = 0.0
    kill: float = 0.0
    codes: dict[str, int] = field(default_factory=dict)
    """Exit code of each worker, once it has ended."""


@dataclass
class ScenarioResult:
    """The result, for the checks. The rest is in the store."""

    address: str
    began: float
    seconds: float
    model: Model
    outbox: Outbox
    struck: Struck
    lives: dict[tuple[str, int], str]
    """Which worker executed which run, by the run's id and fence."""
    pids: dict[int, str]
    """Names of the workers, by process id."""
    surprises: list[str]
    happenings: list[Happening]


class Scenario:
    def __init__(self, path: Path, view: View, *, pace: float = 1.0, agent: str = AGENT) -> None:
        """Prepare the scenario. `agent` is the module that the workers load."""
        self._path, self._view, self._pace, self._agent = path, view, pace, agent
        self._address = address_of(path)
        self._model, self._outbox = Model(pace), Outbox()
        self._scene, self._struck = State(), Struck()
        self._names: dict[str, str] = {}
        """Names of workers, by their ids in the store."""
        self._lives: dict[tuple[str, int], str] = {}
        self._held: dict[str, str | None] = {}
        """Which worker holds each run."""
        self._rows: dict[str, RunRow] = {}
        """The runs at the last poll."""
        self._saved = False
        """Whether an unfinished step of CUT had saved progress at the last poll."""
        self._returned: set[str] = set()
        """Runs that a worker released in its drain."""
        self._began = self._until = 0.0
        self._fleet: Fleet
        self._store: Store

    def run(self) -> ScenarioResult:
        """Run the scenario and leave no process behind, whatever happens.

        Raise DemoRefused before anything is created, or DemoFailed if the scenario does not finish.
        """
        with ExitStack() as turn:
            turn.enter_context(taken_turn(self._path))
            make_room(self._path)
            began = self._play(turn.close)
        return ScenarioResult(
            self._address,
            began,
            time.monotonic() - self._began,
            self._model,
            self._outbox,
            self._struck,
            self._lives,
            {one.pid: _name(one) for one in self._fleet.members},
            self._fleet.surprises,
            self._scene.happenings,
        )

    def _play(self, is_open: Callable[[], None]) -> float:
        """Play all acts and return the start time, by `time.time()`.

        Call `is_open` as soon as others can see that the store is in use.
        """
        with (
            self._folder() as logs,
            alone(),
            self._model.open() as model,
            self._outbox.open() as outbox,
        ):
            environ = environ_of(os.environ, MODEL_URL=model, OUTBOX_URL=outbox)
            command = [
                "worker",
                self._agent,
                "--store",
                self._address,
                "--queue",
                QUEUE,
                "--log",
                "json",
            ]
            self._fleet = Fleet(0, [*command, "--concurrency", "1"], environ, logs, followed=False)
            with Outlast(self._address, signals=0) as app, self._opened():
                is_open()
                try:
                    self._began, began = time.monotonic(), time.time()
                    self._until = self._began + DEADLINE_SECONDS / self._pace + START_SECONDS
                    self._acts(app)
                finally:
                    self._fleet.end_all()
        return began

    # -- the acts

    def _acts(self, app: Outlast) -> None:
        call, stream = self._model.gate("search", STOPPED), self._model.gate("answer", CUT)
        a = self._worker("A")
        self._until_true(lambda: a.state == "alive", "worker A to start")
        app.submit(research(ASKS, ask_first=True), id=ASKS, queue=QUEUE)
        self._until_true(lambda: self._waits(ASKS), f"{ASKS} to wait for its editor")
        self._say(f"{ASKS} has asked its editor, and waits. No worker holds it")
        app.submit(research(STOPPED), id=STOPPED, queue=QUEUE)
        self._until_true(lambda: self._is_on(STOPPED, a), f"{STOPPED} to begin on A")
        b = self._worker("B")
        app.submit(research(CUT), id=CUT, queue=QUEUE)
        self._until_true(lambda: self._is_on(CUT, b), f"{CUT} to begin on B")
        self._until_true(call.reached.is_set, f"{STOPPED} to be in its last tool call")
        c = self._tell_to_stop(a)
        call.opened.set()
        self._until_true(lambda: a.gone, "A to end in an orderly way")
        self._struck.codes["A"] = a.process.returncode
        self._say(f"A is gone, with exit code {a.process.returncode}", "warn")
        self._until_true(
            lambda: stream.reached.is_set() and c.state == "alive" and self._saved,
            f"{CUT} to be in the middle of its answer",
        )
        self._kill(b)
        stream.opened.set()
        self._until_true(lambda: self._is_on(CUT, c) or self._is_done(CUT), f"{CUT} to go on, on C")
        self._until_true(lambda: len(self._answers(CUT)) > 1, f"{CUT} to go on with its answer")
        self._say(
            f"{CUT} goes on with its answer at token {self._answers(CUT)[1]} of {length_of(CUT)}",
            "good",
        )
        self._until_true(
            lambda: self._is_done(CUT) or self._is_done(STOPPED), f"{STOPPED} or {CUT} to end"
        )
        app.send(ASKS, "approved", value=True)
        self._say(f"the editor approves, as by `outlast send {ASKS} approved true`")
        self._until_true(lambda: all(map(self._is_done, TOPICS)), "every run to end")
        self._read()
        self._fleet.term(c, kind="end")
        self._until_true(lambda: c.gone, "C to end")
        self._struck.codes["C"] = c.process.returncode

    def _tell_to_stop(self, a: Member) -> Member:
        """Send SIGTERM to A and start C."""
        self._say(f"{STOPPED} is in a tool call on A; its answer is held until the signal")
        self._read()
        self._struck.term = time.time()
        self._fleet.term(a)
        self._say(f"SIGTERM to A (process {a.pid}), in the middle of the tool call", "warn")
        self._fleet.command = [*self._fleet.command[:-1], "2"]
        c = self._worker("C")
        self._read()
        return c

    def _kill(self, b: Member) -> None:
        words = next(one.sent for one in self._model.answers if one.topic == CUT)
        self._struck.kill = time.time()
        self._fleet.kill(b)
        self._struck.codes["B"] = b.process.returncode
        self._say(
            f"SIGKILL to B (process {b.pid}), at token {words} of {length_of(CUT)} of an answer",
            "bad",
        )

    def _answers(self, topic: str) -> list[int]:
        """Return where each request for the answer began."""
        return [one.first for one in self._model.answers if one.topic == topic]

    def _worker(self, name: str) -> Member:
        member = self._fleet.start("ABC".index(name))
        self._say(f"worker {name} starts (process {member.pid})")
        return member

    # -- waiting and polling

    def _read(self) -> None:
        """Pause to let the user read."""
        until = time.monotonic() + READ_SECONDS / self._pace
        while time.monotonic() < until:
            self._tick()

    def _until_true(self, is_so: Callable[[], bool], what: str) -> None:
        while not is_so():
            if self._fleet.surprises:
                raise DemoFailed(f"while it waited for {what}: {self._fleet.surprises[0]}")
            for work in self._scene.works:
                if work.state in BAD:
                    raise DemoFailed(
                        f"while it waited for {what}: {work.id} is {work.state}. "
                        f"{self._why(work.id)}"
                    )
            if time.monotonic() > self._until:
                tails = " ".join(f"{_name(one)}: {one.tail()}" for one in self._fleet.members)
                raise DemoFailed(
                    f"it waited too long for {what}. What the workers said last: {tails}"
                )
            self._tick()

    def _tick(self) -> None:
        self._fleet.look()
        # The store is busy: the next poll will succeed.
        with suppress(StoreUnavailable):
            self._look()
        self._view.show(self._scene)
        time.sleep(TICK)

    def _look(self) -> None:
        """Poll the store and the servers."""
        by_pid = {member.pid: _name(member) for member in self._fleet.members}
        self._names |= {
            row.id: by_pid[row.pid] for row in self._store.workers() if row.pid in by_pid
        }
        rows = {topic: row for topic in TOPICS if (row := self._store.run(topic)) is not None}
        saved = CUT in rows and bool(self._store.progress(rows[CUT].pk))
        works = [self._work(row) for row in rows.values()]
        # The store has answered everything: record all of it or nothing.
        self._rows, self._saved = rows, saved
        for topic, row in rows.items():
            self._note(topic, row)
        scene = self._scene
        scene.seconds = time.monotonic() - self._began
        scene.works = works
        self._held = {topic: self._names.get(row.worker or "") for topic, row in rows.items()}
        scene.hands = [
            Hand(
                _name(one),
                STATES.get(one.state, one.state),
                one.pid,
                tuple(
                    topic
                    for topic, name in self._held.items()
                    if name == _name(one) and not one.gone
                ),
            )
            for one in self._fleet.members
        ]
        scene.messages, scene.tokens = len(self._outbox.messages), self._model.used

    def _note(self, topic: str, row: RunRow) -> None:
        """Report what became of a run."""
        if row.interruptions and topic not in self._returned:
            self._returned.add(topic)
            self._say(f"the tool call has ended and is on record; {topic} is given back", "warn")
        name = self._names.get(row.worker or "")
        if name is not None and (topic, row.fence) not in self._lives:
            self._lives[topic, row.fence] = name
            again = row.lives > 1
            self._say(
                f"{topic} {'goes on,' if again else 'begins'} on {name}",
                "good" if again else "plain",
            )
        if row.status == "done" and not self._is_done(topic):
            self._say(f"{topic} is done, and its report is sent", "good")

    def _work(self, row: RunRow) -> Work:
        steps = sum(one.kind in ("step", "message") for one in self._store.journal(row.pk))
        return Work(
            row.id, row.status, steps, self._model.doing.get(row.id, "") if row.worker else ""
        )

    def _is_done(self, topic: str) -> bool:
        return self._state(topic) == "done"

    def _waits(self, topic: str) -> bool:
        return self._state(topic) == "waiting" and self._held[topic] is None

    def _is_on(self, topic: str, member: Member) -> bool:
        return self._held.get(topic) == _name(member)

    def _why(self, topic: str) -> str:
        row = self._rows[topic]
        return row.reason or row.error or ""

    def _state(self, topic: str) -> str | None:
        return next((one.state for one in self._scene.works if one.id == topic), None)

    def _say(self, text: str, mood: Mood = "plain") -> None:
        self._scene.happenings.append(Happening(time.monotonic() - self._began, text, mood))
        self._view.show(self._scene)

    # -- resources

    @contextmanager
    def _opened(self) -> Iterator[None]:
        self._store = store_at(self._address)
        self._store.open()
        try:
            yield
        finally:
            self._store.close()

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        """Create the folder of the workers' logs, and remove it.

        An error's text includes the logs.
        """
        folder = Path(tempfile.mkdtemp(prefix="outlast-demo-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _name(member: Member) -> str:
    return "ABC"[member.lane]
