"""Cancel a run on request or at its deadline.

The request enters the journal first. Its delivery cancels the workflow's main task.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from outlast.execution.state import ExecutionState
from outlast.store.commands import Record
from outlast.store.rows import Entry

if TYPE_CHECKING:
    from outlast.execution.run_execution import RunExecution


def check(execution: RunExecution, cancel: str | None = None) -> None:
    """Record a request to cancel, unless the journal has it already.

    A compensation is not cancelled: the request was meant for an earlier execution.
    """
    if execution.undoing:
        return
    why = cancel if cancel is not None else execution.row.cancel
    if why is not None and execution.state is ExecutionState.REPLAYING:
        execution.row = execution.row._replace(cancel=why)
    elif why is not None:
        request(execution, {"why": why})


def request(execution: RunExecution, request: dict[str, Any]) -> None:
    """Record the request, once per execution.

    Deferred steps wait for it, since it may cancel them.
    """
    if not execution.cancel_asked and execution.cancelling is None:
        execution.cancel_asked = True
        seq = execution.record("cancel", "", value=json.dumps(request))
        if execution.deferred_calls:
            execution.first.add(seq)


def watch_deadline(execution: RunExecution) -> None:
    assert execution.row.deadline is not None
    delay = min(max(0.0, execution.row.deadline - execution.now()), 86_400.0)
    execution.deadline = execution.host.call_later(delay, deadline_due, execution)


def deadline_due(execution: RunExecution) -> None:
    if execution.end_reason is not None:
        return
    if execution.row.deadline is not None and execution.now() < execution.row.deadline:
        watch_deadline(execution)
    else:
        request(execution, {"why": "it took longer than its timeout", "timeout": True})


def cancel_main(execution: RunExecution, entry: Entry | Record) -> None:
    request = json.loads(entry.value or "{}")
    execution.cancelling = str(request.get("why", ""))
    execution.timed_out = bool(request.get("timeout"))
    execution.cancel_seq = entry.seq
    if execution.main is not None:
        execution.main.cancel(execution.cancelling)
