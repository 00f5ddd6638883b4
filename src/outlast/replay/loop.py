"""The run loop: the event loop on which a workflow's own code executes.

A queue of ready callbacks, and nothing else: no socket, no clock and no thread can reach it. What reaches it are the
entries of the run's journal, delivered by the life (`life.py`) in order. So the same journal always has the same
effect.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any
from zlib import crc32

from outlast.errors import NotInRun, NotInStep

if TYPE_CHECKING:
    from outlast.replay.life import Life

log = logging.getLogger("outlast.replay")


class Scope:
    """A task's own numbering of what it calls."""

    __slots__ = ("_counts", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._counts: dict[str, int] = {}

    def key(self, name: str) -> str:
        """The next place of this name: the path, the name, and how many there have been."""
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return f"{self.path}{name}#{count}"


class RunTask(asyncio.Task[Any]):
    """A task of a run. It hashes by its scope: asyncio iterates over sets of tasks, and their order must not depend on
    addresses, nor on the hash seed of the process."""

    def __init__(self, coro: Any, *, scope: Scope, loop: RunLoop, context: Context | None) -> None:
        self.scope = scope
        self._number = crc32(scope.path.encode())
        super().__init__(coro, loop=loop, name=scope.path or "main", context=context)

    def __hash__(self) -> int:
        return self._number

    __eq__ = object.__eq__


class RunLoop(asyncio.AbstractEventLoop):
    def __init__(self, life: Life) -> None:
        self.life = life
        self.root = Scope("")
        self.ready: deque[asyncio.Handle] = deque()
        self.tasks: dict[RunTask, None] = {}  # strong: a task that only a cycle holds must not vanish
        self.open = False
        self._finalizer = self._finalize

    # -- being pumped, by the life, from a callback of the host's loop

    def pump(self, callbacks_max: int) -> bool:
        """Execute until nothing is ready. False if that takes more than so many callbacks."""
        ready = self.ready
        if not ready:
            return True
        hooks = sys.get_asyncgen_hooks()
        asyncio._set_running_loop(self)
        sys.set_asyncgen_hooks(None, self._finalizer)
        self.open = True
        try:
            while ready:
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
                callbacks_max -= 1
                if callbacks_max < 0:
                    return False
            return True
        finally:
            self.open = False
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(self.life.host)

    def scope(self) -> Scope:
        task = asyncio.current_task(self)
        return task.scope if isinstance(task, RunTask) else self.root

    def _finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        if self.open:
            self.create_task(generator.aclose())

    # -- what asyncio asks of a loop

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if not self.open:
            raise NotInRun(
                "something outside a run tried to wake its workflow (a lock, event or queue that is shared with a step, with "
                "another run, or with the program). Use a step, or receive() and app.send()."
            )
        handle = asyncio.Handle(callback, args, self, context)
        self.ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        handle._scheduled = True  # type: ignore[attr-defined]
        self.life.timers.set(self.scope().key("(timer)"), handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self.life.timers.drop(handle)

    def time(self) -> float:
        """The run's time: that of the last delivered entry. It stands still in between."""
        return self.life.time

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None, **_: Any
    ) -> RunTask:
        task = RunTask(coro, scope=self._scope_for(coro), loop=self, context=context)
        if name is not None:
            task.set_name(name)
        self.tasks[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: RunTask) -> None:
        self.life.forget_unstarted(task.scope.path[:-1])
        self.tasks.pop(task, None)

    def _scope_for(self, coro: Any) -> Scope:
        place = getattr(coro, "__qualname__", None) or type(coro).__qualname__
        if "#" in place:  # a step or a child, named by the place that its call has taken
            return Scope(f"{place}/")
        parent, maker = self.scope(), _made_by()
        if maker == "as_completed":
            coro.close()
            raise NotInRun(
                f"as_completed() starts bare coroutines ({place}) in an order that differs from life to life. Give it steps, or "
                "tasks: as_completed([asyncio.create_task(...) for ...])."
            )
        if maker == "wait_for":  # Python 3.11 makes a task here, later ones do not: one numbering for all
            return parent
        return Scope(f"{parent.key(place)}/")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.life.over is None:
            veil = self.life.house.veiled(context.get("exception"))
            log.error(
                "run %s: %s", self.life.id, context.get("message"), exc_info=veil, extra=self.life.facts()
            )

    default_exception_handler = call_exception_handler


def _made_by() -> str:
    """The function of asyncio for which a task is being made: it tells how the task is to be numbered."""
    frame = sys._getframe(3)
    for _ in range(4):
        code = frame.f_code
        if not code.co_filename.endswith("tasks.py") or code.co_name == "create_task":
            return ""
        if code.co_qualname.startswith(("as_completed", "_AsCompletedIterator")):
            return "as_completed"
        if code.co_name == "wait_for":
            return "wait_for"
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return ""


def _refuse(name: str) -> Callable[..., Any]:
    def refused(self: RunLoop, *_: Any, **__: Any) -> Any:
        raise NotInStep(
            f"loop.{name} was called in the workflow's own code of run {self.life.id!r}. A workflow decides, its steps act: "
            "put what does I/O, uses threads or waits for the outside into a step."
        )

    return refused


for _name in (
    "add_reader", "add_signal_handler", "add_writer", "call_soon_threadsafe", "close", "connect_accepted_socket",
    "connect_read_pipe", "connect_write_pipe", "create_connection", "create_datagram_endpoint", "create_server",
    "create_unix_connection", "create_unix_server", "getaddrinfo", "getnameinfo", "remove_reader", "remove_signal_handler",
    "remove_writer", "run_forever", "run_in_executor", "run_until_complete", "sendfile", "set_default_executor",
    "shutdown_asyncgens", "shutdown_default_executor", "sock_accept", "sock_connect", "sock_recv", "sock_recv_into",
    "sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendfile", "sock_sendto", "start_tls", "stop", "subprocess_exec",
    "subprocess_shell",
):  # fmt: skip
    setattr(RunLoop, _name, _refuse(_name))
