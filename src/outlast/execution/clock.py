"""Keep the time of a run, and its timers: `asyncio.sleep`, `asyncio.timeout`, `outlast.sleep`.

A timer is due at the run's time plus its delay, which is the same in every execution. Setting a
timer is therefore not recorded, but its firing is. A timer that comes due while no process is alive
fires on resumption.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from outlast.store.rows import NEVER

WAIT_SECONDS_MAX = 86_400.0
"""The longest wait on the host loop. The clock may be set meanwhile, and not every loop can wait
for years."""


class _Timer:
    __slots__ = ("armed", "fires", "handle")

    def __init__(self, handle: asyncio.TimerHandle) -> None:
        self.handle = handle
        self.armed: asyncio.TimerHandle | None = None
        """The host loop's handle while this process waits for the timer."""
        self.fires = False
        """True once the firing is submitted to the store."""


class RunClock:
    """The time of one run, which moves with its entries, and the timers it has set."""

    __slots__ = ("_arms", "_gap", "_host", "_keys", "_on_due", "_timers", "now", "time", "wall")

    def __init__(
        self,
        host: asyncio.AbstractEventLoop,
        now: Callable[[], float],
        started: float,
        on_due: Callable[[str, float], None],
    ) -> None:
        """Start the clock of a run. `on_due` records that a timer fired, given its key and time."""
        self._host = host
        self._on_due = on_due
        self.now = now
        """The store's clock."""
        self.wall = started
        """The time of the last delivered entry."""
        self.time = started
        """The run's time: like `wall`, without the seconds that the run spent stopped."""
        self._gap = 0.0
        """Seconds between an end or parking and the retry or resume. The run's timers do not
        advance during them."""
        self._timers: dict[str, _Timer] = {}
        self._keys: dict[int, str] = {}
        self._arms = False
        """True once the run is live. Timers are then armed when they are set."""

    def advance(self, at: float, *, after_stop: bool = False) -> None:
        """Move to the time of an entry. `after_stop` marks the first entry after a stop."""
        if after_stop:
            self._gap += max(0.0, at - self.wall)
        self.wall = max(self.wall, at)
        self.time = self.wall - self._gap

    # -- timers

    @property
    def has_timers(self) -> bool:
        return bool(self._timers)

    def set_timer(self, key: str, handle: asyncio.TimerHandle) -> None:
        self._timers[key] = _Timer(handle)
        self._keys[id(handle)] = key
        if self._arms:
            self._arm(key)

    def drop_timer(self, handle: asyncio.TimerHandle) -> None:
        """Forget a timer that the workflow has cancelled."""
        key = self._keys.pop(id(handle), None)
        if key is not None:
            armed = self._timers.pop(key).armed
            if armed is not None:
                armed.cancel()

    def take_fired(self, key: str) -> asyncio.TimerHandle | None:
        """Remove and return the timer that fired. None if the workflow has cancelled it since."""
        timer = self._timers.pop(key, None)
        if timer is None:
            return None
        self._keys.pop(id(timer.handle), None)
        # Rounding must not fire the timer early: anyio would set its deadline once more.
        self.time = max(self.time, timer.handle.when())
        return timer.handle

    def go_live(self) -> list[str]:
        """Arm every timer that is set from now on.

        Return the keys of the timers that came due before, ordered by time.
        """
        self._arms = True
        now = self.now()
        late = [
            (due, key) for key, timer in self._timers.items() if (due := self._due(timer)) <= now
        ]
        return [key for _, key in sorted(late)]

    def arm_all(self) -> None:
        """Arm the timers that were set during replay."""
        for key, timer in self._timers.items():
            if timer.armed is None and not timer.fires:
                self._arm(key)

    def fire(self, key: str) -> None:
        """Record that a timer fired."""
        timer = self._timers[key]
        timer.fires = True
        self._on_due(key, self._due(timer))

    def next_due(self) -> float:
        """Return when the next timer is due, or NEVER if there is none."""
        return min(map(self._due, self._timers.values()), default=NEVER)

    def stop(self) -> None:
        """Drop all timers."""
        for timer in self._timers.values():
            if timer.armed is not None:
                timer.armed.cancel()
        self._timers.clear()
        self._keys.clear()

    def _due(self, timer: _Timer) -> float:
        return timer.handle.when() + self._gap

    def _arm(self, key: str) -> None:
        timer = self._timers[key]
        delay = min(max(0.0, self._due(timer) - self.now()), WAIT_SECONDS_MAX)
        timer.armed = self._host.call_later(delay, self._check, key)

    def _check(self, key: str) -> None:
        timer = self._timers.get(key)
        if timer is None:
            return
        timer.armed = None
        if self.now() < self._due(timer):
            self._arm(key)
        else:
            self.fire(key)
