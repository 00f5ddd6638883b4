"""Define `unit`: work that a drain does not interrupt halfway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from outlast.api.context import _execution
from outlast.api.definition_checks import NAME_LENGTH_MAX
from outlast.codec.exceptions import SEQ
from outlast.codec.identifiers import check_name
from outlast.errors import Diverged, Draining, Evicted, NotInRun, OutlastError
from outlast.execution.compensation import undo_members
from outlast.execution.step_execution import BODY
from outlast.execution.unit_scope import UNIT, UnitScope

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.execution.call_site import CallSite
    from outlast.execution.definitions import EffectDefinition
    from outlast.execution.run_execution import RunExecution
    from outlast.execution.services import ExecutionServices


class Unit:
    """A unit of work, for `async with` and `with`.

    A drain waits until the unit ends, as long as there is time. Inside it new steps and items still
    start, but during a drain no child run, no `map` or `each` of the app, and no outermost unit
    begins.

    The unit is committed when its block ends and rolled back when an exception leaves the block. A
    rollback compensates the effects that were called in it, newest first, but not those of a child
    run. A run that leaves this process inside a unit does neither.
    """

    def __init__(self, name: str, engine: Callable[[], Engine] | None = None) -> None:
        self.name = check_name(name, NAME_LENGTH_MAX, "unit name")
        self._find_engine = engine
        self._services: ExecutionServices | None = None
        self._execution: RunExecution | None = None
        """The run that it is part of, if any."""
        self._token: object = None
        self.holds = False
        """Whether a drain waits for it."""
        self.members: list[CallSite] = []
        """The effects that were called in it and are not compensated."""
        self.outer: UnitScope | None = None
        self.left = False
        self._is_async = False

    def __enter__(self) -> Self:
        if self._services is not None:
            raise OutlastError(f"unit {self.name!r} is already entered. Create another one.")
        workflow, body = _execution(), BODY.get()
        self._execution = workflow or (body.execution if body is not None else None)
        if self._execution is not None:
            services = self._execution.services
        elif self._find_engine is not None:
            services = self._find_engine().services
        else:
            raise _not_in_run()
        if self._execution is None and services.shutdown.begun and UNIT.get() is None:
            raise Draining(f"this process is shutting down: unit {self.name!r} was not started.")
        if workflow is not None:
            workflow.check()
            workflow.on_run_loop(self._enter_run)
        else:
            self._token = services.scopes.enter("unit", self.name)
            self.holds = True
            self._set()
        self._services = services
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        services, execution = self._services, self._execution
        if services is None:
            return
        if self._token is None:
            assert execution is not None
            if execution.end_reason is None:
                if (
                    error is not None
                    and self.members
                    and execution.sync_thread is not None
                    and not self._is_left(error)
                ):
                    try:
                        execution.sync_thread.call(lambda: self._undo(execution, error))
                    finally:
                        self._leave(execution)
                else:
                    self._leave(execution)
        else:
            services.scopes.leave(self._token)
            self._token = None
            self._unset()
        self._services = None
        replayed = _execution() is not None and execution is not None and execution.is_replaying
        if self._is_left(error) or replayed:
            return
        services.totals.unit_ended(committed=error is None)

    def _leave(self, execution: RunExecution) -> None:
        if execution.end_reason is None:
            execution.on_run_loop(self._leave_run)

    async def __aenter__(self) -> Self:
        self._is_async = True
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        execution = self._execution
        if (
            error is not None
            and self.members
            and execution is not None
            and not self._is_left(error)
        ):
            try:
                await self._undo(execution, error)
            finally:
                self.__exit__(kind, error, trace)
        else:
            self.__exit__(kind, error, trace)

    def _is_left(self, error: BaseException | None) -> bool:
        """Return whether the run leaves this process or is compensated as a whole.

        The unit then neither commits nor rolls back.
        """
        execution = self._execution
        if isinstance(error, (Evicted, Diverged, GeneratorExit)):
            return True
        return execution is not None and (
            execution.end_reason is not None
            or (error is not None and execution.cancellation.reason is not None)
        )

    async def _undo(self, execution: RunExecution, error: BaseException) -> None:
        """Compensate the unit's effects, on the run loop.

        Cancelling the waiting task does not interrupt this.
        """
        self.left = True
        members, self.members = self.members, []
        firsts = [
            one.first
            for call_site in members
            if (one := execution.journal.effect_log.get(call_site.key)) is not None and one.intent
        ]
        if firsts and SEQ not in error.__dict__:
            # If this error ends the run, a retry begins with the effects compensated now.
            error.__dict__[SEQ] = min(firsts)
        task = execution.loop.create_task(
            undo_members(execution, members), name=f"undo {self.name}"
        )
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as again:
                if execution.end_reason is not None:
                    raise
                cancelled = again
        task.result()
        if cancelled is not None:
            raise cancelled

    def admit(self, effect: EffectDefinition, *, needs_compensation: bool = True) -> None:
        """Raise OutlastError if the unit could not compensate the effect."""
        assert self._execution is not None
        if self.left:
            raise OutlastError(
                f"effect {effect.name} was called in unit {self.name!r} after the unit had ended. "
                "Await the tasks of a unit inside it."
            )
        if not self._is_async and self._execution.sync_thread is None:
            raise OutlastError(
                f"effect {effect.name} was called in unit {self.name!r}, which was entered with "
                "`with` and could not undo it. In an async workflow, use `async with unit(...)`."
            )
        if needs_compensation and effect.compensation is None and effect.undo_needed:
            raise OutlastError(
                f"effect {effect.name} was called in unit {self.name!r} and has no compensation. "
                f"Write one (@{effect.name}.compensate), or declare @effect(..., undo=None) if it "
                "needs none."
            )

    def _set(self) -> None:
        self.outer = UNIT.get()
        UNIT.set(self)

    def _unset(self) -> None:
        self.left = True
        UNIT.set(self.outer)

    def _enter_run(self) -> None:
        assert self._execution is not None
        if self._execution.may_start(UNIT.get()):
            self._execution.steps.enter_unit()
            self.holds = True
        # Otherwise it is too late: the unit's first step waits for the next life, and the whole
        # unit with it.
        self._set()

    def _leave_run(self) -> None:
        assert self._execution is not None
        if self.holds:
            self.holds = False
            self._execution.steps.leave_unit()
        self._unset()

    def __repr__(self) -> str:
        return f"<unit {self.name!r}>"


def unit(name: str) -> Unit:
    """Return a unit: work that a drain does not interrupt halfway.

    Use it in a workflow or a step, as `async with unit("order"):` or with `with`. A drain waits for
    it, as long as there is time, and new steps still start inside it. An exception that leaves it
    rolls it back: the effects that were called in it are compensated, but not those of a child run.
    Outside a run, use `app.unit(name)`.
    """
    if _execution() is None and BODY.get() is None:
        raise _not_in_run()
    return Unit(name)


def _not_in_run() -> NotInRun:
    return NotInRun(
        "unit() is for the code of a workflow or a step. "
        "Elsewhere: `async with app.unit(name):`, or `with`."
    )
