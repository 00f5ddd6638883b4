"""Do the work of a drain's layers. The coordinator decides when each begins.

1. coordinate: release what has not started. It has its own thread, because the loop may be blocked.
2. boundary: release runs whose steps have ended.
3. checkpoint: ask steps that will not end in time to stop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from outlast.errors import StoreError
from outlast.execution.execution_state import EndReason
from outlast.execution.release import release_if_idle
from outlast.execution.shutdown_state import ShutdownState
from outlast.shutdown.forecast import completion_probability
from outlast.shutdown.remaining_work import executing_steps, remaining_work
from outlast.shutdown.report_builder import ReportBuilder
from outlast.store.commands import Drain, Refused

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.execution.run_execution import RunExecution
    from outlast.execution.step_execution import StepExecution

log = logging.getLogger("outlast.drain")

TICK_SECONDS = 0.1
"""Seconds between two forecasts of whether steps will end in time."""
SWITCH_SECONDS = 0.0002
"""The interpreter's thread switch interval while layer 1 is in progress."""
EXPEDITED_SECONDS = 0.5
"""Seconds that an expedited drain leaves for releasing runs."""

_interval_lock = threading.Lock()
_original_intervals: list[float] = []
"""The original switch interval, once for each drain in layer 1. One process may have several."""


@contextmanager
def _switching_quickly() -> Iterator[None]:
    """Let the interpreter switch threads often, so that busy threads do not delay layer 1."""
    with _interval_lock:
        before = _original_intervals[0] if _original_intervals else sys.getswitchinterval()
        _original_intervals.append(before)
        sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        with _interval_lock:
            before = _original_intervals.pop()
            if not _original_intervals:
                sys.setswitchinterval(before)


class DrainSteps:
    """Stop the work of one engine, layer by layer."""

    def __init__(self, engine: Engine, state: ShutdownState, reporter: ReportBuilder) -> None:
        self._engine = engine
        self._state = state
        self._reporter = reporter
        self._coordinated = asyncio.Event()
        self._changed = asyncio.Event()
        self._expedited = False

    # -- layer 1, in a thread of its own

    def coordinate(self) -> None:
        """Tell the store that this worker drains, which releases what has not started.

        It may block or fail: the other layers do not wait for it.
        """
        engine, state = self._engine, self._state
        command = Drain(engine.worker.id, state.reason, engine.in_flight.begin_drain())
        try:
            with _switching_quickly():
                outcome = engine.writer.execute_urgent(
                    command, timeout=max(0.01, state.seconds_left)
                )
        except StoreError as error:
            self._reporter.note_blocked(
                f"the store did not record that this worker drains: {error}"
            )
            log.warning(
                "Could not record in the store that worker %s drains: %s. "
                "Work that has not started stays claimed until the worker is deregistered.",
                command.worker,
                error,
            )
        else:
            self._reporter.layer_ended("coordinate")
            if not isinstance(outcome, Refused):
                self._reporter.note_not_started(len(outcome))
        fields = {"event": "draining", "worker": command.worker, "reason": state.reason}
        log.info("The worker is draining: %s", state.reason, extra=fields)
        self._end_coordination()

    def skip_coordination(self, error: RuntimeError) -> None:
        """Continue without layer 1, because no thread can be started for it."""
        self._reporter.note_blocked(f"no thread could be started to tell the store: {error}")
        log.warning(
            "No thread could be started to tell the store that worker %s drains: %s. "
            "Work that has not started stays claimed until the worker is deregistered.",
            self._engine.worker.id,
            error,
        )
        self._end_coordination()

    def _end_coordination(self) -> None:
        # If the loop is closed, no task waits for it.
        with suppress(RuntimeError):
            self._engine.loop.call_soon_threadsafe(self._coordinated.set)

    async def wait_coordinated(self, seconds: float) -> bool:
        """Wait for the end of layer 1, and return whether it ended within `seconds`."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._coordinated.wait()
        except TimeoutError:
            return False
        return True

    # -- layers 2 and 3, on the loop

    def begin_boundary(self) -> None:
        """Stop claiming, tell the steps in flight, and release the runs that are idle."""
        engine = self._engine
        engine.claimers.stop()
        # Wake the callers that wait for something to claim.
        engine.notifier.notify()
        for _, body in executing_steps(engine):
            body.call_listeners(self._state.reason)
        engine.background.track_task(engine.loop.create_task(self._learn_durations()))
        # Release idle runs first: everything their next worker needs is recorded.
        executions = list(engine.in_flight.executions.values())
        for execution in sorted(executions, key=lambda execution: bool(execution.steps.tasks)):
            self.release(execution)

    def begin_checkpoint(self) -> None:
        """Ask everything in flight to stop."""
        for execution, body in executing_steps(self._engine):
            if body.leaving is None:
                self._checkpoint(execution, body, "its time is up")
        for execution in list(self._engine.in_flight.executions.values()):
            # Open units do not keep the run any longer.
            execution.steps.close_units()
            self.release(execution)
        for consumer in list(self._engine.claimers.consumers):
            consumer.stop_all()

    def stop_all(self) -> None:
        """Stop every execution that is left. A step that was cut is not at a boundary."""
        for execution in list(self._engine.in_flight.executions.values()):
            if any(execution.steps.tasks.values()):
                execution.steps.interrupt()
            execution.stop(EndReason.released(f"drain: {self._state.reason}"))

    def release(self, execution: RunExecution) -> None:
        """Release a run if it is idle."""
        release_if_idle(execution, self._state.reason)

    # -- waiting

    @property
    def is_done(self) -> bool:
        """Return whether nothing is still in flight, or the drain was expedited."""
        return self._expedited or not next(remaining_work(self._engine), None)

    def expedite(self) -> None:
        """Stop waiting. May be called from any thread."""
        self._expedited = True
        self.wake_threadsafe()

    def wake(self) -> None:
        """Check again whether anything is in flight. Call it on the event loop."""
        self._changed.set()

    def wake_threadsafe(self) -> None:
        """Check again whether anything is in flight. May be called from any thread."""
        try:
            self._engine.loop.call_soon_threadsafe(self._changed.set)
        except RuntimeError:
            log.debug("The loop is closed, so nothing waits for the drain.")

    async def wait(self, reserve: float) -> None:
        """Wait until nothing is in flight, or only `reserve` seconds of the grace are left."""
        loop = self._engine.loop
        forecast_at = -math.inf
        while not self.is_done and (left := self._state.seconds_until(reserve)) > 0:
            self._changed.clear()
            # Not at every change: there may be a thousand steps, and as many changes.
            if loop.time() >= forecast_at:
                forecast_at = loop.time() + TICK_SECONDS
                self._checkpoint_hopeless_steps(left)
            timer = loop.call_later(min(TICK_SECONDS, left), self._changed.set)
            await self._changed.wait()
            timer.cancel()

    async def wait_expedited(self) -> None:
        """Give runs a moment to be released, if the drain was expedited."""
        ends: list[asyncio.Future[Any]] = [
            execution.ending.finished for execution in self._engine.in_flight.executions.values()
        ]
        if self._expedited and ends:
            await asyncio.wait(ends, timeout=EXPEDITED_SECONDS)

    # -- forecasts

    def _checkpoint_hopeless_steps(self, left: float) -> None:
        """Ask steps to stop that will probably not end in the time left.

        A step that has nothing to save may keep trying.
        """
        now = self._engine.loop.time()
        for execution, body in executing_steps(self._engine):
            if body.leaving is None and body.can_save:
                durations = self._engine.services.steps.durations.of(
                    execution.workflow.name, body.name
                )
                if completion_probability(durations, now - body.since, left) < 0.5:
                    self._checkpoint(execution, body, "it will not end in the time left")

    def _checkpoint(self, execution: RunExecution, body: StepExecution, why: str) -> None:
        execution.steps.interrupt()
        body.leave(f"drain: {self._state.reason}; {why}")

    async def _learn_durations(self) -> None:
        """Read the recorded durations of the steps in flight.

        Note it in the report if the store fails.
        """
        engine = self._engine
        pairs = {
            (execution.workflow.name, body.name) for execution, body in executing_steps(engine)
        }
        if pairs:
            try:
                engine.services.steps.durations.learn(
                    await engine.client.read(engine.store.durations, list(pairs))
                )
            except StoreError as error:
                self._reporter.note_blocked(f"the store did not say how long steps took: {error}")
