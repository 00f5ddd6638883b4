"""Provide `session` and `checkpoint` inside a run: state shared with other runs and programs."""

from __future__ import annotations

import asyncio
from types import EllipsisType

from outlast.api.checkpoint import Checkpoint
from outlast.api.session import Session
from outlast.api.session_handle import not_in_run
from outlast.errors import NotInRun
from outlast.execution.refusal import refused
from outlast.execution.run_loop import RunLoop
from outlast.execution.step_execution import BODY
from outlast.execution.threads import THREAD
from outlast.settings import Settings


def session(
    id: str, *, ttl: float | EllipsisType | None = ..., fields_max: int | None = None
) -> Session:
    """Return the session with this id, in a workflow or a step.

    In a workflow's own code each call is recorded. In a step's body it is a plain call, made as
    often as the body executes. Outside a run, use `app.session(id)`.

    Each access keeps the session for `ttl` seconds. None keeps it forever. Without `ttl`, an access
    keeps it for at least a day and never shortens its expiry.
    """
    return Session(id, ttl, _settings("session"), fields_max=fields_max)


def checkpoint(task_id: str, *, ttl: float | None = None) -> Checkpoint:
    """Return the checkpoint of a task, in a workflow or a step. See `app.checkpoint(task_id)`.

    A workflow rarely needs one: its steps are its checkpoints.
    """
    return Checkpoint(task_id, ttl, _settings("checkpoint"))


def _settings(what: str) -> Settings:
    """Return the settings of the Outlast that executes this code. Raise NotInRun outside a run."""
    loop, body = asyncio._get_running_loop(), BODY.get()
    if isinstance(loop, RunLoop):
        return loop.execution.services.settings
    if body is not None:
        return body.execution.services.settings
    if THREAD.get() is not None:
        raise refused(NotInRun(f"this workflow is sync: use outlast.sync.{what}(...)."))
    raise not_in_run(what)
