"""Define what every handle of a session has: its address, and where its calls are made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.codec.identifiers import check_field
from outlast.engine.session_parts import address
from outlast.errors import NotInRun, NotInStep
from outlast.execution import session_calls
from outlast.execution.refusal import refused
from outlast.execution.run_loop import RunLoop
from outlast.execution.session_calls import Read
from outlast.execution.session_changes import Write
from outlast.execution.step_execution import BODY
from outlast.execution.threads import THREAD
from outlast.store.commands import SESSION
from outlast.store.protocol import Store
from outlast.store.session_rows import SessionRow

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.execution.run_execution import RunExecution
    from outlast.execution.services import ExecutionServices
    from outlast.settings import Settings

T = TypeVar("T")
Awaits = Coroutine[None, None, T]


class SessionHandle:
    """A session's address. A call is recorded in a workflow's own code, and plain elsewhere."""

    def __init__(
        self,
        id: str,
        ttl: float | EllipsisType | None,
        settings: Settings,
        find: Callable[[], Engine] | None = None,
        space: str = SESSION,
        fields_max: int | None = None,
    ) -> None:
        """Create a handle. `find` returns its engine. None: the engine of the current run."""
        self._settings, self._find = settings, find
        self._at = address(space, id, ttl, settings, fields_max=fields_max)

    @property
    def id(self) -> str:
        """Return the session's id."""
        return self._at.id

    @property
    def owner(self) -> int | None:
        """Return the number under which `take` made this handle the owner. None: it is not one.

        Each take gets a greater number, so other systems can use it as a fence.
        """
        return self._at.owner

    def _name(self, what: str) -> str:
        """Return the name that a call is recorded under."""
        return f"{self._at.space}.{what}"

    def _read(
        self,
        name: str,
        args: tuple[Any, ...],
        find: Callable[[Store], tuple[SessionRow | None, str]],
        decode: Callable[[str], T],
        *,
        touches: bool = True,
    ) -> Awaits[T]:
        wanted = Read(self._at, self._name(name), args, find, decode, touches)
        execution = self._execution()
        return (
            session_calls.read(self._services(), wanted)
            if execution is None
            else session_calls.read_in_run(execution, wanted)
        )

    def _write(self, wanted: Write, *, alone: bool = False) -> Awaits[Any]:
        execution = self._execution()
        if execution is None:
            return session_calls.change(self._services(), wanted, alone=alone)
        return session_calls.change_in_run(execution, wanted)

    def _execution(self) -> RunExecution | None:
        """Return the run whose own code makes this call, or None."""
        loop = asyncio._get_running_loop()
        if not isinstance(loop, RunLoop):
            return None
        if self._find is not None and self._find().services is not loop.execution.services:
            raise refused(
                NotInStep(
                    f"{self._at} belongs to another Outlast than the run that uses it here, so it "
                    "cannot be recorded with the run. "
                    f"Use outlast.{self._at.space}() here, or put this into a step."
                )
            )
        return loop.execution

    def _services(self) -> ExecutionServices:
        if self._find is not None:
            return self._find().services
        loop, body, thread = asyncio._get_running_loop(), BODY.get(), THREAD.get()
        if isinstance(loop, RunLoop):
            return loop.execution.services
        if body is not None:
            return body.execution.services
        if thread is not None:
            return thread._execution.services
        raise not_in_run(self._at.space)

    def _field(self, name: str) -> str:
        return check_field(name, self._settings.name_length_max)

    def __repr__(self) -> str:
        return f"<{self._at}>"


def not_in_run(what: str) -> NotInRun:
    """Build the error for a call of `what()`, a function that returns a session, outside a run."""
    return NotInRun(
        f"{what}() is for the code of a workflow or a step. Outside a run, use app.{what}(id)."
    )
