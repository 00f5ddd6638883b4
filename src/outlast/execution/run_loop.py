"""Provide the run loop: the event loop that executes a workflow's own code.

The loop is a queue of ready callbacks. No socket, clock or thread can reach it. Only the entries of
the run's journal do, delivered in order by the run execution (`run_execution.py`). The same journal
therefore always has the same effect.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import operator
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextvars import Context
from threading import Thread
from types import MethodType
from typing import TYPE_CHECKING, Any, NoReturn, Self
from weakref import ref
from zlib import crc32

from outlast.errors import NotInRun, NotInStep
from outlast.execution.scopes import EXPLICIT_SCOPE, ExplicitScope, Scope, creating_function
from outlast.execution.source_lines import Line, creating_line

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from outlast.execution.clock import RunClock
    from outlast.execution.run_execution import RunExecution

log = logging.getLogger("outlast.replay")

_SCOPE = " cancel scope "
"""A part of the message of every anyio cancellation, in all anyio versions."""
REPEATS = 100
"""The number of consecutive rounds of the ready queue in which a callback rescheduled itself,
after which the run counts as settled if only such callbacks are left."""
REPEATED_CALLBACKS = 3_000
"""The number of callbacks after which the run counts as settled even if other callbacks are left.
An example is a task that catches each cancellation and waits again.

Journals may depend on both numbers, so they must not change.
"""


class RunTask(asyncio.Task[Any]):
    """A task of a run, hashed by its run and its scope.

    asyncio iterates over sets of tasks. Their order must not depend on addresses or on the hash
    seed of the process.

    The run is in the high bits. Tasks of different runs therefore differ in asyncio's set of all
    tasks. The order of a set with tasks of one run follows from the low bits, so it depends on the
    scopes alone.
    """

    def __init__(self, coro: Any, *, scope: Scope, loop: RunLoop, context: Context | None) -> None:
        self.scope = scope
        creator = asyncio.current_task(loop)
        self.creator = None if creator is None else ref(creator)
        self.line: Line | None = None
        """The line of the program that created the task. None if a library or Outlast did."""
        self.order = loop.task_order()
        self._number: int = loop.number << 32 | crc32(scope.path.encode())
        super().__init__(coro, loop=loop, name=scope.path or "main", context=context)

    def add_done_callback(
        self, fn: Callable[..., object], /, *, context: Context | None = None
    ) -> None:
        """Refuse a thread that ends with this task: the thread would execute the task's calls.

        `anyio.to_thread` starts a worker this way, just before it passes the function to the
        worker.
        """
        thread = getattr(fn, "__self__", None)
        if isinstance(thread, Thread):
            # The callback signals the end of the task. The thread stops before it executes
            # anything.
            fn(self)
            _refuse(self.get_loop(), "a worker thread was started")  # type: ignore[arg-type]
        super().add_done_callback(fn, context=context)

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the task. If an anyio scope cancels several tasks at once, the oldest wakes first.

        anyio keeps nested scopes in a set, ordered by address.
        """
        loop = self.get_loop()
        assert isinstance(loop, RunLoop)
        ready = len(loop.ready)
        ordered = loop.ordered
        cancelled = super().cancel(msg)
        # The new handle wakes this task, unless a task that it awaits has ordered its own handle.
        if (
            isinstance(msg, str)
            and _SCOPE in msg
            and len(loop.ready) == ready + 1
            and loop.ordered == ordered
        ):
            loop.put_in_order(self, msg)
        return cancelled

    def __hash__(self) -> int:
        return self._number

    __eq__ = object.__eq__


class RunLoop(asyncio.AbstractEventLoop):
    """The event loop of one execution. What it does not define raises NotInStep."""

    def __init__(self, execution: RunExecution, clock: RunClock) -> None:
        self.execution = execution
        self._clock = clock
        self.root = Scope("")
        self.ready: deque[asyncio.Handle] = deque()
        # Strong references: a task that only a reference cycle holds must not vanish.
        self.tasks: dict[RunTask, None] = {}
        self._is_open = False
        """Whether callbacks may be scheduled: while the loop is pumped, or in a `with` block."""
        self.number: int = crc32(execution.id.encode()) >> 4
        """The run's part of its tasks' hashes."""
        self.task_order: Callable[[], int] = itertools.count(1).__next__
        self.ordered = 0
        """The number of wake-ups of cancelled tasks that were put in order."""
        self._woken: list[tuple[int, asyncio.Handle]] = []
        self._woken_by = ""
        self._repeating = 0
        """The number of handles left when the run settled. They only reschedule themselves."""

    # -- scheduling from outside: the run execution does this from a callback of the host loop

    def opened(self) -> Self:
        """Return a block in which Outlast may schedule callbacks: `with loop.opened():`.

        They execute at the next `pump`. Outside of both, an attempt to wake the workflow is an
        error of the program. Blocks do not nest.
        """
        return self

    def __enter__(self) -> None:
        self._is_open = True

    # Named parameters, not `*exc`: this is on the path of every entry.
    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._is_open = False

    # -- pumping: the run execution calls this from a callback of the host loop

    def pump(self, callbacks_max: int) -> bool:
        """Execute callbacks until the run has settled.

        Return False after more than `callbacks_max` callbacks. The run has settled when no callback
        is ready, or when only callbacks that reschedule themselves are left. A cancelled anyio
        scope reschedules itself until its tasks have ended, which may take the outcome of a step.
        The run stops at the same point in every execution.
        """
        ready = self.ready
        if len(ready) == self._repeating:
            # Nothing was added since the run settled.
            return True
        hooks = sys.get_asyncgen_hooks()
        asyncio._set_running_loop(self)
        sys.set_asyncgen_hooks(None, self._finalize)
        self._is_open = True
        executed = rounds = 0
        try:
            while ready:
                repeated = 0
                for _ in range(len(ready)):
                    handle = ready.popleft()
                    executed += 1
                    if not handle._cancelled:
                        handle._run()
                        if ready and _repeats(ready[-1], handle):
                            repeated += 1
                if executed > callbacks_max:
                    return False
                rounds = rounds + 1 if repeated else 0
                if rounds >= REPEATS and (repeated == len(ready) or executed >= REPEATED_CALLBACKS):
                    break
            return True
        finally:
            self._repeating = len(ready)
            self._is_open = False
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(self.execution.host)

    def put_in_order(self, task: RunTask, message: str) -> None:
        """Move the last handle, which wakes this task, to its position by the age of the tasks.

        It moves only among the handles of tasks that were just cancelled with the same message.
        """
        ready = self.ready
        woken = self._woken
        handle = self.ready.pop()
        if message != self._woken_by or not ready or not woken or ready[-1] is not woken[-1][1]:
            self._woken_by = message
            woken = []
            self._woken = woken
        at = len(woken)
        while at and woken[at - 1][0] > task.order:
            at -= 1
            ready.pop()
        woken.insert(at, (task.order, handle))
        ready.extend(one for _, one in woken[at:])
        self.ordered += 1

    def scope(self) -> Scope:
        """Return the scope that numbers the calls of the current code."""
        explicit = EXPLICIT_SCOPE.get()
        if explicit is not None and explicit.loop is self:
            return explicit
        task = asyncio.current_task(self)
        return task.scope if isinstance(task, RunTask) else self.root

    def explicit_scope(self) -> ExplicitScope | None:
        """Return the innermost `scope(...)` of this run around the current code, or None."""
        explicit = EXPLICIT_SCOPE.get()
        # A run that a step's body starts inherits the scope of the step's run.
        return explicit if explicit is not None and explicit.loop is self else None

    def _finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        if self._is_open:
            self.create_task(generator.aclose()).line = None

    # -- the event loop interface of asyncio

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if not self._is_open:
            raise NotInRun(
                "something outside a run tried to wake its workflow (a lock, event or queue "
                "that is shared with a step, with another run, or with the program). "
                "Use a step, or receive() and app.send()."
            )
        handle = asyncio.Handle(callback, args, self, context)
        self.ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if asyncio._get_running_loop() is not self:
            _refuse(self, "loop.call_soon_threadsafe was called from outside")
        # The workflow itself made the call, so the order is deterministic.
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        handle._scheduled = True  # type: ignore[attr-defined]
        self._clock.set_timer(self.scope().key("(timer)"), handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._clock.drop_timer(handle)

    def time(self) -> float:
        """Return the run's time: the time of the last delivered entry.

        It stands still in between.
        """
        return self._clock.time

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None, **_: Any
    ) -> RunTask:
        task = RunTask(coro, scope=self._scope_for(coro), loop=self, context=context)
        task.line = creating_line()
        if name is not None:
            task.set_name(name)
        self.tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: RunTask) -> None:
        self.execution.calls.forget_unstarted(task.scope.path[:-1])
        self.tasks.pop(task, None)

    def _scope_for(self, coro: Any) -> Scope:
        place = getattr(coro, "__qualname__", None) or type(coro).__qualname__
        if "#" in place:
            # A step or child: the coroutine is named after its call site.
            return Scope(f"{place}/")
        parent = self.scope()
        maker = creating_function()
        if maker == "anyio" or (maker == "" and isinstance(parent, ExplicitScope)):
            # anyio's wrappers differ between versions. All share one numbering. In an explicit
            # scope the path only orders the task: its calls are numbered in the scope.
            return Scope(f"{parent.key('(task)')}/")
        if maker == "as_completed":
            coro.close()
            raise self.execution.refuse(
                NotInRun(
                    f"as_completed() starts bare coroutines ({place}) in an order that "
                    "differs from life to life. Give it steps, or tasks: "
                    "as_completed([asyncio.create_task(...) for ...])."
                )
            )
        if maker == "wait_for":
            # Python 3.11 creates a task here, later versions do not. Both share one numbering.
            return parent
        return Scope(f"{parent.key(place)}/")

    def run_in_executor(  # type: ignore[override]
        self,
        executor: Executor | None,  # noqa: ARG002
        func: Callable[..., Any],
        *args: Any,
    ) -> asyncio.Future[Any]:
        """Execute a function on the run loop, inside `scope(..., inline=True)`.

        Elsewhere the call is refused: the end of a thread has no place in the journal.
        """
        explicit = self.explicit_scope()
        if explicit is None or not explicit.inline:
            _refuse(self, "loop.run_in_executor was called")
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            future.set_exception(error)
        return future

    def get_task_factory(self) -> None:
        return None

    def get_exception_handler(self) -> None:
        return None

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.execution.end_reason is None:
            redacted = self.execution.services.redact(context.get("exception"))
            log.error(
                "Run %s: %s",
                self.execution.id,
                context.get("message"),
                exc_info=redacted,
                extra=self.execution.log_fields(),
            )

    default_exception_handler = call_exception_handler


def _repeats(new: asyncio.Handle, old: asyncio.Handle) -> bool:
    """Return whether a handle makes the same call as the handle that just executed."""
    call, earlier = new._callback, old._callback  # type: ignore[attr-defined]
    if call is not earlier and not (
        type(call) is MethodType
        and type(earlier) is MethodType
        and call.__func__ is earlier.__func__
        and call.__self__ is earlier.__self__
    ):
        return False
    args = new._args
    before = old._args
    return len(args) == len(before) and all(map(operator.is_, args, before))


def _refuse(loop: RunLoop, what: str) -> NoReturn:
    raise loop.execution.refuse(
        NotInStep(
            f"{what} in the workflow's own code of run {loop.execution.id!r}. "
            "Move I/O, threads and waits for outside events into a step."
        )
    )


def _refusing(name: str) -> Callable[..., Any]:
    def refused(self: RunLoop, *_: Any, **__: Any) -> Any:
        _refuse(self, f"loop.{name} was called")

    return refused


for _name, _value in vars(asyncio.AbstractEventLoop).items():
    if not _name.startswith("_") and callable(_value) and _name not in vars(RunLoop):
        setattr(RunLoop, _name, _refusing(_name))
