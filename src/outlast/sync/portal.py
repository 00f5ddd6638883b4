"""Define the portal: an event loop in a thread of its own, and blocking calls into it."""

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
"""Seconds that an interrupted call waits to learn what ended the loop."""


class Portal:
    """An event loop in a daemon thread, so that nothing on it can delay the end of the process."""

    def __init__(self) -> None:
        check_may_block()
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._death: BaseException | None = None
        """The exception that ended the loop early, such as sys.exit() in a workflow."""
        # Reentrant: a signal handler may call while the main thread does.
        self._lock = threading.RLock()
        self._over = False
        self._waiting: set[concurrent.futures.Future[Any]] = set()
        self._thread = threading.Thread(target=self._serve, name="outlast-sync", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._closing.wait())
        except BaseException as death:
            # Waiting calls raise it again.
            self._death = death
        with self._lock:
            self._over, late = True, list(self._waiting)
        # These calls came too late for the loop.
        for future in late:
            future.cancel()

    def call(self, fn: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a coroutine function on the loop and wait for its result.

        Ctrl-C ends the wait and cancels the call. Raise StoreUnavailable if Outlast closes
        meanwhile, and OutlastError if it is closed already.
        """
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
            # What ended the loop is known once its thread has ended.
            self._thread.join(DEATH_SECONDS)
            if inspect.getcoroutinestate(coro) == inspect.CORO_CREATED:
                coro.close()
            raise self._death or StoreUnavailable(
                "Outlast was closed while this call was in flight. Runs can be resumed."
            ) from cancelled
        finally:
            future.cancel()
            with self._lock:
                self._waiting.discard(future)

    def close(self, timeout: float) -> None:
        """Cancel what is left on the loop and join its thread, for at most `timeout` seconds."""
        # The loop has ended by itself.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(timeout)
        if self._thread.is_alive():
            log.warning("A task on Outlast's event loop did not end, so its thread keeps running.")


def _hand_over(
    coro: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop
) -> concurrent.futures.Future[T]:
    try:
        return asyncio.run_coroutine_threadsafe(coro, loop)
    except RuntimeError as closed:
        coro.close()
        raise OutlastError("this Outlast is closed.") from closed


def check_may_block() -> None:
    """Raise NotInStep in a workflow's own code, and NotInRun on an event loop.

    A blocking call would stop everything on an event loop. In a workflow it could not be replayed.
    """
    loop = asyncio._get_running_loop()
    if isinstance(loop, RunLoop) or (THREAD.get() is not None and BODY.get() is None):
        raise refused(
            NotInStep(
                "outlast.sync was used in a workflow's own code, where its answers would differ "
                "when the run is replayed. Put the call into a step. To execute another workflow, "
                "make it a child run."
            )
        )
    if loop is not None:
        raise NotInRun(
            "outlast.sync was called on an event loop, which it would block. Use the async names "
            "of `outlast` here, or call this in a thread (asyncio.to_thread)."
        )
