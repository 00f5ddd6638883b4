"""Take over a run that a caller here requested by its id, as soon as no other worker holds it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING

from outlast.engine.log_backoff import LogBackoff
from outlast.errors import StoreError
from outlast.store.commands import Claim
from outlast.store.rows import ENDED, RunRow

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.execution.definitions import WorkflowDefinition

log = logging.getLogger("outlast")

NOTICE_AFTER_SECONDS = 2.0
"""How long a program waits for a run that another worker holds before it logs that."""


class HeldElsewhereNotice:
    """Log once, after a delay, that a run is held by another worker."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._at: float | None = engine.loop.time() + NOTICE_AFTER_SECONDS

    def log_if_late(self, row: RunRow) -> None:
        engine = self._engine
        if self._at is not None and row.worker is not None and engine.loop.time() > self._at:
            self._at = None
            log.warning(
                "run %s is held by worker %s: waiting until that gives it back, or is known to be dead (its lease is %g s)",
                row.id, row.worker, engine.settings.lease, extra=engine.log_fields(row),
            )  # fmt: skip


class Takeover:
    """Take over runs in the background until this worker has them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._under_way: dict[str, bool] = {}
        """Run ids in progress, and whether a repeated request came meanwhile."""

    def start(self, row: RunRow, workflow: WorkflowDefinition) -> None:
        """Take over a run in the background. Repeated requests for the same run are one."""
        engine = self._engine
        if row.id in engine.executions or engine.shutdown.begun:
            return
        if row.id in self._under_way:
            self._under_way[row.id] = True
            return
        self._under_way[row.id] = False
        task = engine.loop.create_task(self._take_over(row.id, workflow))
        task.add_done_callback(lambda task: self._on_done(task, row, workflow))
        engine.track_task(task)

    def _on_done(self, task: asyncio.Task[None], row: RunRow, workflow: WorkflowDefinition) -> None:
        """Start again if the run was requested meanwhile.

        The execution that this takeover started may have ended before the takeover itself did. The
        run is then wanted back, for example to be compensated.
        """
        if self._under_way.pop(row.id) and not task.cancelled():
            self.start(row, workflow)

    async def _take_over(self, id: str, workflow: WorkflowDefinition) -> None:
        """Try until this worker holds the run, or until there is nothing to take over.

        That is so when the run has ended, is parked, or is left to the fleet.
        """
        engine = self._engine
        told, log_backoff = HeldElsewhereNotice(engine), LogBackoff(engine.loop.time)
        patience = engine.loop.time() + engine.settings.suspect_patience
        while not engine.shutdown.begun:
            seen, pause = (
                engine.notifier.count,
                min(engine.settings.heartbeat, engine.settings.poll),
            )
            try:
                row = await self._in_the_way(id)
                if row is None:
                    return
                told.log_if_late(row)
                due_in = row.due - engine.store.now() if row.worker is None else pause
                patient = engine.loop.time() < patience
                if (
                    due_in <= 0
                    and self._wait_for_isolation(row, patient=patient)
                    and await self._claim(row, workflow)
                ):
                    return
                pause = min(pause, due_in) if due_in > 0 else pause
            except Exception as error:
                # Keep trying after any failure: the caller would otherwise wait for the run for
                # ever.
                if log_backoff.should_log():
                    self._complain(id, error)
            await engine.notifier.wait(max(0.001, pause), seen)

    def _complain(self, id: str, error: Exception) -> None:
        if isinstance(error, StoreError):
            log.warning("run %s cannot be taken up yet: %s", id, error, extra={"run": id})
        else:
            log.error(
                "run %s cannot be taken up yet",
                id,
                exc_info=self._engine.redact_exception(error),
                extra={"run": id},
            )

    async def _in_the_way(self, id: str) -> RunRow | None:
        """Return the run's current row, after sweeping its worker if that is dead.

        Return None if there is nothing to take over.
        """
        engine = self._engine
        row = await engine.read(engine.store.run, id)
        if (
            row is not None
            and row.worker == engine.worker.id
            and not engine.in_flight.is_held(row.fence)
        ):
            # An execution here left the run behind when the store did not answer, unless its claim
            # is pending.
            await engine.sweeper.tidy()
            row = await engine.read(engine.store.run, id)
        elif row is not None and row.worker is not None and await engine.sweeper.sweep():
            row = await engine.read(engine.store.run, id)
        if (
            row is None
            or row.status in ENDED
            or row.status == "parked"
            or engine.in_flight.holds_run(id)
        ):
            return None
        return None if self._is_the_fleets(row) else row

    def _is_the_fleets(self, row: RunRow) -> bool:
        """Return whether a claimer, of this worker or another, will take the run in time.

        Such a run is not taken over. A suspect whose parent waits for it here is: with its parent
        held, this worker would never be empty for it.
        """
        engine = self._engine
        claimer = engine.claimer
        if claimer is None or row.queue not in claimer.queues or row.worker == engine.worker.id:
            return False
        suspect = row.is_suspect and not engine.in_flight.ancestors_held(row.parent)
        return row.worker is not None or row.due > engine.store.now() or suspect

    def _wait_for_isolation(self, row: RunRow, *, patient: bool) -> bool:
        """Return whether the run may be claimed now.

        A suspect waits for isolation, while `patient`.
        """
        return not row.is_suspect or not patient or self._engine.isolation.can_isolate(row)

    async def _claim(self, row: RunRow, workflow: WorkflowDefinition) -> bool:
        engine = self._engine
        command = Claim(engine.worker.id, secrets.token_hex(8), ids=(row.id,))
        alone = row.is_suspect and engine.isolation.can_isolate(row)
        rows = await engine.acquirer.claim(command, alone=alone)
        await engine.acquirer.begin_read([(one, workflow) for one in rows], claimed=False)
        return bool(rows)
