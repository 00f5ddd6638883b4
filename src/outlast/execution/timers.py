"""Manage the timers of the run loop: `asyncio.sleep`, `asyncio.timeout` and `outlast.sleep`.

A timer is due at the run's time plus its delay, which is the same in every execution. Setting a
timer is therefore not recorded, but its firing is. A timer that comes due while no process is alive
fires on resumption.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from outlast.execution.state import ExecutionState
from outlast.store.rows import NEVER

if TYPE_CHECKING:
    from outlast.execution.run_execution import RunExecution


class Timers:
    def __init__(self, execution: RunExecution) -> None:
        self._execution = execution
        self._set: dict[str, asyncio.TimerHandle] = {}
        self._keys: dict[int, str] = {}
        self._armed: dict[str, asyncio.TimerHandle] = {}
        self._firing: set[str] = set()

    def __len__(self) -> int:
        return len(self._set)

    def set(self, key: str, handle: asyncio.TimerHandle) -> None:
        self._set[key] = handle
        self._keys[id(handle)] = key
        if self._execution.state is not ExecutionState.REPLAYING:
            self._arm(key)

    def drop(self, handle: asyncio.TimerHandle) -> None:
        key = self._keys.pop(id(handle), None)
        if key is not None:
            del self._set[key]
            self._firing.discard(key)
            armed = self._armed.pop(key, None)
            if armed is not None:
                armed.cancel()

    def fired(self, key: str) -> asyncio.TimerHandle | None:
        """Remove and return the timer that fired. None if the workflow has cancelled it since."""
        handle = self._set.pop(key, None)
        self._firing.discard(key)
        if handle is not None:
            self._keys.pop(id(handle), None)
        return handle

    def overdue(self) -> list[str]:
        """Return the keys of the timers that came due before the end of replay, ordered by time."""
        now = self._execution.now()
        late = [
            (self._wall(handle), key)
            for key, handle in self._set.items()
            if self._wall(handle) <= now
        ]
        return [key for _, key in sorted(late)]

    def next(self) -> float:
        """Return when the next timer is due, or NEVER if there is none."""
        return min(map(self._wall, self._set.values()), default=NEVER)

    def arm_all(self) -> None:
        for key in self._set:
            if key not in self._armed and key not in self._firing:
                self._arm(key)

    def fire(self, key: str) -> None:
        self._firing.add(key)
        self._execution.record("fired", key, at_least=self._wall(self._set[key]))

    def clear(self) -> None:
        for armed in self._armed.values():
            armed.cancel()
        self._armed.clear()
        self._set.clear()
        self._keys.clear()

    def _wall(self, handle: asyncio.TimerHandle) -> float:
        return handle.when() + self._execution.gap

    def _arm(self, key: str) -> None:
        # Wait at most one day: the clock may be set meanwhile, and not every loop can wait for
        # years.
        delay = min(max(0.0, self._wall(self._set[key]) - self._execution.now()), 86_400.0)
        self._armed[key] = self._execution.host.call_later(delay, self._due, key)

    def _due(self, key: str) -> None:
        self._armed.pop(key, None)
        if key not in self._set or self._execution.end_reason is not None:
            return
        if self._execution.now() < self._wall(self._set[key]):
            self._arm(key)
        else:
            self.fire(key)
