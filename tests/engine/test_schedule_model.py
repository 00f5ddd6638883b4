"""Schedules against a plain model: workers die and freeze between any two of their writes."""

import os
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from outlast.engine.schedule_policy import ON_TIME_SECONDS, decide, has_work
from outlast.engine.schedule_rows import Definition, Firing, Overlap, ScheduleRow, State

EXAMPLES = int(os.environ.get("OUTLAST_TEST_MODEL_EXAMPLES", "40"))
EVERY = 20.0
WORKERS = 3
ACTIVE, ENDED = "active", "ended"


class ScheduleMachine(RuleBasedStateMachine):
    """A store with one schedule, and workers that take one step at a time.

    A step ends before a write. So between two steps of a worker, others may write, or it may die.
    """

    @initialize(overlap=st.sampled_from(Overlap), catch_up=st.sampled_from([0, 1, 3, 1_000]))
    def open(self, overlap: Overlap, catch_up: int) -> None:
        definition = Definition(
            workflow="summary",
            args="{}",
            cron=None,
            every=EVERY,
            tz="UTC",
            overlap=overlap,
            catch_up=catch_up,
            jitter=0.0,
            queue="default",
            priority=0,
            timeout=None,
            abandon_after=None,
        )
        self.now = 0.0
        self.row = ScheduleRow("tick", 1, definition, State(start=0.0, fired=0.0))
        self.workers: list[Iterator[None] | None] = [None] * WORKERS
        self.runs: dict[float, str] = {}
        """Whether the run of each time is active, in the order of their submission."""
        self.wanted: set[float] = set()
        """The times that should have a run, or be skipped because of the one before."""
        self.dealt_with = 0.0

    # -- what happens

    @rule(seconds=st.sampled_from([1.0, 10.0, EVERY, 50.0, 90.0, 200.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(worker=st.integers(0, WORKERS - 1), steps=st.sampled_from([1, 2, 3, 10]))
    def work(self, worker: int, steps: int) -> None:
        for _ in range(steps):
            looking = self.workers[worker] or self.look()
            self.workers[worker] = None if next(looking, True) else looking

    @rule(seconds=st.sampled_from([EVERY, 90.0]))
    def pass_time_and_work(self, seconds: float) -> None:
        """The usual case: a worker does all there is to do without a fault."""
        self.now += seconds
        for _ in self.look():
            pass

    @rule(worker=st.integers(0, WORKERS - 1))
    def die(self, worker: int) -> None:
        self.workers[worker] = None

    @precondition(lambda self: ACTIVE in self.runs.values())
    @rule()
    def end_a_run(self) -> None:
        at = next(at for at, status in self.runs.items() if status == ACTIVE)
        self.runs[at] = ENDED

    @rule()
    def pause_or_resume(self) -> None:
        """Times that have passed by then and were not dealt with do not fire."""
        state = self.row.state
        self.dealt_with = self.now
        self.change(self.row.version, replace(state, paused=not state.paused, fired=self.now))

    # -- a worker, as the scheduler does it

    def look(self) -> Iterator[None]:
        """Yield None before each write."""
        row = self.row
        if row.state.pending:
            yield from self.submit(row)
            return
        if not has_work(row, self.now):
            return
        last = row.state.last
        is_active = last is not None and self.runs.get(last.at) == ACTIVE
        now = self.now
        decision = decide(row, now, last_is_active=is_active)
        if decision.cancels and last is not None:
            yield
            self.runs[last.at] = ENDED
        if decision.state == row.state:
            return
        yield
        if self.change(row.version, decision.state):
            self.note_wanted(now)
            if decision.state.pending:
                yield from self.submit(self.row)

    def submit(self, row: ScheduleRow) -> Iterator[None]:
        pending = row.state.pending
        for firing in pending:
            yield
            self.runs.setdefault(firing.at, ACTIVE)
        yield
        self.change(row.version, replace(row.state, pending=(), last=pending[-1]))

    def change(self, version: int, state: State) -> bool:
        """Write a state over the version that it is based on."""
        if version != self.row.version:
            return False
        self.row = self.row._replace(version=version + 1, state=state)
        return True

    # -- the model

    def note_wanted(self, now: float) -> None:
        """Add the times that a worker which looks now deals with."""
        first = int(self.dealt_with // EVERY) + 1
        times = [number * EVERY for number in range(first, int(now // EVERY) + 1)]
        catch_up = self.row.definition.catch_up
        self.wanted |= {at for at in times if at > now - ON_TIME_SECONDS}
        self.wanted |= set(times[-catch_up:] if catch_up else [])
        self.dealt_with = times[-1] if times else self.dealt_with

    @invariant()
    def each_wanted_time_has_one_run_or_is_skipped(self) -> None:
        if not hasattr(self, "row"):
            return
        state = self.row.state
        pending = {firing.at for firing in state.pending}
        started = set(self.runs) | pending
        assert started | set(state.waiting) <= self.wanted
        assert started.isdisjoint(state.waiting)
        assert len(started) + len(state.waiting) + state.skipped == len(self.wanted)
        assert all(at <= self.now for at in self.wanted)
        if self.row.definition.overlap is Overlap.ALLOW:
            assert started == self.wanted

    @invariant()
    def runs_of_one_schedule_do_not_overlap_unless_it_allows_that(self) -> None:
        if hasattr(self, "row") and self.row.definition.overlap is not Overlap.ALLOW:
            assert list(self.runs.values()).count(ACTIVE) <= 1
            assert list(self.runs) == sorted(self.runs)
            assert len(self.row.state.pending) <= 1

    @invariant()
    def pending_firings_have_the_names_of_their_times(self) -> None:
        if hasattr(self, "row"):
            assert all(isinstance(one, Firing) for one in self.row.state.pending)
            assert len({one.id for one in self.row.state.pending}) == len(self.row.state.pending)

    def teardown(self) -> None:
        """When the workers return and the runs end, nothing stays undone."""
        if not hasattr(self, "row"):
            return
        self.workers = [None] * WORKERS
        while has_work(self.row, self.now):
            before = self.row
            self.runs = dict.fromkeys(self.runs, ENDED)
            for _ in self.look():
                pass
            assert self.row != before
        state = self.row.state
        assert not state.pending
        assert state.paused or not state.waiting
        self.each_wanted_time_has_one_run_or_is_skipped()


ScheduleMachine.TestCase.settings = settings(
    max_examples=3 * EXAMPLES,
    stateful_step_count=30,
    derandomize=bool(os.environ.get("CI")),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
TestScheduleAgainstModel = ScheduleMachine.TestCase
