"""Start the runs of schedules when they are due.

Every worker does this, and there is no leader. A firing takes three writes: one worker records in
the schedule that its run is pending, submits the run, and records that it has. The first and the
last write carry the version that the worker read, so a worker that was overtaken changes nothing.
If a worker dies in between, another one finds the pending firing and submits it again under the
same id, which starts no second run.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from outlast.engine.background import Background
from outlast.engine.log_backoff import LogBackoff
from outlast.engine.schedule_policy import decide, has_work
from outlast.engine.schedule_rows import Definition, Firing, ScheduleRow, ScheduleRows, State
from outlast.engine.store_client import StoreClient
from outlast.engine.submission import Submissions
from outlast.errors import Backpressure, StoreBroken, StoreError
from outlast.execution.shutdown_state import ShutdownState
from outlast.settings import Settings
from outlast.store.commands import Cancel
from outlast.store.rows import ENDED, RunRow
from outlast.telemetry.error_text import redact

log = logging.getLogger("outlast.worker")

REFRESH_POLLS = 5
"""Number of polls between two reads of the schedules, which other processes may have changed."""
RETRY_SECONDS = 1.0
"""How soon a worker looks again at a firing that has to wait."""


class Scheduler:
    """Fire the schedules of a store from one worker."""

    def __init__(
        self,
        rows: ScheduleRows,
        submissions: Submissions,
        client: StoreClient,
        *,
        background: Background,
        shutdown: ShutdownState,
        settings: Settings,
    ) -> None:
        self.rows = rows
        self._submissions = submissions
        self._client = client
        self._background = background
        self._shutdown = shutdown
        self._refresh = REFRESH_POLLS * settings.poll
        self._log_values = settings.log_values
        self._log_backoff = LogBackoff(background.loop.time)
        self._failures = 0
        self._changed = asyncio.Event()
        """Set when this process has changed a schedule."""
        self._declared: dict[str, Definition] = {}
        """Schedules in the code of this worker that are not in the store yet."""

    # -- setting schedules

    async def set(self, name: str, definition: Definition, by: str | None = None) -> None:
        """Create a schedule, or replace its definition. An equal definition changes nothing.

        A replaced schedule stays paused if it was. Times that have passed do not fire under the new
        definition.
        """
        while True:
            row = await self.rows.get(name)
            if row is not None and row.definition == definition:
                return
            now = self._client.store.now()
            if row is None:
                state = State(start=now, fired=now, by=by)
            else:
                # Its pending runs belong to the old definition.
                row = await self._submit_pending(row)
                if row is None:
                    continue
                keeps_start = row.definition.every == definition.every
                state = replace(row.state, fired=now, by=by)
                state = state if keeps_start else replace(state, start=now)
            version = 0 if row is None else row.version
            if await self.rows.change(name, version, state=state, definition=definition):
                self._changed.set()
                return

    async def pause(self, name: str, *, paused: bool, by: str | None = None) -> bool:
        """Pause or resume a schedule. Return False if it does not exist.

        Times that pass while it is paused do not fire later.
        """
        while True:
            row = await self.rows.get(name)
            if row is None:
                return False
            if row.state.paused == paused:
                return True
            state = replace(row.state, paused=paused, fired=self._client.store.now(), by=by)
            if await self.rows.change(name, row.version, state=state):
                self._changed.set()
                return True

    async def submit(
        self, row: ScheduleRow, firings: Iterable[Firing], by: str | None = None
    ) -> None:
        """Submit the runs of some firings. Those that exist already are left as they are.

        Raise Backpressure if the queue is full.
        """
        definition, now = row.definition, self._client.store.now()
        for firing in firings:
            at = firing.at + _share_of(firing.id) * definition.jitter
            command = self._submissions.build(
                firing.id,
                definition.workflow,
                definition.args,
                queue=definition.queue,
                priority=definition.priority,
                key=definition.key,
                timeout=definition.timeout,
                abandon_after=definition.abandon_after,
                delay=max(0.0, at - now) if definition.jitter else 0.0,
                by=by,
            )
            await self._submissions.enqueue([command], 0.0)

    # -- firing

    def start(self, declared: Mapping[str, Definition]) -> None:
        """Fire schedules until the engine closes or drains.

        `declared` are the schedules in this worker's code. They are set first.
        """
        self._declared = dict(declared)
        self._background.spawn(self._work())

    async def _work(self) -> None:
        while not (self._shutdown.closing or self._shutdown.begun):
            pause = RETRY_SECONDS
            failures = self._failures
            self._changed.clear()
            try:
                await self._set_declared()
                pause = await self._fire_all()
            except Exception as error:
                self._note_failure(error)
            if self._failures == failures:
                self._log_backoff.reset()
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _set_declared(self) -> None:
        """Set the schedules in this worker's code that are not set yet."""
        for name in list(self._declared):
            try:
                await self.set(name, self._declared[name])
                del self._declared[name]
            except StoreBroken as error:
                # A damaged schedule must not stop the others.
                self._note_failure(error)

    def _note_failure(self, error: Exception) -> None:
        self._failures += 1
        if self._log_backoff.should_log():
            if isinstance(error, (StoreError, Backpressure)):
                log.warning("Could not fire a schedule: %s", error)
            else:
                log.error("Failed to fire a schedule.", exc_info=redact(error, self._log_values))

    async def _fire_all(self) -> float:
        """Fire what is due. Return the seconds until this worker should look again."""
        pause = self._refresh
        for row in await self.rows.all(self._note_failure):
            try:
                later = await self._fire(row)
            except Backpressure as error:
                # The other schedules may have room in their queues.
                self._note_failure(error)
                later = row
            if later is None or has_work(later, self._client.store.now()):
                pause = min(pause, RETRY_SECONDS)
            elif (due := later.next()) is not None:
                pause = min(pause, due - self._client.store.now())
        return max(pause, 0.0)

    async def _fire(self, row: ScheduleRow) -> ScheduleRow | None:
        """Start the runs of a schedule that are due. Return it as it is then.

        Return None if another process changes it at the same time.
        """
        submitted = await self._submit_pending(row)
        if submitted is None or not has_work(submitted, self._client.store.now()):
            return submitted
        row = submitted
        active = await self._active_run(row.state.last)
        state, cancels = decide(row, self._client.store.now(), last_is_active=active is not None)
        if cancels and active is not None and active.cancel is None:
            why = f"schedule {row.name!r} starts its next run"
            await self._client.writer.execute(Cancel(active.id, why))
        if state == row.state:
            return row
        if not await self.rows.change(row.name, row.version, state=state):
            return None
        return await self._submit_pending(row._replace(version=row.version + 1, state=state))

    async def _submit_pending(self, row: ScheduleRow) -> ScheduleRow | None:
        """Submit the pending firings, and record that. Return the schedule as it is then."""
        pending = row.state.pending
        if not pending:
            return row
        await self.submit(row, pending)
        state = replace(row.state, pending=(), last=pending[-1])
        if not await self.rows.change(row.name, row.version, state=state):
            return None
        return row._replace(version=row.version + 1, state=state)

    async def _active_run(self, firing: Firing | None) -> RunRow | None:
        """Return the run of a firing if it has not ended."""
        if firing is None:
            return None
        row = await self._client.read(self._client.store.run, firing.id)
        return None if row is None or row.status in ENDED else row


def _share_of(id: str) -> float:
    """Return a number from 0 to 1 that is always the same for one run."""
    return int.from_bytes(hashlib.sha256(id.encode()).digest()[:6]) / 2**48
