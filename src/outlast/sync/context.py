"""Provide what a sync workflow calls: child runs, `sleep`, `receive` and `compensate_with`.

They block the workflow's thread. `run` also executes a whole program.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from outlast.api import context, run_once
from outlast.api import effect as core_effect
from outlast.api.workflow import Call
from outlast.errors import NotInRun, SettingsError
from outlast.execution import step_start
from outlast.execution.progress import body_of
from outlast.execution.refusal import refused
from outlast.execution.run_loop import RunLoop
from outlast.execution.step_execution import BODY
from outlast.execution.threads import THREAD, SyncWorkflowThread

if TYPE_CHECKING:
    from outlast.api.effect import SyncEffect
    from outlast.engine.submission import OnConflict
    from outlast.settings.options import SettingsOptions

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def run(
    call: Call[R],
    *,
    id: str | None = None,
    store: str | None = None,
    on_conflict: OnConflict = "raise",
    **settings: Unpack[SettingsOptions],
) -> R:
    """Execute a workflow in this process and return its result.

    After a crash, the same call with the same id continues from the last recorded step.
    `on_conflict` works as in `Outlast.start`. In a sync workflow, `run(call)` is a child run and
    takes the call alone.
    """
    thread = _thread()
    if thread is None or not isinstance(call, Call):
        return run_once.run(call, id=id, store=store, on_conflict=on_conflict, **settings)
    if id is not None or store is not None or on_conflict != "raise" or settings:
        raise SettingsError(
            "a child run takes its id and its store from its parent. Inside a run, pass run() only "
            "the call."
        )
    # Create the call again where it is awaited: a call reserves its call site on the run loop, and
    # this one was created in the thread.
    return _on_run_loop("run", call.again)


def sleep(seconds: float) -> None:
    """Sleep durably: the time passes even while no process is alive."""
    _on_run_loop("sleep", lambda: context.sleep(seconds))


@overload
def receive(name: str, *, timeout: float | None = None) -> Any: ...
@overload
def receive(name: str, type: type[T], *, timeout: float | None = None) -> T: ...
def receive(name: str, type: type[Any] = object, *, timeout: float | None = None) -> Any:
    """Wait for a message with this name and return it, oldest first.

    `app.send(id, name, value)` sends it, before or after this call. The message is read as `type`.
    Raise Unrecordable if it does not fit, and TimeoutError after `timeout` seconds.
    """
    return _on_run_loop("receive", lambda: context.receive(name, type, timeout=timeout))


def started_before() -> bool:
    """Return whether an earlier attempt or execution of this step has made this call.

    Use it in the body of a sync step. The call itself is recorded before it returns, which costs
    one write.
    """
    step = body_of("started_before")
    asking = step_start.started_before(step)
    return asyncio.run_coroutine_threadsafe(asking, step.execution.host).result()


def compensate_with(effect: SyncEffect[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Register `effect` to be called with these arguments if the run is compensated.

    Use it in a sync workflow. The registration is durable when this returns.
    """
    _on_run_loop("compensate_with", lambda: core_effect.compensate_with(effect, *args, **kwargs))


def _thread() -> SyncWorkflowThread | None:
    """Return the sync workflow's thread if its own code makes this call, else None."""
    return THREAD.get() if BODY.get() is None else None


def _on_run_loop(what: str, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    if isinstance(asyncio._get_running_loop(), RunLoop):
        raise refused(
            NotInRun(
                f"outlast.sync.{what}() is for a sync workflow, and this one is async: use "
                f"`await outlast.{what}(...)`."
            )
        )
    thread = _thread()
    if thread is None:
        # This raises NotInRun with a hint.
        context._workflow(what)
        raise AssertionError(what)
    answer: T = thread.call(make)
    return answer
