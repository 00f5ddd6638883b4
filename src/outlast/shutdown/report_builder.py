"""Count what becomes of the work during a drain, and store the result."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from outlast.codec.cost import NOTHING, UNITS_MAX
from outlast.engine.active_scopes import ActiveScope
from outlast.errors import StoreError
from outlast.execution.execution_state import OutcomeKind, RunOutcome
from outlast.execution.shutdown_state import ShutdownState
from outlast.settings.checks import EXIT_SECONDS
from outlast.shutdown.remaining_work import executing_steps, remaining_work
from outlast.shutdown.report import CleanupResult, DrainReport
from outlast.store.commands import StoreDrainReport

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.execution.run_execution import RunExecution

log = logging.getLogger("outlast.drain")

CUT_WITH_THE_PROCESS = ("unit", "each", "map", "agent")
"""Kinds of work that belong to no run. Nothing waits for their end, and no worker releases them."""


class ReportBuilder:
    """Build the report of one drain."""

    def __init__(self, engine: Engine, state: ShutdownState) -> None:
        self.report = DrainReport("")
        self._engine = engine
        self._state = state
        self._cost = NOTHING
        self._is_logged = False

    @property
    def seconds(self) -> float:
        """Return how long the drain has taken so far, or took in all. 0 without a drain.

        May be called from any thread.
        """
        if not self._state.draining:
            return 0.0
        return self._state.seconds if self.report.seconds is None else self.report.seconds

    # -- counting

    def run_ended(self, execution: RunExecution, outcome: RunOutcome) -> None:
        """Count an execution of a run that has ended.

        A run that this worker has lost is not counted. A run that another worker continues also
        adds its compensations and its cost.
        """
        report = self.report
        if outcome.kind in (OutcomeKind.LOST, OutcomeKind.HUNG):
            return
        if outcome.is_status:
            report.completed += 1
            return
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

    def item_ended(self, *, released: bool) -> None:
        """Count an item whose handler has ended."""
        if released:
            self.report.checkpointed += 1
        else:
            self.report.completed += 1

    def scope_left(self, scope: ActiveScope) -> None:
        """Count a batch that has ended before the drain was over."""
        if scope.kind in ("each", "map") and not self._state.finished.done():
            self.report.completed += 1

    def note_not_started(self, count: int) -> None:
        """Count runs and items that were released before they had started."""
        self.report.not_started += count

    def note_blocked(self, why: str) -> None:
        """Note what delays the drain."""
        self.report.blocked.append(why)

    def note_cleanup(self, results: list[CleanupResult]) -> None:
        """Note the results of the clean-up hooks and of the lifespan."""
        self.report.cleanup = results

    def layer_ended(self, layer: str) -> None:
        """Note the time at which a layer of the drain ended."""
        self.report.layers[layer] = self._state.seconds

    # -- the end of the drain

    def conclude(self) -> None:
        """Note what still executes at the end of the drain."""
        engine, report = self._engine, self.report
        report.worker = engine.worker.id
        report.reason = self._state.reason
        report.host = socket.gethostname()
        report.pid = os.getpid()
        report.left = list(remaining_work(engine))
        report.not_checkpointed = [
            f"{execution.id} {body.key}"
            for execution, body in executing_steps(engine)
            if body.leaving is not None and not body.is_effect
        ]
        report.units = {
            "committed": engine.services.totals.committed,
            "rolled_back": engine.services.totals.rolled_back,
        }
        report.seconds = self._state.seconds
        report.began = datetime.fromtimestamp(engine.store.now() - report.seconds, UTC)

    async def close(self, *, leaving: bool) -> None:
        """Complete the report, store it as far as time allows, and log it once.

        This happens when the program asks for the report, and again when it leaves the app, then
        with the clean-up. If the process continues after its drain, that time does not count.
        """
        report = self.report
        # Some work may have ended since the drain. Hung work was stopped but still executes. Work
        # that belongs to no run was cut.
        still = {one.id for one in remaining_work(self._engine)} | self._engine.in_flight.hung_ids()
        report.left = [
            one for one in report.left if one.what in CUT_WITH_THE_PROCESS or one.id in still
        ]
        if leaving and self._state.ends_process:
            self.layer_ended("exit")
            report.seconds = report.layers["exit"]
        await self.store()
        if not self._is_logged:
            self._is_logged = True
            fields = {
                "event": "drained",
                "worker": report.worker,
                "reason": report.reason,
                "seconds": report.seconds,
                "report": report.document(),
            }
            log.info("%s", report.summary(), extra=fields)

    async def store(self) -> None:
        """Store the report as it is now. Log a warning if the store does not take it."""
        report = self.report
        try:
            async with asyncio.timeout(max(0.1, self._state.seconds_left - 2 * EXIT_SECONDS)):
                command = StoreDrainReport(report.worker, report.text())
                await self._engine.writer.execute(command)
        except (StoreError, TimeoutError) as error:
            log.warning(
                "The drain report of worker %s could not be stored: %s. "
                "The sweeper will write that the drain was cut short.",
                report.worker,
                str(error) or "no answer",
            )
