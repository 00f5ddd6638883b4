"""Define `Run`, a handle on a run."""

from __future__ import annotations

import asyncio
from shlex import quote
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from outlast.codec.codecs import PLAIN
from outlast.codec.exceptions import UNREADABLE, decode_error
from outlast.errors import RunCancelled, RunDead, RunFailed, RunParked, StepFailed, UnknownRun
from outlast.execution.execution_state import OutcomeKind, RunOutcome

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.engine.inspection import RunInfo
    from outlast.execution.definitions import WorkflowDefinition

R = TypeVar("R")


class Run(Generic[R]):
    """A handle on a run, wherever it executes.

    `await run.result()` returns the workflow's result, or raises an error if there is none.
    """

    def __init__(self, engine: Engine, id: str, workflow: WorkflowDefinition | None) -> None:
        self.id = id
        self._engine = engine
        self._workflow = workflow

    async def result(self, timeout: float | None = None) -> R:
        """Wait for the run to end and return its result.

        A failure is raised as the workflow's own exception where that is safe, else as RunFailed.
        RunCancelled, RunTimeout, RunParked and RunDead say how else it ended. Raise TimeoutError
        after `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            end = await self._engine.runs.wait_until_ended(self.id)
        codec = self._workflow.signature.returns() if self._workflow is not None else PLAIN
        result: R = conclude(self.id, end, codec)
        return result

    async def info(self) -> RunInfo:
        """Return the run's current state. Raise UnknownRun if it does not exist."""
        from outlast.engine.inspection import RunInfo

        row = await self._engine.client.read(self._engine.store.run, self.id)
        if row is None:
            raise UnknownRun(self.id)
        return RunInfo.of(row)

    def __repr__(self) -> str:
        return f"<run {self.id!r}>"


def _decoded(text: str) -> BaseException:
    try:
        return decode_error(text)
    except ValueError as unreadable:
        # The record is damaged or was edited by hand. The run failed all the same.
        return StepFailed(UNREADABLE, str(unreadable), "")


def conclude(id: str, end: RunOutcome, codec: Any) -> Any:
    """Return the result of a run that ended, or raise the exception that says how it ended."""
    if end.kind is OutcomeKind.DONE:
        return codec.decode(end.value) if end.value is not None else None
    if end.kind is OutcomeKind.FAILED:
        error = _decoded(end.error) if end.error else RunFailed(id)
        if isinstance(error, StepFailed):
            raise RunFailed(id, str(error), error.traceback_text) from error.__cause__
        if isinstance(error, asyncio.CancelledError):
            # The workflow raised it itself. Its caller was not cancelled.
            raise RunFailed(id, "its workflow raised CancelledError, but the run was not cancelled")
        error.add_note(
            f"This is how run {id!r} ended, from its journal. "
            f"After fixing the cause, run: outlast retry {quote(id)}"
        )
        raise error
    if end.kind is OutcomeKind.PARKED:
        # The reason says what to do.
        raise RunParked(id, end.reason or "")
    ended = (
        RunDead(id, end.reason or "")
        if end.kind is OutcomeKind.DEAD
        else RunCancelled(id, end.reason or "")
    )
    wanted = (
        "After fixing the cause" if end.kind is OutcomeKind.DEAD else "To execute it all the same"
    )
    ended.add_note(f"{wanted}: outlast retry {quote(id)}, then the same call again.")
    raise ended
