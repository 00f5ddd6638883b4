"""Tell every layer whether this process shuts down, and how much time is left.

There are two ways to shut down. A drain lets steps end and has a deadline and a report. A close
follows when the program leaves its app, with or without a drain before it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from outlast.errors import Evicted
from outlast.settings import Settings
from outlast.settings.checks import exit_seconds

if TYPE_CHECKING:
    from outlast.execution.unit_scope import UnitScope

PATIENCE_SECONDS_MIN = 0.05
"""Minimum seconds that closing waits for work that does not end."""


class ShutdownState:
    """The state of one app's shutdown, as running work sees it.

    Any thread may read it. Only the shutdown coordinator writes it.
    """

    # Flags, not an enum: a drain begins in any thread while the loop begins to close. Each writes
    # only flags that stay true, so neither can undo what the other has written.

    __slots__ = (
        "_clock",
        "_settings",
        "announced",
        "begun",
        "close_began",
        "draining",
        "ends_process",
        "finished",
        "grace",
        "reason",
        "signalled",
        "started_at",
    )

    def __init__(
        self,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Set up a shutdown that has not begun. `clock` is the monotonic clock by default."""
        self._settings = settings
        self._clock = clock or time.monotonic
        self.begun = False
        """Whether a drain or a close has begun: nothing new starts."""
        self.draining = False
        """Whether a drain has begun. It stays true after the drain."""
        self.reason = ""
        """Why the process drains. Empty without a drain."""
        self.started_at = 0.0
        """When the drain began, on its clock."""
        self.grace = settings.grace
        """Seconds from the beginning of the drain until the process must be gone."""
        self.signalled = False
        """Whether a signal asked the process to end.

        A caller that waits here for work in another process must not delay that.
        """
        self.ends_process = False
        """Whether the process ends with this drain."""
        self.announced: asyncio.Future[str] = loop.create_future()
        """Done, with the reason, when the event loop has noticed the drain."""
        self.finished: asyncio.Future[None] = loop.create_future()
        """Done when the drain is over: nothing more is waited for."""
        self.close_began: asyncio.Future[None] = loop.create_future()
        """Done when the app begins to close."""

    # -- what work asks

    @property
    def closing(self) -> bool:
        """Return whether the app closes or is closed."""
        return self.close_began.done()

    def may_start(self, unit: UnitScope | None, open_units: int) -> bool:
        """Return whether a call of a run may start.

        During a shutdown only calls inside a unit may start, and none once the drain's time is up.
        """
        return not self.begun or (unit is not None and unit.holds and open_units > 0)

    def check_nested(self, unit: UnitScope | None, *, stopping: bool = False) -> None:
        """Raise Evicted if a step that is part of another step may not start.

        During a shutdown it may start only inside a unit, and only while the outer step has not
        been asked to stop.
        """
        if self.begun and (unit is None or stopping):
            raise Evicted(f"drain: {self.reason}")

    # -- the drain's clock

    @property
    def seconds(self) -> float:
        """Return the seconds since the drain began."""
        return round(self._clock() - self.started_at, 4)

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the process must be gone. Infinite without a drain."""
        return self.seconds_until(0.0) if self.draining else math.inf

    @property
    def step_seconds_left(self) -> float:
        """Return the seconds until steps in flight get the request to stop.

        After that request, return the seconds until they must have stopped.
        """
        until_request = self.seconds_until(self.checkpoint_reserve + self.exit_reserve)
        return until_request if until_request > 0 else self.seconds_until(self.exit_reserve)

    @property
    def seconds_before_exit(self) -> float:
        """Return the seconds until clean-up begins, whatever still executes.

        Infinite without a drain.
        """
        return self.seconds_until(self.exit_reserve) if self.draining else math.inf

    @property
    def close_seconds(self) -> float:
        """Return how many seconds closing waits for work that does not end.

        Work that a drain has waited for has had its time already.
        """
        return min(
            self._settings.close_timeout, max(PATIENCE_SECONDS_MIN, self.seconds_before_exit)
        )

    @property
    def checkpoint_reserve(self) -> float:
        """Return the seconds of this drain that steps have to stop after the request."""
        return self._scaled(self._settings.checkpoint_reserve)

    @property
    def exit_reserve(self) -> float:
        """Return the seconds of this drain that clean-up and exit have."""
        return self._scaled(self._settings.exit_reserve) + exit_seconds(self.grace)

    def seconds_until(self, reserve: float) -> float:
        """Return the seconds until only `reserve` seconds of the grace are left."""
        return max(0.0, self.started_at + self.grace - reserve - self._clock())

    def _scaled(self, reserve: float) -> float:
        """Return how much of a reserve applies to this drain's grace.

        The whole reserve applies to the grace of the settings. With another grace, it takes at most
        a quarter, or the reserve's share of the configured grace if that is more.
        """
        return min(reserve, self.grace * max(0.25, reserve / self._settings.grace))

    # -- what the coordinator writes

    def begin_drain(
        self, reason: str, *, grace: float | None, at: float | None, ends_process: bool
    ) -> None:
        """Begin the drain. `at` is the time of the sign that began it, on the drain's clock.

        May be called from any thread. `draining` is written after the facts that belong to it,
        because other threads read them without a lock.
        """
        self.reason = reason
        self.started_at = self._clock() if at is None else at
        self.grace = self._settings.grace if grace is None else grace
        self.ends_process = ends_process
        self.draining = True
        self.begun = True

    def note_signal(self) -> None:
        """Note that a signal asked the process to end. May be called from any thread."""
        self.signalled = True

    def note_process_ends(self) -> None:
        """Note that the process ends with this drain. May be called from any thread."""
        self.ends_process = True

    def renew_grace(self, at: float | None = None) -> None:
        """Give the end of the process its own grace, from `at` or from now on.

        This is for a drain that was over before the process was asked to end, or before the
        program left its app.
        """
        now = self._clock() if at is None else at
        self.grace = now - self.started_at + self._settings.grace

    def announce(self) -> None:
        """Wake the callers that wait for a drain. Call it on the event loop."""
        self.announced.set_result(self.reason)

    def finish(self) -> None:
        """Wake the callers that wait for the end of the drain. Call it on the event loop."""
        if not self.finished.done():
            self.finished.set_result(None)

    def begin_close(self) -> None:
        """Begin to close the app. Call it on the event loop."""
        self.begun = True
        if not self.close_began.done():
            self.close_began.set_result(None)
