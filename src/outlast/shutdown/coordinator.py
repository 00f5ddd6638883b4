"""Shut an app down, from the first sign to the end of its process.

    signal_received   SIGTERM or SIGINT, in the signal thread
      begin           also called by `/shutdown`, `outlast drain` and `app.drain()`
        coordinate    in its own thread: release what has not started
        _announce     on the event loop: the drain is noticed
        _drain        boundary: let steps end, release idle runs
                      checkpoint: ask the other steps to stop
      _leave_block    cancel the task that opened the app, if the signal ends the program
    leave             the block is left: close, clean up, report, deregister

Each opening of an app has one coordinator and at most one drain. A block that is left without a
drain starts at `leave`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import signal as signals
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from outlast.engine.active_scopes import ActiveScope
from outlast.errors import SettingsError
from outlast.execution.detached import Shield
from outlast.execution.execution_state import RunOutcome
from outlast.settings.checks import EXIT_SECONDS
from outlast.shutdown import close_steps
from outlast.shutdown.close_steps import CloseSteps
from outlast.shutdown.drain_steps import TICK_SECONDS, DrainSteps
from outlast.shutdown.phases import AppPhase, DrainPhase
from outlast.shutdown.process import ProcessRole, ProcessShutdown, end_now
from outlast.shutdown.remaining_work import snapshot
from outlast.shutdown.report import DrainReport, Remaining
from outlast.shutdown.report_builder import ReportBuilder

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.execution.run_execution import RunExecution
    from outlast.shutdown.cleanup import CleanupRunner

log = logging.getLogger("outlast.drain")

_tasks_leaving: set[asyncio.Task[Any]] = set()
"""Tasks of this process that are leaving an app. They must not be interrupted meanwhile."""


class AppCallbacks(NamedTuple):
    """What the coordinator calls to leave an app. Each opening has its own."""

    leave_block: Callable[[], object]
    """Leaves the block, if a signal ends the program and no task can be cancelled for that.

    Called on the event loop. The coordinator keeps a reference to what it returns.
    """
    cleanup: CleanupRunner
    exit_lifespan: Callable[[], Awaitable[Any]]
    stop_server: Callable[[float], Awaitable[Any]] | None
    """Stops the HTTP server, within the given seconds."""


class ShutdownCoordinator:
    """Drain, close and end one opening of an app. It alone writes the `ShutdownState`."""

    def __init__(self, engine: Engine, role: ProcessRole, app: AppCallbacks) -> None:
        self._engine = engine
        self._app = app
        self.state = engine.shutdown
        self.process = ProcessShutdown(role, self.signal_received)
        self.drain_phase = DrainPhase.NONE
        self.app_phase = AppPhase.OPENING
        self.reporter = ReportBuilder(engine, self.state)
        self._drain_steps = DrainSteps(engine, self.state, self.reporter)
        self._begin_once = threading.Lock()
        """Taken by the first `begin` and never released."""
        self._opener: asyncio.Task[Any] | None = None
        """The task that opened the app."""
        self._opener_cancelled = False
        """Whether this coordinator cancelled the opener, so that it must also uncancel it."""
        self._drain_task: asyncio.Task[None] | None = None
        self._leave_task: object = None
        """What leaves the block, if the opener could not be cancelled."""

    # -- opening

    def start(self) -> None:
        """Begin to receive signals. Call it in the task that opens the app."""
        self._opener = asyncio.current_task()
        self.process.start()
        settings = self._engine.settings
        if settings.signals and self._engine.mode.threads:
            if self.process.role is not ProcessRole.PORTAL:
                self.process.install(settings.grace)
            self.state.finished.add_done_callback(lambda _: self._leave_block())

    def opened(self) -> None:
        """Note that the app is open."""
        self.app_phase = AppPhase.OPEN

    def abandon_opening(self) -> None:
        """Note that the app could not be opened, so nothing waits for its store now."""
        self.state.begin_close()

    # -- the drain

    def signal_received(self, number: signals.Signals, at: float) -> None:
        """Begin, expedite or time the drain for a signal. Called in the signal thread."""
        process, state = self.process, self.state
        is_first = process.signal is None
        is_repeated_interrupt = process.note_signal(number)
        state.note_signal()
        # Callers that wait here for a run in another process check again whether they may.
        self._on_loop(self._engine.notifier.notify)
        if self.begin(number.name, at=at):
            if process.ends_by_signal:
                state.note_process_ends()
                process.arm(state.seconds_left)
        elif is_repeated_interrupt:
            process.expedite(state.seconds_left)
            self._drain_steps.expedite()
            log.warning("SIGINT again: stopping the steps in flight. They will run again.")
        elif process.ends_by_signal and not process.is_armed:
            # The drain began without a signal. Its grace may have passed long ago.
            if state.finished.done():
                state.renew_grace(at)
            # Another thread may be about to begin the drain, so that its time does not count yet.
            process.arm(state.seconds_left if state.draining else self._engine.settings.grace)
            self._on_loop(self._leave_block)
        elif process.ends and state.draining and not state.finished.done():
            log.log(
                # A preStop command begins the drain, and SIGTERM follows. That is no surprise.
                logging.INFO if is_first else logging.WARNING,
                "%s while draining changes nothing: steps have %.0f s left to finish. "
                "To exit at once, press Ctrl-C or send SIGINT %s.",
                number.name,
                max(0.0, state.step_seconds_left),
                "once more" if number is signals.SIGINT else "twice",
            )

    def begin(self, reason: str, *, grace: float | None = None, at: float | None = None) -> bool:
        """Begin the drain and return at once. Return False if it had begun already.

        `at` is the time of the sign that began it, on the drain's clock. May be called from any
        thread.
        """
        if not self._begin_once.acquire(blocking=False):
            return False
        self.drain_phase = DrainPhase.COORDINATE
        is_owned = self.process.role.is_owned
        self.state.begin_drain(reason, grace=grace, at=at, ends_process=is_owned)
        self._engine.in_flight.begin_drain()
        self.process.drain_began(self.state.seconds_left)
        if not self._engine.mode.threads:
            self._drain_steps.coordinate()
            self._on_loop(self._announce)
            return True
        # Schedule first: if no thread can be started, the drain continues without layer 1.
        self._on_loop(self._announce)
        coordinate = threading.Thread(
            target=self._drain_steps.coordinate, name="outlast-drain", daemon=True
        )
        try:
            coordinate.start()
        except RuntimeError as error:
            self._drain_steps.skip_coordination(error)
        return True

    def _announce(self) -> None:
        blocked = self.state.seconds
        if blocked > 1.0:
            self.reporter.note_blocked(f"the event loop was blocked for {blocked:.1f} s")
        self.drain_phase = DrainPhase.BOUNDARY
        self.state.announce()
        # Detached: the task that leaves the app waits for its end.
        self._drain_task = self._engine.background.spawn_detached(self._drain())

    async def _drain(self) -> None:
        state, steps, reporter = self.state, self._drain_steps, self.reporter
        try:
            steps.begin_boundary()
            await steps.wait(state.checkpoint_reserve + state.exit_reserve)
            reporter.layer_ended("boundary")
            if not steps.is_done:
                self.drain_phase = DrainPhase.CHECKPOINT
                steps.begin_checkpoint()
                await steps.wait(state.exit_reserve)
                reporter.layer_ended("checkpoint")
        finally:
            reporter.conclude()
            steps.stop_all()
            self.drain_phase = DrainPhase.DRAINED
            state.finish()
            # Wake the callers that wait for a run in another process.
            self._engine.notifier.notify()
        if await steps.wait_coordinated(state.seconds_left):
            # A process that continues may not write another report for a long time.
            await reporter.store()

    async def drain(self, reason: str, *, grace: float | None) -> DrainReport:
        """Begin the drain unless it has begun, and return its report when it is over.

        Raise SettingsError if `grace` is not a number of seconds greater than 0.
        """
        if grace is not None and not 0 < grace < math.inf:
            raise SettingsError(f"grace={grace!r} must be a number of seconds greater than 0.")
        self.begin(reason, grace=grace)
        await self.write_report()
        return self.reporter.report

    async def write_report(self, *, leaving: bool = False) -> None:
        """Store and log the report once the drain is over."""
        await asyncio.wait([self.state.finished])
        # Layer 1 opens the report in the store.
        await self._drain_steps.wait_coordinated(self.state.seconds_left - 3 * EXIT_SECONDS)
        await self.reporter.close(leaving=leaving)

    def remaining(self) -> list[Remaining]:
        """Return what is still in flight, and why. May be called from any thread."""
        return snapshot(self._engine)

    # -- leaving the app's block

    def _leave_block(self) -> None:
        """Leave the app's block after a drain, if a signal ends the program.

        The task that opened the app is cancelled, as if the program had been interrupted. An owned
        process that is open leaves by itself.
        """
        opener = self._opener
        if opener is None or self._opener_cancelled or self.app_phase >= AppPhase.CLOSING:
            return
        is_open = self.app_phase is AppPhase.OPEN
        if not self.process.ends or (self.process.role.is_owned and is_open):
            return
        if opener in _tasks_leaving:
            # The task is leaving another app. Try again later.
            self._engine.loop.call_later(TICK_SECONDS, self._leave_block)
        elif self.state.finished.done():
            self._opener_cancelled = True
            if not opener.cancel(f"drain: {self.state.reason}"):
                # The app was entered by hand, and the task that did so has ended.
                self._leave_task = self._app.leave_block()

    async def leave(self, why: str, *, left_by: int | None = None) -> None:
        """Leave the app: close, clean up, report and deregister, then restore the signals.

        `left_by` is the thread that leaves, in a sync program. Each step runs even if the task was
        cancelled in an earlier one. Raise SystemExit in an owned process that drained while it
        opened.
        """
        task = asyncio.current_task()
        assert task is not None
        _tasks_leaving.add(task)
        self._renew_grace_without_signal()
        try:
            with Shield() as shield:
                await self._leave(why, left_by, shield)
        finally:
            _tasks_leaving.discard(task)
        if self._opener_cancelled and self.process.role.is_owned:
            raise SystemExit(self.process.exit_code)

    def _renew_grace_without_signal(self) -> None:
        """Give the end of a program that continued after its drain its own grace."""
        process = self.process
        goes_on = process.signal is None and not process.role.is_owned and self._engine.mode.threads
        if goes_on and self.state.finished.done():
            self.state.renew_grace()

    async def _leave(self, why: str, left_by: int | None, shield: Shield) -> None:
        steps = CloseSteps(self._engine, self.state, shield, self._drain_steps, self.reporter)
        write_report = partial(self.write_report, leaving=True)
        failure: BaseException | None = None
        for phase, step in (
            (AppPhase.CLOSING, partial(steps.close, why, left_by)),
            (AppPhase.CLEANUP, partial(steps.clean_up, self._app.cleanup, self._app.exit_lifespan)),
            (AppPhase.REPORT, partial(steps.report, write_report)),
            (AppPhase.DEREGISTER, partial(steps.deregister, self._deregister)),
        ):
            self.app_phase = phase
            try:
                await step()
            except BaseException as error:
                # The other steps follow, even after a cancellation.
                failure = error
        await self._end()
        if failure is not None:
            raise failure

    async def _deregister(self) -> None:
        """Deregister the worker, unless something still executes here."""
        hung = self._engine.in_flight.hung_ids()
        if hung:
            self.app_phase = AppPhase.HUNG
            self._engine.worker.stay_registered()
            log.warning(
                "%s still executing although the app was closed: %s. "
                "This worker stays registered until the code has ended or the process is gone.",
                "1 run or item is" if len(hung) == 1 else f"{len(hung)} runs or items are",
                ", ".join(sorted(hung)),
            )
            return
        await close_steps.deregister(self._engine, self.state)

    async def _end(self) -> None:
        """Stop the server, restore the signal handlers, and end an owned process that hangs."""
        role = self.process.role
        state = self.state
        if self.app_phase is not AppPhase.HUNG:
            self.app_phase = AppPhase.CLOSED
        try:
            if self._app.stop_server is not None:
                await self._app.stop_server(0.2 if state.draining else 2.0)
        finally:
            if role is not ProcessRole.PORTAL:
                # A drain may have begun while the server stopped.
                self.process.restore(ending=role.is_owned and state.draining)
                task = asyncio.current_task()
                if task is not None and task is self._opener and self._opener_cancelled:
                    # This was our own cancellation. What follows is the effect of the signal.
                    task.uncancel()
                self.process.raise_again()
                # Here asyncio turns the signal into a KeyboardInterrupt, by a cancellation.
                await asyncio.sleep(0)
        if role.is_owned and state.draining and self.app_phase is AppPhase.HUNG:
            # Hung threads would delay an orderly exit.
            end_now(self.process.exit_code)

    # -- what the engine reports

    def became_idle(self, execution: RunExecution) -> None:
        """Release a run that has reached a boundary."""
        self._drain_steps.release(execution)

    def run_ended(self, execution: RunExecution, outcome: RunOutcome) -> None:
        """Count a run whose execution has ended."""
        self.reporter.run_ended(execution, outcome)
        self._drain_steps.wake()

    def item_ended(self, *, released: bool) -> None:
        """Count an item whose handler has ended."""
        self.reporter.item_ended(released=released)
        self._drain_steps.wake()

    def scope_left(self, scope: ActiveScope) -> None:
        """Count a scope that has ended. May be called from any thread."""
        if self.state.draining:
            self.reporter.scope_left(scope)
            self._drain_steps.wake_threadsafe()

    def drain_requested(self, reason: str) -> None:
        """Begin the drain that another process has requested through the store."""
        self.begin(reason)

    def hung_work_ended(self) -> None:
        """Deregister a worker that stayed registered, after the last of its hung work."""
        if self.app_phase is AppPhase.HUNG and not self._engine.in_flight.hung_ids():
            self.app_phase = AppPhase.CLOSED
            self._engine.background.run_after_close(self._deregister())

    def _on_loop(self, callback: Callable[[], object]) -> None:
        # If the loop is closed, nothing is in flight and nothing waits.
        with suppress(RuntimeError):
            self._engine.loop.call_soon_threadsafe(callback)
