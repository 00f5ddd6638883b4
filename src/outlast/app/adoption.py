"""Adoption: taking over a run that somebody here has asked for by its id, as soon as nobody else has it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Any

from outlast.app.complaints import Complaints
from outlast.errors import StoreError
from outlast.store.rows import ENDED, RunRow
from outlast.store.verbs import Claim

if TYPE_CHECKING:
    from outlast.app.house import House
    from outlast.define.workflow import Workflow

log = logging.getLogger("outlast")

TELL_AFTER_SECONDS = 2.0
"""How long a program waits for a run in another's hands before it says so."""


class Told:
    """Whoever waits here for a run in another's hands is told so: once, and not at once."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._at: float | None = house.loop.time() + TELL_AFTER_SECONDS

    def of(self, row: RunRow) -> None:
        house = self._house
        if self._at is not None and row.worker is not None and house.loop.time() > self._at:
            self._at = None
            log.warning(
                "run %s is held by worker %s: waiting until that gives it back, or is known to be dead (its lease is %g s)",
                row.id, row.worker, house.settings.lease, extra=house.facts(row),
            )  # fmt: skip


class Adoption:
    def __init__(self, house: House) -> None:
        self._house = house
        self._under_way: dict[str, bool] = {}
        """By id: whether it was asked for again meanwhile."""

    def of(self, row: RunRow, workflow: Workflow[..., Any]) -> None:
        """In the background; once, however often it is asked for."""
        house = self._house
        if row.id in house.lives or house.draining:
            return
        if row.id in self._under_way:
            self._under_way[row.id] = True
            return
        self._under_way[row.id] = False
        task = house.loop.create_task(self._adopt(row.id, workflow))
        task.add_done_callback(lambda task: self._over(task, row, workflow))
        house.keep(task)

    def _over(self, task: asyncio.Task[None], row: RunRow, workflow: Workflow[..., Any]) -> None:
        """The life that it began may have ended before it did itself, and the run be wanted back: as one that is now to be undone."""
        if self._under_way.pop(row.id) and not task.cancelled():
            self.of(row, workflow)

    async def _adopt(self, id: str, workflow: Workflow[..., Any]) -> None:
        """Ends when this worker has it, when it has ended or is parked, or when it is the fleet's to take."""
        house = self._house
        told, complaints = Told(house), Complaints(house.loop.time)
        patience = house.loop.time() + house.settings.suspect_patience
        while not house.draining:
            seen, pause = house.changes.count, min(house.settings.heartbeat, house.settings.poll)
            try:
                row = await self._in_the_way(id)
                if row is None:
                    return
                told.of(row)
                due_in = row.due - house.store.now() if row.worker is None else pause
                patient = house.loop.time() < patience
                if due_in <= 0 and self._may_come(row, patient=patient) and await self._claim(row, workflow):
                    return
                pause = min(pause, due_in) if due_in > 0 else pause
            except Exception as error:  # whoever waits for the run would wait for ever
                if complaints.is_time():
                    self._complain(id, error)
            await house.changes.next(max(0.001, pause), seen)

    def _complain(self, id: str, error: Exception) -> None:
        if isinstance(error, StoreError):
            log.warning("run %s cannot be taken up yet: %s", id, error, extra={"run": id})
        else:
            log.error(
                "run %s cannot be taken up yet", id, exc_info=self._house.veiled(error), extra={"run": id}
            )

    async def _in_the_way(self, id: str) -> RunRow | None:
        """A run as it stands, swept if its worker is dead; None if there is nothing to take over."""
        house = self._house
        row = await house.read(house.store.run, id)
        if row is not None and row.worker == house.worker.id and row.fence not in house.room.hands:
            # Left behind by a life here when the store did not answer, unless its claim is on its way.
            await house.sweeper.tidy()
            row = await house.read(house.store.run, id)
        elif row is not None and row.worker is not None and await house.sweeper.sweep():
            row = await house.read(house.store.run, id)
        if row is None or row.status in ENDED or row.status == "parked" or house.room.has(id):
            return None
        return None if self._is_the_fleets(row) else row

    def _is_the_fleets(self, row: RunRow) -> bool:
        """Whether this worker's claimer, or another's, takes it when the time has come: not to be pulled from there.

        A suspect whose parent waits for it here is not: with its parent in hand this worker would never be empty.
        """
        house = self._house
        claimer = house.claimer
        if claimer is None or row.queue not in claimer.queues or row.worker == house.worker.id:
            return False
        suspect = row.is_suspect and not house.room.line(row.parent)
        return row.worker is not None or row.due > house.store.now() or suspect

    def _may_come(self, row: RunRow, *, patient: bool) -> bool:
        """A suspect waits for the room to be its own, but not for ever."""
        return not row.is_suspect or not patient or self._house.room.fits(row)

    async def _claim(self, row: RunRow, workflow: Workflow[..., Any]) -> bool:
        house = self._house
        verb = Claim(house.worker.id, secrets.token_hex(8), ids=(row.id,))
        alone = row.is_suspect and house.room.fits(row)
        rows = await house.intake.claim(verb, alone=alone)
        await house.intake.begin_claimed(rows, workflow)
        return bool(rows)
