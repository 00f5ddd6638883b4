"""The portal: an event loop in a thread of its own, and blocking calls into it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from outlast.errors import NotInRun, NotInStep, OutlastError, StoreUnavailable
from outlast.execution.refusal import refused
from outlast.execution.run_loop import RunLoop
from outlast.execution.step_execution import BODY
from outlast.execution.threads import THREAD

log = logging.getLogger("outlast")
P = ParamSpec("P")
T = TypeVar("T")

DEATH_SECONDS = 2.0
"""How long a call that was cut off waits to learn what ended the loop."""


class Portal:
    """The loop's thread is a daemon: whatever executes there, it cannot hold up the end of the process."""

    def __init__(self) -> None:
        check_may_block()
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._death: BaseException | None = None
        """What ended the loop before its time, as sys.exit() in a workflow does."""
        self._lock = threading.RLock()  # a signal's handler may call while the main thread does
        self._over = False
        self._waiting: set[concurrent.futures.Future[Any]] = set()
        self._thread = threading.Thread(target=self._serve, name="outlast-sync", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._closing.wait())
        except BaseException as death:
            self._death = death  # raised again where somebody waits
        with self._lock:
            self._over, late = True, list(self._waiting)
        for future in late:  # these came too late for the loop
            future.cancel()

    def call(self, fn: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a coroutine function on the loop and wait for its result. Ctrl-C ends the wait and cancels it."""
        check_may_block()
        with self._lock:
            if self._over:
                raise self._death or OutlastError("this Outlast is closed.")
            coro = fn(*args, **kwargs)
            future = _hand_over(coro, self._loop)
            self._waiting.add(future)
        try:
            return future.result()
        except concurrent.futures.CancelledError as cancelled:
            self._thread.join(DEATH_SECONDS)  # of what the loop ended is known when its thread has
            if inspect.getcoroutinestate(coro) == inspect.CORO_CREATED:
                coro.close()
            raise self._death or StoreUnavailable(
                "Outlast was closed while this call was under way; runs are resumable."
            ) from cancelled
        finally:
            future.cancel()
            with self._lock:
                self._waiting.discard(future)

    def close(self, timeout: float) -> None:
        """Cancel what is left on the loop and join its thread, for so many seconds at the most."""
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(timeout)
        if self._thread.is_alive():
            log.warning("something on Outlast's event loop does not end; its thread is left behind")


def _hand_over(
    coro: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop
) -> concurrent.futures.Future[T]:
    try:
        return asyncio.run_coroutine_threadsafe(coro, loop)
    except RuntimeError as closed:
        coro.close()
        raise OutlastError("this Outlast is closed.") from closed


def check_may_block() -> None:
    """A blocking call on an event loop would stop everything there; in a workflow, nothing could replay it."""
    loop = asyncio._get_running_loop()
    if isinstance(loop, RunLoop) or (THREAD.get() is not None and BODY.get() is None):
        raise refused(
            NotInStep(
                "outlast.sync was used in a workflow's own code, where its answers would differ from life to life. Put it into "
                "a step; to execute another workflow, make it a child run."
            )
        )
    if loop is not None:
        raise NotInRun(
            "outlast.sync blocks, and this code executes on an event loop, which would stand still. Use the names of `outlast` "
            "here, which are async, or call this in a thread (asyncio.to_thread)."
        )
