"""Cancel a run on request or at its deadline.

The request enters the journal first. Its delivery cancels the workflow's main task.
"""

from __future__ import annotations

import asyncio
import json
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from outlast.execution import recording
from outlast.execution.clock import WAIT_SECONDS_MAX
from outlast.store.commands import Record
from outlast.store.rows import Entry

if TYPE_CHECKING:
    from outlast.execution.run_execution import RunExecution


class CancelState(Enum):
    """How far a request to cancel the run has come in this execution."""

    NONE = auto()
    REQUESTED = auto()
    """The request was submitted to the journal."""
    DELIVERED = auto()
    """The workflow's main task is cancelled. Its calls raise CancelledError."""


class Cancellation:
    """The cancellation of one run, on request or at its deadline."""

    __slots__ = ("deadline_timer", "early_request", "entry", "reason", "state", "timed_out")

    def __init__(self, early_request: str | None) -> None:
        self.early_request = early_request
        """The reason of a request that came before the journal was replayed."""
        self.state = CancelState.NONE
        self.reason: str | None = None
        """Why the run is cancelled. None until the request is delivered."""
        self.entry: int | None = None
        """The number of the request's entry."""
        self.timed_out = False
        """True if the run is cancelled because it took longer than its time-out."""
        self.deadline_timer: asyncio.TimerHandle | None = None

    def begin(self) -> bool:
        """Note that the request is submitted. Return False if that has happened before."""
        if self.state is not CancelState.NONE:
            return False
        self.state = CancelState.REQUESTED
        return True

    def deliver(self, entry: Entry | Record) -> str:
        """Cancel the run, and return the reason."""
        request = json.loads(entry.value or "{}")
        self.state = CancelState.DELIVERED
        self.reason = str(request.get("why", ""))
        self.timed_out = bool(request.get("timeout"))
        self.entry = entry.seq
        return self.reason

    def stop(self) -> None:
        """Stop waiting for the deadline."""
        if self.deadline_timer is not None:
            self.deadline_timer.cancel()


def check(execution: RunExecution, cancel: str | None = None) -> None:
    """Record a request to cancel, unless the journal has it already.

    A compensation is not cancelled: the request was meant for an earlier execution.
    """
    if execution.undoing:
        return
    cancellation = execution.cancellation
    why = cancel if cancel is not None else cancellation.early_request
    if why is not None and execution.is_replaying:
        cancellation.early_request = why
    elif why is not None:
        _request(execution, {"why": why})


def _request(execution: RunExecution, request: dict[str, Any]) -> None:
    """Record the request, once per execution.

    Deferred steps wait for it, since it may cancel them.
    """
    if execution.cancellation.begin():
        seq = recording.record(execution, "cancel", "", value=json.dumps(request))
        if seq and execution.calls.deferred:
            execution.calls.block_until(seq)


def watch_deadline(execution: RunExecution) -> None:
    """Cancel the run at its deadline, if it has one."""
    if execution.row.deadline is not None and execution.cancellation.deadline_timer is None:
        _wait_for_deadline(execution, execution.row.deadline)


def _wait_for_deadline(execution: RunExecution, deadline: float) -> None:
    delay = min(max(0.0, deadline - execution.clock.now()), WAIT_SECONDS_MAX)
    timer = execution.host.call_later(delay, check_deadline, execution)
    execution.cancellation.deadline_timer = timer


def check_deadline(execution: RunExecution) -> None:
    """Cancel the run if its deadline has passed. Otherwise wait for it again."""
    deadline = execution.row.deadline
    if execution.end_reason is not None or deadline is None:
        return
    if execution.clock.now() < deadline:
        _wait_for_deadline(execution, deadline)
    else:
        _request(execution, {"why": "it took longer than its timeout", "timeout": True})


def cancel_main(execution: RunExecution, entry: Entry | Record) -> None:
    """Cancel the workflow's main task: the request is delivered."""
    reason = execution.cancellation.deliver(entry)
    if execution.main is not None:
        execution.main.cancel(reason)
