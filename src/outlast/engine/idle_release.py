"""Release a worker's idle runs until they have something to do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from outlast.execution.release import what_it_waits_for
from outlast.execution.state import EndReason

if TYPE_CHECKING:
    from outlast.engine.engine import Engine


class IdleReleaser:
    """Check for idle runs every `linger` seconds while the worker executes runs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._timer: asyncio.TimerHandle | None = None
        self._idle_entries: dict[int, int] = {}
        """The number of the last entry of each run that was idle at the last check, by fence."""

    def _release_idle(self) -> None:
        """Release runs that only wait, and did so at the last check too.

        Runs that come due within `linger` seconds are kept.
        """
        engine = self._engine
        self._timer = None
        assert engine.claimer is not None
        soon = engine.store.now() + engine.settings.linger
        idle_entries: dict[int, int] = {}
        for execution in list(engine.executions.values()):
            rest = (
                what_it_waits_for(execution)
                if execution.row.queue in engine.claimer.queues
                else None
            )
            if rest is None or rest.due <= soon:
                continue
            if self._idle_entries.get(execution.fence) == rest.entry:
                execution.stop(EndReason.waiting(rest))
            idle_entries[execution.fence] = rest.entry
        self._idle_entries = idle_entries
        self.watch()

    def watch(self) -> None:
        """Schedule the next check, if a worker executes runs."""
        engine = self._engine
        if (
            engine.claimer is not None
            and self._timer is None
            and engine.executions
            and not engine.shutdown.closing
        ):
            self._timer = engine.loop.call_later(engine.settings.linger, self._release_idle)
