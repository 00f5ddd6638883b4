"""Measure steps of several runs at once in this process.

Each step is durable before the next step of its run begins.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, NamedTuple

from outlast.api.internals import internals
from outlast.api.outlast import Outlast
from outlast.api.step import step
from outlast.api.workflow import Workflow, workflow
from outlast.errors import Draining, OutlastError
from outlast.tools.bench.cpu import Cpu, cpu
from outlast.tools.bench.figures import Spread, Steps
from outlast.tools.bench.names import QUEUE, STEPS, new_id

LANES = 100
STEPS_MAX = 500
"""Steps per run, so that one commit can delete a journal without delaying others."""
WARM_UP_SECONDS = 0.3
GAPS_MIN = 20
PATIENCE_SECONDS = 20.0
"""Additional time to reach GAPS_MIN."""
TICK = 0.01


class TooShort(OutlastError):
    """The time was not enough for a single step."""


class Disturbed(OutlastError):
    """A run of the bench no longer exists."""


class Pulse:
    """Count the beats of steps and tell them whether to continue. For one thread."""

    def __init__(self) -> None:
        self.going = True
        self.counts = False
        self.steps = 0
        self.gaps: list[float] = []
        self._last: dict[int, float] = {}

    def rest(self, lane: int) -> None:
        """Note the end of a lane's run. The gap until its next run does not count as a step."""
        self._last.pop(lane, None)

    def beat(self, lane: int) -> bool:
        now = time.perf_counter()
        last = self._last.get(lane)
        self._last[lane] = now
        if self.counts:
            self.steps += 1
            if last is not None:
                self.gaps.append(now - last)
        return self.going


class _Moment(NamedTuple):
    time: float
    cpu: Cpu
    commits: int
    steps: int


async def lone_and_hundred(address: str, seconds: tuple[float, float]) -> tuple[Steps, Steps]:
    """Measure one run at a time, then a hundred at once.

    On cancellation, the app releases the runs in flight.
    """
    settings: dict[str, Any] = {
        "concurrency": LANES,
        "ramp": 0.0,
        "signals": 0,
        "http": "",
        "queue_depth_max": 1_000_000,
        "journal_entries_max": 1_000_000,
    }
    pulses: dict[str, Pulse] = {}
    flow = _stepping(pulses)
    async with Outlast(address, worker=True, queues=[QUEUE], workflows=[flow], **settings) as app:
        lone = await _at_once(app, flow, pulses, 1, seconds[0])
        return lone, await _at_once(app, flow, pulses, LANES, seconds[1])


def _stepping(pulses: dict[str, Pulse]) -> Workflow[[str, int], None]:
    @step(name="step")
    async def beat(pulse: str, lane: int) -> bool:
        return pulses[pulse].beat(lane)

    beat.is_measured = False

    @workflow(name=STEPS)
    async def stepping(pulse: str, lane: int) -> None:
        for _ in range(STEPS_MAX):
            if not await beat(pulse, lane):
                return

    return stepping


async def _at_once(
    app: Outlast,
    flow: Workflow[[str, int], None],
    pulses: dict[str, Pulse],
    runs: int,
    seconds: float,
) -> Steps:
    name = f"{runs}"
    pulse = Pulse()
    pulses[name] = pulse
    lanes = [asyncio.create_task(_lane(app, flow, name, pulse, lane)) for lane in range(runs)]
    tasks = [*lanes, asyncio.create_task(_heed(app))]
    try:
        await _while_they_go(tasks, WARM_UP_SECONDS)
        pulse.counts = True
        begin = _now(app, pulse)
        await _while_they_go(tasks, seconds)
        until = begin.time + seconds + PATIENCE_SECONDS
        while len(pulse.gaps) < GAPS_MIN and time.perf_counter() < until:
            await _while_they_go(tasks, TICK)
        pulse.counts = False
        end = _now(app, pulse)
        pulse.going = False
        while not all(lane.done() for lane in lanes):
            await _while_they_go(tasks, TICK)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    if not pulse.gaps:
        raise TooShort(
            f"no run did two steps in {seconds + PATIENCE_SECONDS:g} s: give it more time with "
            "--seconds."
        )
    return Steps(
        runs,
        end.steps - begin.steps,
        end.time - begin.time,
        end.cpu.since(begin.cpu),
        end.commits - begin.commits,
        Spread.of(pulse.gaps),
    )


async def _lane(
    app: Outlast, flow: Workflow[[str, int], None], name: str, pulse: Pulse, lane: int
) -> None:
    """Execute one run after another."""
    while pulse.going:
        run = await app.submit(flow(name, lane), id=new_id(), queue=QUEUE)
        try:
            await run.result()
        except LookupError as error:
            raise Disturbed(
                f"{error}: this bench was paused or considered dead, and another one has removed "
                "it. Measure again."
            ) from None
        pulse.rest(lane)


async def _heed(app: Outlast) -> None:
    """Raise Draining on a drain request.

    The app releases the runs, and no other worker claims them.
    """
    raise Draining(f"the bench was asked to stop: {await app.wait_drain()}.")


async def _while_they_go(tasks: list[asyncio.Task[None]], seconds: float) -> None:
    """Wait for `seconds`. Raise the error of the first task that fails."""
    ended, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in ended:
        task.result()


def _now(app: Outlast, pulse: Pulse) -> _Moment:
    return _Moment(time.perf_counter(), cpu(), internals(app).engine.writer.batches, pulse.steps)
