"""`session` and `checkpoint` inside a run: state that is shared with other runs and programs, and outlives them."""

from __future__ import annotations

import asyncio
from types import EllipsisType

from outlast.api.checkpoint import Checkpoint
from outlast.api.session import Session, not_in_run
from outlast.errors import NotInRun
from outlast.execution.refusal import refused
from outlast.execution.run_loop import RunLoop
from outlast.execution.step_execution import BODY
from outlast.execution.threads import THREAD
from outlast.settings import Settings


def session(id: str, *, ttl: float | EllipsisType | None = ...) -> Session:
    """In a workflow or a step: the session with this id. In a workflow's own code each call is recorded; in a step's body it is a plain
    one, made as often as the body is executed. Outside a run: `app.session(id)`.

    `ttl` is for how many seconds each access keeps it; None: for ever; not said: for a day at least, without shortening what it has.
    """
    return Session(id, ttl, _settings("session"))


def checkpoint(task_id: str, *, ttl: float | None = None) -> Checkpoint:
    """In a workflow or a step: what `app.checkpoint(task_id)` is outside. A workflow rarely needs one: its steps are its checkpoints."""
    return Checkpoint(task_id, ttl, _settings("checkpoint"))


def _settings(what: str) -> Settings:
    """Of the Outlast that executes this code."""
    loop, body = asyncio._get_running_loop(), BODY.get()
    if isinstance(loop, RunLoop):
        return loop.execution.engine.settings
    if body is not None:
        return body.execution.engine.settings
    if THREAD.get() is not None:
        raise refused(NotInRun(f"this workflow is sync: use outlast.sync.{what}(...)."))
    raise not_in_run(what)
