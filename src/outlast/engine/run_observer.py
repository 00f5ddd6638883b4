"""React to what run executions report: progress, messages, ends and hung code."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from outlast.execution.run_execution import RunExecution
from outlast.execution.state import OutcomeKind, RunOutcome
from outlast.telemetry.error_text import format_recorded

if TYPE_CHECKING:
    from outlast.engine.engine import Engine

log = logging.getLogger("outlast")


class RunObserver:
    """Pass the reports of executions on to the components of an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def became_idle(self, execution: RunExecution) -> None:
        """Let the shutdown release a run of which nothing is in flight."""
        self._engine.listener.became_idle(execution)

    def made_progress(self, execution: RunExecution) -> None:
        """End the isolation of a suspect: the worker may claim other runs again."""
        self._engine.isolation.end(execution.fence)

    def waits_for_messages(self, execution: RunExecution) -> None:
        """Look for messages that the run waits for."""
        self._engine.request_poller.poll_messages(execution)

    def message_taken(self, execution: RunExecution) -> None:
        """Update what the store says the run waits for."""
        self._engine.request_poller.report_waiting(execution)

    def nothing_executes(self, execution: RunExecution) -> None:
        """Free the run's slot, so that the next claim is written after the run's end."""
        self._engine.in_flight.release_slot(execution.fence)

    def hung(self, execution: RunExecution) -> None:
        """Keep the run: the app closed while its code still executes."""
        self._engine.in_flight.hang(execution.row)

    def finished_late(self, execution: RunExecution) -> None:
        """Drop a hung run whose code has ended.

        If the store did not accept its last command, deregistering the worker releases it.
        """
        self._engine.in_flight.drop(execution.fence)

    def ended(self, execution: RunExecution, outcome: RunOutcome) -> None:
        """Clean up after a run execution, and take its run over again if it is still wanted.

        A run that was started here and has not ended is wanted, unless this process drains.
        """
        engine = self._engine
        in_flight = engine.in_flight
        in_flight.remove_execution(execution)
        engine.request_poller.forget(execution.id)
        in_flight.release_slot(execution.fence)
        if not in_flight.is_hung(execution.fence):
            in_flight.drop(execution.fence)
        if outcome.kind is OutcomeKind.PARKED:
            engine.hooks.tell("parked", execution.id)
        elif outcome.became_dead:
            engine.hooks.tell("dead", execution.id)
        if execution.claimed and outcome.kind is not OutcomeKind.HUNG:
            self._log_end(execution, outcome)
        engine.meters.execution(execution.workflow.name, outcome.label)
        if execution.trace.span is not None:
            execution.trace.span.end(execution.end_reason, outcome)
        if engine.shutdown.begun:
            engine.listener.run_ended(execution, outcome)
        # Its parent may have waited for it, or its queue may have room now.
        engine.wake_claimers()
        if outcome.is_wanted_back and not execution.claimed and not engine.shutdown.begun:
            engine.takeover.start(execution.row, execution.workflow)

    def _log_end(self, execution: RunExecution, outcome: RunOutcome) -> None:
        fields = execution.log_fields()
        if outcome.kind is OutcomeKind.FAILED:
            error = (
                format_recorded(outcome.error, self._engine.settings.log_values)
                if outcome.error
                else "it does not say why"
            )
            step = execution.trace.failed_calls.get(outcome.failed_at or 0)
            log.warning(
                "run %s failed: %s",
                execution.id,
                error,
                extra={**fields, "step": step, "status": "failed"},
            )
        elif outcome.kind in (OutcomeKind.DONE, OutcomeKind.CANCELLED):
            status = outcome.kind.value
            log.info("run %s is %s", execution.id, status, extra={**fields, "status": status})
        elif outcome.kind is not OutcomeKind.PARKED:
            # The hooks log a parked run.
            log.info(
                "run %s is released: %s",
                execution.id,
                outcome.reason,
                extra={**fields, "status": "released"},
            )
