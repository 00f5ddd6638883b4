"""Every kind of step at every moment of death, on a virtual clock. docs/guarantees.md has the table.

Something happens to a first process at that moment, and a second process takes over. The tests check what the outside world has seen in
the end and how the run ended.
"""

import asyncio
import threading

import moments
import pytest
from moments import FOREVER, SLEEP_SECONDS, Interruption, Outside, Rain, one

from outlast import RunParked, StoreUnavailable
from outlast.store.commands import Send
from outlast.testing.crash_points import Crash

DONE = {
    "step": "x", "progress": 2, "inner": "x", "verified": "x", "idempotent": "x", "neither": "x", "compensation": "no picnic", "unit": "home",
    "timer": None, "message": 7, "child": "x",
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
    "progress": {"part 0": 1, "part 1": 2},  # the part that it had saved is not done again
}
"""A step that has done something and could not record it does it again. Nothing else does."""


class Case:
    """A store, its outside world, and the processes that execute a run one after the other."""

    def __init__(self, world, kind: str) -> None:
        self.world, self.kind = world, kind
        moments.outside = Outside(world.clock)
        self.interruption = Interruption()
        self.is_sent = True
        """Whether the message is sent when the next process executes the run."""

    def interrupt(self, moment: str, strike=lambda: None, **options) -> Interruption:
        """Let `strike` be called at one moment of the process that is alive now."""
        self.interruption = moments.interruption = Interruption(moment, strike, **options)
        self.interruption.watch(self.world.store)
        return self.interruption

    def dies(self, moment: str, *, receives: bool = False) -> None:
        """Pull the plug at this moment."""
        store, sent = self.world.store, []

        def send() -> None:
            if receives and not sent:
                sent.append(True)
                self.send(store)

        def crash() -> None:
            raise Crash

        self.interrupt(moment, crash, pause_seconds=FOREVER)
        self.world.die(one(self.kind), until=send)
        assert self.interruption.has_struck

    def loses_its_store(self, moment: str) -> None:
        """Let the store take nothing from the first process from this moment on."""
        self.world.restart(
            store_patience=0.05, close_timeout=1.0
        )  # in real seconds: the outage has no end
        self.interrupt(moment).is_last_commit = True
        with pytest.raises(StoreUnavailable, match="the store is out of reach"):
            self.world.do(self.main)
        assert self.interruption.has_struck
        self.world.restart()

    def send(self, store) -> None:
        assert store.commit([Send("run", "go", "m1", "7")]) == [None]

    async def main(self, app):
        """Execute the run in this process. Return how it ended."""
        run = await app.start(one(self.kind), id="run")
        if self.kind == "message" and self.is_sent:
            self.send(app.store)  # the same message again, where it was sent before
        try:
            return await run.result(timeout=10 * FOREVER)
        except Rain as rain:
            return str(rain)

    def seen(self) -> dict[str, int]:
        return moments.outside.seen()

    def journal(self, kind: str) -> list[float]:
        """Return when such entries were recorded."""
        return [entry.at for entry in self.world.journal() if entry.kind == kind]

    def goes_on(self, app=None) -> None:
        """Let a second process bring it to the same end."""
        moments.interruption, self.is_sent = Interruption(), True
        app = app or self.world.app
        assert app.do(self.main) == DONE[self.kind]
        if self.kind == "timer":
            [fired], [began, *_] = self.journal("fired"), self.journal("step")
            assert fired >= began + SLEEP_SECONDS
        if self.kind == "message":
            assert len(self.journal("message")) == 1

    def is_parked(self, app=None) -> None:
        """Let a second process find out that nobody can tell."""
        moments.interruption = Interruption()
        app = app or self.world.app
        with pytest.raises(RunParked) as parked:
            app.do(self.main)
        assert parked.value.reason.startswith(
            "unknown: neither#1: Outlast cannot determine whether it happened."
        )


@pytest.fixture
def case(request, memory_world):
    return Case(memory_world, request.node.callspec.params["kind"])


@pytest.fixture
def file_case(request, file_world):
    return Case(file_world, request.node.callspec.params["kind"])


@pytest.mark.parametrize(
    ("kind", "moment"), [(kind, moment) for kind in POINTS for moment in POINTS[kind]]
)
def test_run_continues_after_a_death_at_each_moment(case, kind, moment):
    case.dies(
        POINTS[kind][moment], receives=kind == "message" and moment in ("happened", "recorded")
    )
    if kind == "neither" and moment in ("intent", "act", "happened"):
        case.is_parked()
        assert case.seen() == ({"x": 1} if moment == "happened" else {})
    else:
        case.goes_on()
        assert case.seen() == (AGAIN.get(kind, ONCE[kind]) if moment == "happened" else ONCE[kind])


@pytest.mark.parametrize("kind", POINTS)
def test_run_is_taken_over_from_a_stopped_process(file_case, kind):
    """The process is stopped in the middle, past its lease; another goes on; then it wakes."""
    case, failures = file_case, []

    def other_process() -> None:
        try:
            other = case.world.another()
            if kind == "neither":
                case.is_parked(other)
                assert case.seen() == {}
            else:
                case.goes_on(other)
                assert case.seen() == ONCE[kind]
        except BaseException as failure:
            failures.append(failure)

    def stop() -> None:
        """Block this process's event loop until the other process has ended."""
        thread = threading.Thread(target=other_process)
        thread.start()
        thread.join()

    case.is_sent = False
    case.interrupt(POINTS[kind]["act"], stop)
    if kind == "neither":
        with pytest.raises(RunParked):
            case.world.do(case.main)
    else:
        assert case.world.do(case.main) == DONE[kind]
    assert failures == []
    assert case.interruption.has_struck
    # Nobody has asked about "neither" outside: a person finds out that it woke and did it.
    assert case.seen() == ONCE[kind]
    assert len(case.journal("fired")) == (kind == "timer")


@pytest.mark.parametrize("kind", POINTS)
def test_run_continues_elsewhere_after_a_drain(case, kind):
    """A drain begins in the middle, with time enough."""
    drains = []

    async def main(app):
        def drain() -> None:
            drains.append(asyncio.ensure_future(app.drain("test", grace=300)))

        case.interrupt(POINTS[kind]["act"], drain, pause_seconds=1.0)
        await app.start(one(kind), id="run")
        await app.wait_drain()
        return (await drains[0]).left

    assert case.world.do(main) == []
    case.world.restart()
    assert case.world.status() in ("queued", "waiting")
    case.goes_on()
    assert case.seen() == ONCE[kind]


@pytest.mark.parametrize("kind", POINTS)
def test_run_continues_after_an_outage_of_the_store(case, kind):
    """The store is out of reach from the middle on, for longer than the process has patience."""
    case.loses_its_store(POINTS[kind]["happened" if kind in ("message", "child") else "act"])
    if kind == "neither":
        case.is_parked()
        assert case.seen() == {"x": 1}
    else:
        case.goes_on()
        assert case.seen() == AGAIN.get(kind, ONCE[kind])


EFFECTS = ["verified", "idempotent", "neither", "compensation", "unit"]


@pytest.mark.parametrize("kind", EFFECTS)
def test_act_that_happens_after_the_death_is_waited_for(case, kind):
    """Its request was sent, the process died, and only then it was done."""
    case.dies(POINTS[kind]["act"].replace("in act", "in flight"))
    before = dict(case.seen())
    if kind == "neither":
        case.is_parked()
    else:
        case.goes_on()
    case.world.clock.advance(FOREVER)  # whatever is still in flight takes effect
    assert case.seen() == ONCE[kind]
    assert before != ONCE[kind]


@pytest.mark.parametrize("kind", EFFECTS)
def test_nothing_is_done_outside_whose_intent_could_not_be_recorded(case, kind):
    case.loses_its_store(POINTS[kind]["before"])
    before = {"compensation": {"w": 1, "x": 1}, "unit": {"a": 1}}
    assert case.seen() == before.get(kind, {})
    case.goes_on()
    assert case.seen() == ONCE[kind]
