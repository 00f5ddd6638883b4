"""Warn about calls and tasks that a workflow left behind when it ended."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from outlast.codec.identifiers import unescape_name
from outlast.execution.source_lines import is_of_program, location

if TYPE_CHECKING:
    from outlast.execution.call_site import CallSite
    from outlast.execution.run_execution import RunExecution

log = logging.getLogger("outlast.replay")


def warn_not_awaited(execution: RunExecution, call_site: CallSite) -> None:
    """Log a call without `await`: it did nothing, and the run ended all the same.

    For a run that failed, log only effects. An exception may have come between the call and its
    `await`.
    """
    settlement = execution.ending.settlement
    if settlement is None or (settlement.status != "done" and call_site.effect is None):
        return
    kind = "Effect" if call_site.effect is not None else call_site.kind.capitalize()
    line = "" if call_site.line is None else f" at {location(call_site.line)}"
    level = logging.ERROR if call_site.effect is not None else logging.WARNING
    message = (
        "%s %s of run %s was called%s and not awaited, so nothing was done. Await it: "
        "`await %s(...)`."
    )
    name = unescape_name(call_site.key.rpartition("/")[2].partition("#")[0].partition("[")[0])
    log.log(
        level,
        message,
        kind,
        call_site.key,
        execution.id,
        line,
        name,
        extra=execution.log_fields(call_site.key),
    )


def warn_of_running_tasks(execution: RunExecution) -> None:
    """Log the program's tasks that still run when a run is done.

    The workflow did not wait for them. Tasks that the workflow has cancelled do not count, nor do
    tasks that a library created for itself.
    """
    settlement = execution.ending.settlement
    if settlement is None or settlement.status != "done" or execution.undoing:
        return
    module = execution.workflow.fn.__module__
    running = [
        (task, task.line)
        for task in execution.loop.tasks
        if not (task is execution.main or task.done() or task.cancelling())
        and task.line is not None
        and is_of_program(task.line, module)
    ]
    if running:
        task, line = running[0]
        more = f" and {len(running) - 1} more" if len(running) > 1 else ""
        log.warning(
            "Run %s ended while task %s, created at %s,%s was still running. Its remaining work "
            "is lost. "
            "Await the task before the workflow returns, or cancel it.",
            execution.id, task.scope.path.rstrip("/"), location(line), more,
            extra=execution.log_fields(),
        )  # fmt: skip
