"""Define `@workflow` and `Call`, the object that calling a workflow returns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from outlast.api.definition_checks import check_options, default_name
from outlast.errors import NotInRun, SettingsError
from outlast.execution.calls import start_child, wait_for_outcome
from outlast.execution.definitions import WorkflowCall, WorkflowDefinition
from outlast.execution.refusal import refused
from outlast.execution.run_loop import RunLoop

if TYPE_CHECKING:
    from outlast.api.schedule import Schedule
    from outlast.execution.call_site import CallSite

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Workflow(WorkflowDefinition, Generic[P, R]):
    """A decorated function. Calling it returns a `Call`.

    `run`, `app.start` and `app.submit` turn the call into a run. Its runs are recorded under
    `name`. `fn` is the plain function. `timeout` bounds a run, counted from its first start. For
    `abandon_after` and `schedule` see `workflow`.
    """

    def __init__(
        self,
        fn: Callable[P, Any],
        *,
        name: str | None = None,
        timeout: float | None = None,
        abandon_after: float | None = None,
        schedule: str | Schedule | None = None,
    ) -> None:
        name = default_name(fn, name, "workflow")
        check_options("workflow", name, timeout=timeout, abandon_after=abandon_after)
        super().__init__(fn, name, timeout=timeout, abandon_after=abandon_after)
        self.schedule = _schedule_of(schedule)
        if self.schedule is not None:
            self._check_has_no_arguments()

    def _check_has_no_arguments(self) -> None:
        """Raise SettingsError if a scheduled workflow cannot be called without arguments."""
        try:
            self.call_without_arguments()
        except TypeError as error:
            raise SettingsError(
                f"workflow {self.name} has a schedule, but cannot be called without arguments: "
                f"{error}. Give its parameters defaults, or set the schedule with "
                "`app.schedule(name, call, ...)`."
            ) from None

    def call_without_arguments(self) -> Call[R]:
        """Return the call that its schedule makes."""
        return Call(self, (), {})

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        return Call(self, args, kwargs)


class Call(WorkflowCall, Coroutine[Any, Any, R_co]):
    """A workflow with its arguments. Inside a run, `await call` is a child run.

    The constructor checks and encodes the arguments: it raises TypeError or Unrecordable before
    anything is written.
    """

    def __init__(
        self, workflow: WorkflowDefinition, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        super().__init__(workflow, workflow.signature.encode(args, kwargs))
        self._coro: Coroutine[Any, Any, R_co] | None = None
        self._call_site: CallSite | None = None
        loop = asyncio._get_running_loop()
        if isinstance(loop, RunLoop):
            workflow.signature.returns()
            call_site = loop.execution.calls.reserve(
                "child", workflow.key_part, workflow.signature.fingerprint(args, kwargs)
            )
            call_site.codec = workflow.signature.returns
            self._call_site = call_site
            self.__qualname__ = call_site.key

    def again(self) -> Call[R_co]:
        """Return the same call with a new call site, reserved here."""
        args, kwargs = self.workflow.signature.decode(self.args)
        return Call(self.workflow, args, kwargs)

    def __await__(self) -> Generator[Any, Any, R_co]:
        return self._awaited().__await__()

    def send(self, value: Any) -> Any:
        return self._awaited().send(value)

    def throw(self, *args: Any) -> Any:
        return self._awaited().throw(*args)

    def close(self) -> None:
        if self._coro is not None:
            self._coro.close()

    def _awaited(self) -> Coroutine[Any, Any, R_co]:
        if self._coro is None:
            loop = asyncio._get_running_loop()
            if self._call_site is None or not isinstance(loop, RunLoop):
                raise refused(
                    NotInRun(
                        f"{self!r} can be awaited only inside a run, where it is a child run. "
                        "Elsewhere: run(call), or await app.start(call)."
                    )
                )
            execution, call_site = loop.execution, self._call_site
            self._coro = wait_for_outcome(execution, call_site, partial(start_child, call=self))
        return self._coro


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(fn: Callable[P, R], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    timeout: float | None = None,
    abandon_after: float | None = None,
    schedule: str | Schedule | None = None,
) -> _Decorator: ...
def workflow(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    timeout: float | None = None,
    abandon_after: float | None = None,
    schedule: str | Schedule | None = None,
) -> Any:
    """Make a function a workflow: `@workflow`, or `@workflow(name=..., timeout=seconds)`.

    The name defaults to the function's qualified name, without its module. Two workflows with one
    name are an error.

    Set `abandon_after` to give up on a run that has begun, if no worker takes it over for that many
    seconds although a suitable worker is alive. Its effects are compensated, and it fails with
    `Abandoned`.

    `schedule` is a cron expression in UTC, or a `Schedule`. Workers that know the workflow set the
    schedule under the workflow's name.
    """
    if fn is not None:
        return Workflow(fn)
    return lambda fn: Workflow(
        fn, name=name, timeout=timeout, abandon_after=abandon_after, schedule=schedule
    )


class _Decorator:
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Workflow[P, R]: ...
    def __call__(self, fn: Any, /) -> Any: ...


def _schedule_of(given: str | Schedule | None) -> Schedule | None:
    if not isinstance(given, str):
        return given
    from outlast.api.schedule import Schedule

    return Schedule(cron=given)
