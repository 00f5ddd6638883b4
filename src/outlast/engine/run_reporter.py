"""Log and count what becomes of runs."""

from __future__ import annotations

import logging

from outlast.engine.children import Unneeded
from outlast.execution import determinism
from outlast.execution.execution_state import OutcomeKind, RunOutcome
from outlast.execution.run_execution import RunExecution
from outlast.settings import Settings
from outlast.telemetry.error_text import format_recorded
from outlast.telemetry.meters import Meters

log = logging.getLogger("outlast")


class RunReporter:
    """Report the start and the end of executions in logs, metrics and traces."""

    def __init__(self, meters: Meters, settings: Settings) -> None:
        self._meters = meters
        self._settings = settings

    def started(self, execution: RunExecution) -> None:
        """Log a claimed run, and warn once of code that is not deterministic."""
        fields = execution.log_fields()
        if execution.claimed and log.isEnabledFor(logging.INFO):
            alone = " It runs alone, because it died more than once without recording anything."
            suffix = alone if execution.row.is_suspect else ""
            log.info("Run %s is claimed.%s", execution.id, suffix, extra=fields)
        if self._settings.check_workflows and not isinstance(execution.workflow, Unneeded):
            determinism.warn_once(execution.workflow, fields)

    def recovered(self, kind: str, seconds: float) -> None:
        """Count how long a run was idle after a death or an interruption."""
        self._meters.recovered(kind, seconds)

    def ended(self, execution: RunExecution, outcome: RunOutcome) -> None:
        """Count the end of an execution and end its span. Log it if the run was claimed."""
        if execution.claimed and outcome.kind is not OutcomeKind.HUNG:
            self._log_ended(execution, outcome)
        self._meters.execution(execution.workflow.name, outcome.label)
        if execution.trace.span is not None:
            execution.trace.span.end(execution.end_reason, outcome)

    def _log_ended(self, execution: RunExecution, outcome: RunOutcome) -> None:
        fields = execution.log_fields()
        if outcome.kind is OutcomeKind.FAILED:
            error = "no error was recorded"
            if outcome.error:
                error = format_recorded(outcome.error, self._settings.log_values)
            step = execution.trace.failed_calls.get(outcome.failed_at or 0)
            fields |= {"step": step, "status": "failed"}
            log.warning("Run %s failed: %s", execution.id, error, extra=fields)
        elif outcome.kind in (OutcomeKind.DONE, OutcomeKind.CANCELLED):
            status = outcome.kind.value
            fields |= {"status": status}
            log.info("Run %s is %s.", execution.id, status, extra=fields)
        elif outcome.kind is not OutcomeKind.PARKED:
            # The hooks log a parked run.
            fields |= {"status": "released"}
            log.info("Run %s is released: %s", execution.id, outcome.reason, extra=fields)
