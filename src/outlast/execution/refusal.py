"""Refuse calls that workflow code may not make."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from outlast.errors import NotInRun
from outlast.execution.run_loop import RunLoop
from outlast.execution.step_execution import BODY
from outlast.execution.threads import THREAD

if TYPE_CHECKING:
    from outlast.execution.run_execution import RunExecution

E = TypeVar("E", bound=NotInRun)


def refused(error: E) -> E:
    """Return the error to raise for a forbidden call.

    In a workflow's own code the error also ends the run, so it counts even if it is caught. Outside
    a run, and in a step's body, it is an ordinary exception.
    """
    execution = _execution()
    return error if execution is None else execution.refuse(error)


def _execution() -> RunExecution | None:
    loop = asyncio._get_running_loop()
    if isinstance(loop, RunLoop):
        return loop.execution
    thread = THREAD.get()
    return thread._execution if thread is not None and BODY.get() is None else None
