"""Provide a clock that jumps: an hour's sleep takes no time, and every test is reproducible.

`VirtualClock.loop()` creates event loops that run on the clock's time. When nothing is ready, time
jumps to the next timer. With a seed, ready callbacks are shuffled: the same seed gives the same
order, another seed another one.
"""

from __future__ import annotations

import asyncio
import random
import selectors
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

START = 1_800_000_000.0
PATIENCE = 100 * 365 * 86_400.0
"""Virtual seconds after which a loop that only waits gives up."""
REAL_PATIENCE = 10.0
"""Real seconds a loop waits for something that is neither ready nor timed."""


class VirtualClock:
    """Tell the time in seconds since the epoch, for a store and any number of loops in turn."""

    def __init__(self, start: float = START) -> None:
        self.start = start
        self.elapsed = 0.0
        self._followed: Callable[[], float] | None = None
        self._ahead = 0.0

    def __call__(self) -> float:
        if self._followed is not None:
            self.elapsed = max(self.elapsed, self._ahead + self._followed())
        return self.start + self.elapsed

    def advance(self, seconds: float) -> None:
        """Let time pass while nothing executes, as between two processes."""
        self.elapsed += seconds
        self._ahead += seconds

    def _follow(self, time: Callable[[], float] | None) -> None:
        """Follow the time of a foreign loop. With None, only the clock's own loops move it."""
        self()
        self._followed = time
        if time is not None:
            self._ahead = self.elapsed - time()

    def loop(self, seed: int | None = None) -> VirtualLoop:
        """Create an event loop on this clock. A seed shuffles ready callbacks reproducibly."""
        return VirtualLoop(self, seed)

    def run(self, main: Coroutine[Any, Any, T], *, seed: int | None = None) -> T:
        """Run a coroutine on this clock, like asyncio.run."""
        with asyncio.Runner(loop_factory=lambda: self.loop(seed)) as runner:
            return runner.run(main)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Run an event loop on a `VirtualClock`, whose `loop()` creates it.

    When nothing is ready, time jumps to the next timer.
    """

    def __init__(self, clock: VirtualClock, seed: int | None = None) -> None:
        self._clock = clock
        # Seeded, so that the order is repeatable.
        self._chance = None if seed is None else random.Random(seed)  # noqa: S311
        self._began, self._given_up = clock.elapsed, False
        self.busy: Callable[[], bool] = lambda: False
        """Return whether a thread is working whose end must be awaited in real time."""
        self._in_executor = 0
        """The number of functions that threads of an executor execute for this loop."""
        super().__init__(selectors.DefaultSelector())

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Execute a function in a thread. Time stands still until it has returned."""
        future: asyncio.Future[Any] = super().run_in_executor(executor, func, *args)
        self._in_executor += 1
        future.add_done_callback(self._leave_executor)
        return future

    def _leave_executor(self, future: asyncio.Future[Any]) -> None:  # noqa: ARG002
        self._in_executor = max(0, self._in_executor - 1)

    def time(self) -> float:
        return self._clock.elapsed

    def forget(self) -> None:
        """Drop every scheduled callback, as a crash does."""
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        self._in_executor = 0

    def _run_once(self) -> None:
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        if not ready and (self._in_executor or self.busy() or _is_any_at_work(self)):
            self._process_events(self._selector.select(0.05))  # type: ignore[attr-defined]
        elif not ready:
            self._process_events(self._selector.select(0))  # type: ignore[attr-defined]
            live = [handle.when() for handle in scheduled if not handle.cancelled()]
            if not ready and live:
                self._clock.elapsed = max(self._clock.elapsed, min(live))
            # Only a foreign thread or a socket can bring anything now.
            elif not ready:
                events = self._selector.select(REAL_PATIENCE)  # type: ignore[attr-defined]
                self._process_events(events)  # type: ignore[attr-defined]
            if (
                not ready
                and (not live or self._clock.elapsed - self._began > PATIENCE)
                and not self._given_up
            ):
                self._given_up = True
                raise TimeoutError(
                    "the run still waits, but nothing more can happen, or a hundred years have "
                    "passed on the virtual clock. Does it wait for a message that no one sends, "
                    "or for a step that never ends?"
                )
        if self._chance is not None and len(ready) > 1:
            shuffled = list(ready)
            self._chance.shuffle(shuffled)
            ready.clear()
            ready.extend(shuffled)
        super()._run_once()  # type: ignore[misc]


def anyio_threads(loop: asyncio.AbstractEventLoop) -> list[Any]:
    """Return the worker threads that `anyio.to_thread` has started for a loop.

    They end with the loop's main task.
    """
    return [
        thread
        for thread in threading.enumerate()
        if getattr(thread, "loop", None) is loop and hasattr(thread, "idle_workers")
    ]


def _is_any_at_work(loop: asyncio.AbstractEventLoop) -> bool:
    return any(
        thread not in thread.idle_workers and not thread.stopping for thread in anyio_threads(loop)
    )
