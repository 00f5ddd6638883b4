"""Run sync code in threads: one thread per sync workflow, and a pool for sync steps.

Both kinds are daemon threads, so a thread that hangs does not delay the end of the process.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.errors import NotInRun
from outlast.execution.step_execution import BODY

if TYPE_CHECKING:
    from outlast.execution.run_execution import RunExecution

THREAD: ContextVar[SyncWorkflowThread | None] = ContextVar("outlast_thread", default=None)
"""The sync workflow that the current thread executes."""

T = TypeVar("T")
Make = Callable[[], Coroutine[Any, Any, Any]]


class _Request:
    def __init__(
        self, make: Make | None, value: Any = None, error: BaseException | None = None
    ) -> None:
        self.make = make
        self.value = value
        self.error = error
        self.reply: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()


class SyncWorkflowThread:
    """Execute a sync workflow in a thread.

    The thread makes one call at a time, and the run's main task executes it. The run can settle
    only while the thread waits in a call. `busy` is True while it does not.
    """

    def __init__(
        self,
        execution: RunExecution,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._execution = execution
        self._fn = fn
        self._args = args
        self._kwargs = kwargs
        self._asked: asyncio.Future[_Request] | None = None
        self._open: _Request | None = None
        self._ident = 0
        self.busy = True
        self.ended: asyncio.Future[None] = execution.host.create_future()
        """Done when the thread has ended. Until then the workflow's own code may execute."""

    async def drive(self) -> Any:
        """Execute the thread's calls, as the run's main task on the run loop.

        Return or raise the workflow's outcome.
        """
        context = copy_context()
        context.run(THREAD.set, self)
        # A step's body may have started this run. The run's calls are not the body's.
        context.run(BODY.set, None)
        threading.Thread(
            target=context.run,
            args=(self._execute,),
            name=f"outlast-{self._execution.id}",
            daemon=True,
        ).start()
        while True:
            self._asked = asyncio.Future(loop=self._execution.loop)
            try:
                request = await self._asked
            except asyncio.CancelledError:
                if self._execution.end_reason is not None:
                    raise
                # The thread gets the cancellation at its next call.
                continue
            if request.make is None:
                if request.error is not None:
                    raise request.error
                return request.value
            try:
                value, error = await request.make(), None
            except BaseException as raised:
                value, error = None, raised
            self.busy = True
            request.reply.put((value, error))

    def call(self, make: Make) -> Any:
        """Execute a coroutine on the run loop and wait for it.

        Called from the workflow's thread.
        """
        self.check()
        if self._execution.end_reason is not None:
            raise self._execution.end_reason.error
        request = self._open = _Request(make)
        self._put(request)
        value, error = request.reply.get()
        self._open = None
        if error is not None:
            raise error
        return value

    def check(self) -> None:
        """Refuse calls from other threads than the workflow's own.

        Their order would not be deterministic.
        """
        if threading.get_ident() != self._ident:
            raise self._execution.refuse(
                NotInRun(
                    "a sync workflow's calls must come from its own thread, "
                    "not from one that it started."
                )
            )

    def evict(self, why: BaseException) -> None:
        """Wake a thread that waits in a call.

        A thread that computes gets the reason at its next call.
        """
        request = self._open
        if request is not None:
            request.reply.put((None, why))

    def _execute(self) -> None:
        self._ident = threading.get_ident()
        try:
            value, error = self._fn(*self._args, **self._kwargs), None
        except BaseException as raised:
            value, error = None, raised
        with suppress(RuntimeError):
            # If the host loop is closed, nothing waits for the outcome.
            self._execution.host.call_soon_threadsafe(self._end, _Request(None, value, error))

    def _end(self, request: _Request) -> None:
        """Deliver the workflow's outcome and mark the thread as ended, in one callback.

        In between, the thread would seem neither busy nor ended.
        """
        self._arrive(request)
        if not self.ended.done():
            self.ended.set_result(None)

    def _put(self, request: _Request) -> None:
        try:
            self._execution.host.call_soon_threadsafe(self._arrive, request)
        except RuntimeError as closed:
            # The host loop is closed. This execution ended with it.
            reason = self._execution.end_reason
            raise (
                NotInRun("the program's event loop is closed.") if reason is None else reason.error
            ) from closed

    def _arrive(self, request: _Request) -> None:
        self.busy = False
        reason = self._execution.end_reason
        if reason is None and self._asked is not None:
            with self._execution.loop.opened():
                self._asked.set_result(request)
            self._execution.advance()
        else:
            request.reply.put((None, None if reason is None else reason.error))


class Executor(ThreadPoolExecutor):
    """Track the threads that steps start with `asyncio.to_thread` and `run_in_executor`.

    Such a thread continues when its step is cancelled, and no other worker may get the run
    meanwhile. Only threads of the loop's default executor can be tracked.
    """

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="outlast-to-thread")

    def submit(
        self, fn: Callable[..., T], /, *args: Any, **kwargs: Any
    ) -> concurrent.futures.Future[T]:
        future = super().submit(fn, *args, **kwargs)
        body = BODY.get()
        if body is not None and asyncio._get_running_loop() is body.execution.host:
            thread = asyncio.wrap_future(future, loop=body.execution.host)
            body.execution.steps.watch_thread(thread, body.execution.settled)
            if body.effect is not None:
                body.effect.add_thread(thread)
                body.execution.steps.add_orphan(thread)
        return future


class Pool:
    """A pool of threads for sync steps.

    It grows to the number of concurrent calls, and reuses its threads.
    """

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Callable[[], None] | None]] = []
        self._lock = threading.Lock()
        self._closed = False
        self.busy = 0
        """The number of calls in flight."""

    def run(
        self,
        loop: asyncio.AbstractEventLoop,
        context: Context,
        fn: Callable[..., T],
        *args: Any,
        **kwargs: Any,
    ) -> asyncio.Future[T]:
        """Start `fn` in a thread, and return a future for its outcome on `loop`.

        Cancelling the future does not stop the thread.
        """
        future: asyncio.Future[T] = loop.create_future()

        def deliver(value: Any, error: BaseException | None) -> None:
            self.busy -= 1
            if not future.done():
                if error is None:
                    future.set_result(value)
                else:
                    future.set_exception(error)

        def work() -> None:
            error: BaseException | None
            try:
                value, error = context.run(fn, *args, **kwargs), None
            except StopIteration as stop:
                # A future cannot hold a StopIteration.
                value, error = None, RuntimeError(f"the step raised StopIteration: {stop}")
            except BaseException as raised:
                value, error = None, raised
            try:
                loop.call_soon_threadsafe(deliver, value, error)
            except RuntimeError:
                # The loop is closed, so nothing waits for the outcome.
                return

        self.busy += 1
        self._take().put(work)
        return future

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Do not count a call that only waits for the event loop as busy. Enter it on the loop."""
        self.busy -= 1
        try:
            yield
        finally:
            self.busy += 1

    def _take(self) -> SimpleQueue[Callable[[], None] | None]:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(
            target=self._serve, args=(queue,), name="outlast-step", daemon=True
        ).start()
        return queue

    def _serve(self, queue: SimpleQueue[Callable[[], None] | None]) -> None:
        while (work := queue.get()) is not None:
            work()
            del work
            with self._lock:
                if self._closed:
                    return
                self._idle.append(queue)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for queue in self._idle:
                queue.put(None)
            self._idle.clear()
