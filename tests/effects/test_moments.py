"""Every kind of step at every moment of death: real processes, and an outside world that keeps count. docs/guarantees.md has the table.

Each test has one process to which something happens at that moment, and a second one that goes on. What is promised is what the outside
world has seen in the end, and how the run ended.
"""

import signal
import sqlite3
from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest
from ledger_tools import Ledger, Program, until

from outlast.store.sqlite.store import SQLiteStore
from outlast.store.verbs import Send

PROGRAM = str(Path(__file__).parent / "programs_moments" / "moments.py")
SLEEP = 1.0
DONE = {
    "step": {"done": "x"}, "progress": {"done": 2}, "inner": {"done": "x"}, "verified": {"done": "x"}, "idempotent": {"done": "x"},
    "neither": {"done": "x"}, "compensation": {"failed": "no picnic"}, "unit": {"done": "home"}, "timer": {"done": None},
    "message": {"done": 7}, "child": {"done": "x"},
}  # fmt: skip
"""How each ends, if nobody has to decide."""


def effect_points(place: str, what: str) -> dict[str, str]:
    return {
        "before": f"before intent {place}",
        "intent": f"after intent {place}",
        "act": f"in act {what}",
        "happened": f"before step {place}",
        "recorded": f"after step {place}",
    }


POINTS = {
    "step": {"before": "after step first#1", "act": "in act x", "happened": "before step tell#1", "recorded": "after step tell#1"},
    "progress": {"before": "after step first#1", "act": "in act part 1", "happened": "in happened part 1", "recorded": "after step parts#1"},
    "inner": {"before": "in outer", "act": "in act x", "happened": "before inner *", "recorded": "after inner *"},
    "verified": effect_points("verified#1", "x"),
    "idempotent": effect_points("idempotent#1", "x"),
    "neither": effect_points("neither#1", "x"),
    "compensation": effect_points("undo:verified#2", "undo x"),
    "unit": effect_points("verified#2", "b"),
    "timer": {"before": "after step first#1", "act": "later step first#1", "happened": "before fired *", "recorded": "after fired *"},
    "message": {"before": "after step first#1", "act": "later step first#1", "happened": "before message *", "recorded": "after message *"},
    "child": {"before": "after step first#1", "act": "in act x", "happened": "before child *", "recorded": "after child *"},
}  # fmt: skip
"""Where each moment is. "act": in the middle; "happened": it has come about outside, and is not recorded."""

ONCE = {
    "step": {"x": 1}, "progress": {"part 0": 1, "part 1": 1}, "inner": {"x": 1}, "verified": {"x": 1}, "idempotent": {"x": 1},
    "neither": {"x": 1}, "compensation": {"w": 1, "x": 1, "undo w": 1, "undo x": 1}, "unit": {"a": 1, "b": 1, "undo a": 1, "undo b": 1},
    "timer": {}, "message": {}, "child": {"x": 1},
}  # fmt: skip
AGAIN = {
    "step": {"x": 2},
    "inner": {"x": 2},
    "progress": {"part 0": 1, "part 1": 2},  # what it had saved is not done again
}
"""What a step has done, and could not have recorded, is done again. Nothing else is."""


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    with Ledger(tmp_path_factory.mktemp("ledger")) as ledger:
        yield ledger


class Case:
    """A store, and its part of the outside world."""

    def __init__(self, folder: Path, ledger: Ledger, kind: str) -> None:
        self.folder, self.ledger, self.kind = folder, ledger, kind
        self.id = uuid4().hex
        """The ledger remembers fences by it."""

    def start(self, *befalls: str) -> Program:
        return Program(PROGRAM, self.folder, self.ledger.url, self.id, self.kind, *befalls)

    def send(self) -> None:
        store = SQLiteStore(self.folder / "outlast.db")
        store.open()
        try:
            until(lambda: store.run(self.id))
            assert store.commit([Send(self.id, "go", "m1", "7")]) == [None]
        finally:
            store.close()

    def journal(self, kind: str) -> list[float]:
        """When such entries were recorded."""
        with sqlite3.connect(self.folder / "outlast.db") as db:
            return [at for (at,) in db.execute("SELECT at FROM entries WHERE kind = ? ORDER BY at", (kind,))]

    def seen(self) -> dict[str, int]:
        """How often each thing was done outside."""
        lines = [line for line in self.ledger.lines("act", "undo") if line["run"].startswith(self.id)]
        return dict(Counter(line["body"]["what"] for line in lines))

    def goes_on(self) -> None:
        """A second process brings it to the same end."""
        if self.kind == "message":
            self.send()  # the same message again, where it was sent before
        assert self.start().result() == DONE[self.kind]
        if self.kind == "timer":
            [fired], [began, *_] = self.journal("fired"), self.journal("step")
            assert fired >= began + SLEEP
        if self.kind == "message":
            assert len(self.journal("message")) == 1

    def is_parked(self) -> None:
        """A second process finds out that nobody can tell."""
        [parked] = self.start().result().values()
        assert parked.startswith("unknown: neither#1: nobody can tell whether it happened.")


@pytest.fixture
def case(request, tmp_path, ledger):
    return Case(tmp_path, ledger, request.node.callspec.params["kind"])


@pytest.mark.parametrize(("kind", "moment"), [(kind, moment) for kind in POINTS for moment in POINTS[kind]])
def test_a_death(case, kind, moment):
    first = case.start("exit", POINTS[kind][moment])
    if kind == "message" and moment in ("happened", "recorded"):
        until((case.folder / "outlast.db").exists)
        case.send()
    assert first.wait() == 9, first.errors()
    if kind == "neither" and moment in ("intent", "act", "happened"):
        case.is_parked()
        assert case.seen() == ({"x": 1} if moment == "happened" else {})
    else:
        case.goes_on()
        assert case.seen() == (AGAIN.get(kind, ONCE[kind]) if moment == "happened" else ONCE[kind])


@pytest.mark.parametrize("kind", POINTS)
def test_a_takeover(case, kind):
    """The process is stopped in the middle, past its lease; another goes on; then it wakes."""
    first = case.start("stop", POINTS[kind]["act"])
    try:
        until(lambda: "T (stopped)" in Path(f"/proc/{first.pid}/status").read_text())
        if kind == "neither":
            case.is_parked()
            assert case.seen() == {}
        else:
            case.goes_on()
            assert case.seen() == ONCE[kind]
    finally:
        first.signal(signal.SIGCONT)
    first.wait()
    assert (
        case.seen() == ONCE[kind]
    )  # of "neither" nobody has asked: that it woke is for the person to find out
    assert len(case.journal("fired")) == (kind == "timer")


@pytest.mark.parametrize("kind", POINTS)
def test_a_drain(case, kind):
    """SIGTERM in the middle, with time enough."""
    first = case.start("drain", POINTS[kind]["act"])
    assert first.wait() == 75, first.errors()
    case.goes_on()
    assert case.seen() == ONCE[kind]


@pytest.mark.parametrize("kind", POINTS)
def test_an_outage(case, kind):
    """The store is out of reach from the middle on, for longer than the process has patience."""
    first = case.start("outage", POINTS[kind]["happened" if kind in ("message", "child") else "act"])
    if kind == "message":
        until((case.folder / "outlast.db").exists)
        case.send()
    assert first.wait() != 0
    assert "the store is out of reach" in first.errors()
    if kind == "neither":
        case.is_parked()
        assert case.seen() == {"x": 1}
    else:
        case.goes_on()
        assert case.seen() == AGAIN.get(kind, ONCE[kind]), first.errors()


EFFECTS = ["verified", "idempotent", "neither", "compensation", "unit"]


@pytest.mark.parametrize("kind", EFFECTS)
def test_what_comes_about_only_after_the_death_is_waited_for(case, kind):
    """Its request was sent, the process died, and only then it was done."""
    first = case.start("exit", POINTS[kind]["act"].replace("in act", "in flight"))
    assert first.wait() == 9, first.errors()
    before = dict(case.seen())
    if kind == "neither":
        case.is_parked()
    else:
        case.goes_on()
    assert case.seen() == ONCE[kind]
    assert before != ONCE[kind]


@pytest.mark.parametrize("kind", EFFECTS)
def test_nothing_is_done_outside_whose_intent_could_not_be_recorded(case, kind):
    first = case.start("outage", POINTS[kind]["before"])
    assert first.wait() != 0
    before = {"compensation": {"w": 1, "x": 1}, "unit": {"a": 1}}
    assert case.seen() == before.get(kind, {})
    case.goes_on()
    assert case.seen() == ONCE[kind]
