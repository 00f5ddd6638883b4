"""Drain an engine: an orderly end, in layers, on one clock.

Each engine has one drain. It may be begun any number of times, from any thread; only the first
begin counts.

1. coordinate: the worker is not ready, claims nothing more and releases what has not started.
   This layer has its own thread, because the loop may be blocked.
2. boundary: steps in flight continue and none starts. A run whose steps have ended is released.
3. checkpoint: steps that will not end in time get the request to stop.

The owner of the app handles what follows: clean-up, the report and the end of the process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from queue import Empty
from typing import TYPE_CHECKING, Any

from outlast.codec.cost import NOTHING, UNITS_MAX
from outlast.engine.active_scopes import ActiveScope
from outlast.engine.in_flight import HeldState
from outlast.errors import StoreError
from outlast.execution.detached import spawn_detached
from outlast.execution.release import release_if_idle
from outlast.execution.state import EndReason, OutcomeKind, RunOutcome
from outlast.settings.checks import EXIT_SECONDS
from outlast.shutdown.forecast import completion_probability
from outlast.shutdown.report import DrainReport, Remaining
from outlast.store import commands

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.execution.run_execution import RunExecution
    from outlast.execution.step_execution import StepExecution

log = logging.getLogger("outlast.drain")

CUT_WITH_THE_PROCESS = ("unit", "each", "map", "agent")
"""Kinds of work that belong to no run. Nothing waits for their end, and no worker releases them."""
TICK_SECONDS = 0.1
"""Seconds between two forecasts of whether steps will end in time."""
SWITCH_SECONDS = 0.0002
"""The interpreter's thread switch interval while layer 1 is in progress."""
HURRY_SECONDS = 0.5
"""Seconds that an expedited drain leaves for releasing runs."""

_switching = threading.Lock()
_quick: list[float] = []
"""The original switch interval, once for each drain in layer 1. One process may have several."""


@contextmanager
def _switching_quickly() -> Iterator[None]:
    with _switching:
        _quick.append(_quick[0] if _quick else sys.getswitchinterval())
        sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        with _switching:
            before = _quick.pop()
            if not _quick:
                sys.setswitchinterval(before)


def _why_left(body: StepExecution) -> str:
    if body.is_effect:
        return "an effect acts, and is not cut: it is open" if body.leaving else "an effect acts"
    why = "it was told to stop and did not" if body.leaving else "a step is under way"
    return f"{why}, in a thread" if body.threads else why


class Drain:
    """Stop an engine in layers, within its grace period, and report the result."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._loop = engine, engine.loop
        self.signal = engine.shutdown
        self._once = threading.Lock()
        self._changed, self._coordinated = asyncio.Event(), asyncio.Event()
        self._expedited = False
        self.layer: str | None = None
        """The current layer. None before the drain has begun."""
        self.begin_callbacks: list[Callable[[float], object]] = []
        """Called with the seconds of grace left, in the thread that begins the drain."""
        self.report = DrainReport("")
        self._cost = NOTHING
        self._reported = False
        self._running: asyncio.Task[None] | None = None

    @property
    def seconds(self) -> float:
        """Return how long the drain has taken so far, or took in all.

        The time counts from the first sign and is 0 before the drain has begun. May be called from
        any thread.
        """
        if not self.signal.draining:
            return 0.0
        return self.signal.seconds if self.report.seconds is None else self.report.seconds

    # -- beginning, in any thread

    def begin(self, reason: str, *, grace: float | None = None, at: float | None = None) -> bool:
        """Begin the drain and return at once. Return False if it had begun already.

        `at` is the time of the sign that began it, on the drain's clock. May be called from any
        thread.
        """
        if not self._once.acquire(blocking=False):
            return False
        self.layer = "coordinate"
        self.signal.begin_drain(reason, grace=grace, at=at)
        self._engine.in_flight.begin_drain()
        for tell in self.begin_callbacks:
            tell(self.signal.seconds_left)
        if self._engine.inline:
            self._coordinate()
            self._loop.call_soon(self._start)
            return True
        threading.Thread(target=self._coordinate, name="outlast-drain", daemon=True).start()
        try:
            self._loop.call_soon_threadsafe(self._start)
        except RuntimeError:
            # The loop is closed, so there is nothing left to drain.
            log.debug("the loop is closed: nothing is under way")
        return True

    def told_to_end(self) -> None:
        """Note that a signal asked the process to end, and notify waiting callers.

        The signal may also follow a drain that began for another reason. Callers that wait for a
        run in another process then check again. May be called from any thread.
        """
        self.signal.signalled = True
        # If the loop is closed, no caller waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._engine.notifier.notify)

    def expedite(self) -> None:
        """End the drain at once, with whatever can be released by then.

        May be called from any thread.
        """
        self._expedited = True
        self._loop.call_soon_threadsafe(self._changed.set)

    def _coordinate(self) -> None:
        """Execute layer 1. It may block or fail, because the other layers do not wait for it."""
        engine = self._engine
        command = commands.Drain(
            engine.worker.id, self.signal.reason, engine.in_flight.begin_drain()
        )
        try:
            with _switching_quickly():
                outcome = engine.writer.execute_urgent(
                    command, timeout=max(0.01, self.signal.seconds_left)
                )
        except (StoreError, Empty) as error:
            self.report.blocked.append(
                f"the store did not take that this worker drains: {str(error) or 'no answer'}"
            )
            log.warning(
                "the store was not told that worker %s drains: %s",
                command.worker,
                str(error) or "no answer",
            )
        else:
            self.report.layers["coordinate"] = self.signal.seconds
            if not isinstance(outcome, commands.Refused):
                self.report.given_back += len(outcome)
        facts = {"event": "draining", "worker": command.worker, "reason": self.signal.reason}
        log.info("draining: %s", self.signal.reason, extra=facts)
        # If the loop is closed, no task waits for it.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._coordinated.set)

    # -- layers 2 and 3, on the loop

    def _start(self) -> None:
        if not self.signal.announced.done():
            blocked = self.signal.seconds
            if blocked > 1.0:
                self.report.blocked.append(f"the event loop stood still for {blocked:.1f} s")
            self.layer = "boundary"
            self.signal.announce()
            # Detached: the task that leaves the app waits for its end.
            self._running = spawn_detached(self._loop, self._run())

    async def _run(self) -> None:
        engine, report = self._engine, self.report
        try:
            engine.stop_claiming()
            # Wake the callers that wait for something to claim.
            engine.notifier.notify()
            for _, body in self._under_way():
                body.tell(self.signal.reason)
            engine.track_task(self._loop.create_task(self._learn()))
            # Release idle runs first: everything their next worker needs is recorded.
            for execution in sorted(
                engine.executions.values(), key=lambda execution: bool(execution.steps.tasks)
            ):
                release_if_idle(execution, self.signal.reason)
            await self._wait(self.signal.checkpoint_reserve + self.signal.exit_reserve)
            report.layers["boundary"] = self.signal.seconds
            if not self._is_done():
                self.layer = "checkpoint"
                self._tell_to_stop()
                await self._wait(self.signal.exit_reserve)
                report.layers["checkpoint"] = self.signal.seconds
        finally:
            self._conclude()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.signal.seconds_left):
                await self._coordinated.wait()
                # A process that continues may not write another report for a long time.
                await self._store_report()

    def _is_done(self) -> bool:
        return self._expedited or not next(self._what_is_left(), None)

    async def _wait(self, reserve: float) -> None:
        """Wait until nothing is in flight, or only `reserve` seconds are left."""
        judge_at = -math.inf
        while not self._is_done() and (left := self.signal.seconds_until(reserve)) > 0:
            self._changed.clear()
            # Not at every change: there may be a thousand step executions, and as many changes.
            if self._loop.time() >= judge_at:
                judge_at = self._loop.time() + TICK_SECONDS
                self._judge(left)
            later = self._loop.call_later(min(TICK_SECONDS, left), self._changed.set)
            await self._changed.wait()
            later.cancel()

    def _judge(self, left: float) -> None:
        """Checkpoint steps that will probably not end in the time left.

        A step that has nothing to save may keep trying.
        """
        for execution, body in self._under_way():
            if body.leaving is None and body.can_save:
                durations = self._engine.durations.of(execution.workflow.name, body.name)
                if completion_probability(durations, self._loop.time() - body.since, left) < 0.5:
                    self._checkpoint(execution, body, "it will not end in the time left")

    def _tell_to_stop(self) -> None:
        for execution, body in self._under_way():
            if body.leaving is None:
                self._checkpoint(execution, body, "its time is up")
        for execution in list(self._engine.executions.values()):
            # Open units do not keep the run any longer.
            execution.steps.close_units()
            release_if_idle(execution, self.signal.reason)
        for consumer in list(self._engine.consumers):
            consumer.stop_all()

    def _checkpoint(self, execution: RunExecution, body: StepExecution, why: str) -> None:
        execution.steps.interrupt()
        body.leave(f"drain: {self.signal.reason}; {why}")

    def became_idle(self, execution: RunExecution) -> None:
        """Release a run that has reached a boundary."""
        release_if_idle(execution, self.signal.reason)

    def drain_requested(self, reason: str) -> None:
        """Begin the drain that another process has requested."""
        self.begin(reason)

    def scope_left(self, ended: ActiveScope) -> None:
        """Count a scope that has ended, and wake the drain. May be called from any thread."""
        if self.signal.draining:
            if ended.kind in ("each", "map") and not self.signal.finished.done():
                self.report.completed += 1
            try:
                self._loop.call_soon_threadsafe(self._changed.set)
            except RuntimeError:
                log.debug("the loop is closed: nobody waits")

    def run_ended(self, execution: RunExecution, outcome: RunOutcome) -> None:
        """Add the end of a run execution to the report.

        A run that this worker has lost is not counted.
        """
        report = self.report
        if outcome.kind in (OutcomeKind.LOST, OutcomeKind.HUNG):
            log.debug(
                "run %s is not this worker's to give back",
                execution.id,
                extra=execution.log_fields(),
            )
        elif outcome.is_status:
            report.completed += 1
        else:
            if outcome.kind is OutcomeKind.WAITING:
                report.waiting += 1
            elif execution.steps.interrupted:
                report.checkpointed += 1
            else:
                report.released += 1
            report.compensations += execution.journal.effect_log.compensations
            if execution.trace.cost is not None:
                self._cost = self._cost.plus(execution.trace.cost.kept, UNITS_MAX)
                report.cost = dict(self._cost.document())
        self._changed.set()

    def item_ended(self, *, released: bool) -> None:
        """Add the end of an item's handler to the report."""
        if released:
            self.report.checkpointed += 1
        else:
            self.report.completed += 1
        self._changed.set()

    def _under_way(self) -> Iterator[tuple[RunExecution, StepExecution]]:
        for execution in list(self._engine.executions.values()):
            for body in execution.steps.executing():
                yield execution, body

    def _what_is_left(self) -> Iterator[Remaining]:
        engine = self._engine
        for execution in list(engine.executions.values()):
            bodies = execution.steps.executing()
            for body in bodies:
                seconds = round(self._loop.time() - body.since, 3)
                yield Remaining("run", execution.id, body.key, seconds, _why_left(body))
            if not bodies:
                threaded = execution.steps.threads or execution.sync_thread is not None
                yield Remaining(
                    "run",
                    execution.id,
                    why="a thread of it executes" if threaded else "it is being written",
                )
        for consumer in engine.consumers:
            for id in consumer.under_way:
                yield Remaining("item", id, why="its handler has not ended")
        for row in engine.in_flight.in_state(HeldState.BY_HAND):
            yield Remaining("item", row.id, why="it was claimed and neither acked nor nacked")
        now = time.monotonic()
        for scope in engine.active_scopes:
            yield Remaining(
                scope.kind,
                scope.name,
                seconds=round(now - scope.since, 3),
                why="it has not ended",
            )

    def view(self) -> list[Remaining]:
        """Return what is still in flight, and why. May be called from any thread.

        Return an empty list if the work keeps changing during three attempts.
        """
        for _ in range(3):
            try:
                return list(self._what_is_left())
            except RuntimeError:
                # A collection changed during the iteration.
                continue
        return []

    async def _learn(self) -> None:
        """Read the recorded durations of the steps in flight.

        Note it in the report if the store fails.
        """
        engine = self._engine
        pairs = list(
            {(execution.workflow.name, body.name) for execution, body in self._under_way()}
        )
        if pairs:
            try:
                engine.durations.learn(await engine.read(engine.store.durations, pairs))
            except StoreError as error:
                self.report.blocked.append(f"the store did not say how long steps took: {error}")

    def _conclude(self) -> None:
        engine, report = self._engine, self.report
        report.worker, report.reason = engine.worker.id, self.signal.reason
        report.host, report.pid = socket.gethostname(), os.getpid()
        report.left = list(self._what_is_left())
        report.not_checkpointed = [
            f"{execution.id} {body.key}"
            for execution, body in self._under_way()
            if body.leaving is not None and not body.is_effect
        ]
        report.units = {
            "committed": engine.units.committed,
            "rolled_back": engine.units.rolled_back,
        }
        for execution in list(engine.executions.values()):
            # Its steps were cut: the run is not at a boundary.
            if any(execution.steps.tasks.values()):
                execution.steps.interrupt()
            execution.stop(EndReason.released(f"drain: {self.signal.reason}"))
        report.seconds = self.signal.seconds
        report.began = datetime.fromtimestamp(engine.store.now() - report.seconds, UTC)
        self.layer = "exit"
        self.signal.finish()
        # Wake the callers that wait for a run in another process.
        engine.notifier.notify()

    async def wait_until_free(self, kind: str) -> None:
        """Wait until no scope of this kind is active, or until steps get the request to stop."""
        reserve = self.signal.checkpoint_reserve + self.signal.exit_reserve
        while (
            any(one.kind == kind for one in self._engine.active_scopes)
            and not self.signal.finished.done()
        ):
            if (left := self.signal.seconds_until(reserve)) <= 0:
                return
            await asyncio.sleep(min(TICK_SECONDS, left))

    async def write_report(self, *, leaving: bool = False) -> None:
        """Store the report, as far as time allows, and log it once.

        This happens when the program asks for the report, and again when it leaves the app, then
        with the clean-up. If the process continues after its drain, that time does not count.
        """
        engine, report = self._engine, self.report
        # Layer 1 opens the report that this method closes.
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self.signal.seconds_left - 3 * EXIT_SECONDS)):
                await self._coordinated.wait()
        # Since `_conclude`, some work may have ended. Hung work was evicted but still executes.
        # Work that belongs to no run was cut.
        still = {one.id for one in self._what_is_left()} | engine.in_flight.hung_ids()
        report.left = [
            one for one in report.left if one.what in CUT_WITH_THE_PROCESS or one.id in still
        ]
        if leaving and self.signal.ends_process:
            report.seconds = report.layers["exit"] = self.signal.seconds
        await self._store_report()
        if not self._reported:
            self._reported = True
            facts = {"event": "drained", "worker": report.worker}
            log.info("drained: %s", json.dumps(report.document()), extra=facts)

    async def _store_report(self) -> None:
        engine, report = self._engine, self.report
        try:
            async with asyncio.timeout(max(0.1, self.signal.seconds_left - 2 * EXIT_SECONDS)):
                await engine.writer.execute(commands.StoreDrainReport(report.worker, report.text()))
        except (StoreError, TimeoutError) as error:
            log.warning("the drain report could not be stored: %s", str(error) or "no answer")

    async def wait_expedited(self) -> None:
        """Give runs a moment to be released after the drain, if the drain was expedited."""
        if self._expedited:
            ends: list[asyncio.Future[Any]] = [
                execution.ending.finished for execution in self._engine.executions.values()
            ]
            if ends:
                await asyncio.wait(ends, timeout=HURRY_SECONDS)
