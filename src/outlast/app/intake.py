"""The intake: how runs and items come into this process's hands, and how lives of runs begin."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from outlast.define import determinism
from outlast.errors import StoreError, StoreUnavailable
from outlast.replay.account import CUT
from outlast.replay.children import Unneeded
from outlast.replay.life import Life
from outlast.store.protocol import whole_journal
from outlast.store.rows import Entry, Message, RunRow
from outlast.store.verbs import DRAINING, Claim, Refused, Release, Settle, Submit, Submitted
from outlast.values.reasons import NO_JOURNAL

if TYPE_CHECKING:
    from outlast.app.house import House
    from outlast.define.workflow import Workflow

log = logging.getLogger("outlast")
Past: TypeAlias = tuple[list[Entry], list[Message], dict[str, str], RunRow | None]
"""A run's journal, its mailbox, the progress of its steps, and the run that has started it, if its trace is wanted."""


class Intake:
    def __init__(self, house: House) -> None:
        self._house = house

    async def claim(self, verb: Claim, *, alone: bool = False) -> list[RunRow]:
        """Claim runs or items; `alone` if what comes is to have the room to itself. Nothing if this worker was swept."""
        house = self._house
        if alone:
            house.room.reserve()
        rows: list[RunRow] = []
        try:
            outcome = await self.acquire(verb)
            if isinstance(outcome, Refused) and (house.draining or outcome.why == DRAINING):
                house.stop_claiming()
            elif isinstance(outcome, Refused):
                await house.worker.enlist(instead_of=verb.worker)
                house.wake_claimers()  # nothing else would: under its new id it may claim at once
            else:
                rows = outcome
        finally:
            if alone:
                house.room.take(rows[0].fence if rows else None)
        return rows

    async def acquire(self, verb: Claim | Submit) -> Any:
        """Have a verb written that gives runs to this worker. They are in hand from the moment that is known; if nobody waits
        for them any more, they are given back."""
        house = self._house
        answer: asyncio.Future[Any] = house.loop.create_future()
        house.room.coming += 1

        def answered(_: Any, outcome: Any) -> None:
            house.room.coming -= 1
            for row in _given(outcome):
                house.room.add(row)
                if answer.done():
                    self.give_back(row, "nobody waited for it any more")
            if answer.done():
                return
            if isinstance(outcome, StoreError):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

        house.writer.put(verb, answered)
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                for row in _given(answer.result()):
                    self.give_back(row, "nobody waited for it any more")
            raise

    def give_back(self, row: RunRow, why: str) -> None:
        """Something in hand that was not begun."""
        house = self._house
        house.writer.put(Release(row.pk, row.fence, why, interrupted=False), lambda *_: None)
        self.dropped(row.fence)

    def dropped(self, fence: int, *, heard: bool = True) -> None:
        """It is in nobody's hand any more. Unless `heard`, that is on its way to the store, behind what was written of it before."""
        house = self._house
        (house.room.drop if heard else house.room.let_go)(fence)
        if house.claimer is not None:
            house.claimer.done(fence)

    async def begin_claimed(self, rows: list[RunRow], workflow: Workflow[..., Any] | None = None) -> None:
        """Those in their first life at once; the others when their journals are read, all in one go."""
        house = self._house
        again: list[RunRow] = []
        for row in rows:
            if row.lives == 1:
                self.begin(row, workflow or house.workflows[row.workflow])
            else:
                again.append(row)
        if not again:
            return
        try:
            pasts = await house.read(self._pasts, again)
        except BaseException:
            for row in again:
                self.give_back(row, "its journal was not read")
            raise
        for row, past in zip(again, pasts, strict=True):
            if isinstance(past, StoreUnavailable):
                self.give_back(row, f"its journal could not be read: {past}")
            elif isinstance(past, Exception):
                self._park(row, past)
            else:
                self.begin(row, workflow or house.workflows[row.workflow], *past)
        await house.post.look_for_requests()  # somebody may have wanted one to end while its journal was read

    def _pasts(self, rows: list[RunRow]) -> list[Past | Exception]:
        """A journal that cannot be read is one run's trouble, not its neighbours'."""
        house = self._house
        store = house.store
        pasts: list[Past | Exception] = []
        for row in rows:
            try:
                parent = house.spans.above(store, row)
                pasts.append(
                    (whole_journal(store, row.pk), store.messages(row.pk), store.progress(row.pk), parent)
                )
            except Exception as error:
                pasts.append(error)
        return pasts

    def begin(
        self,
        row: RunRow,
        workflow: Workflow[..., Any],
        entries: Any = (),
        messages: Any = (),
        saved: Mapping[str, str] | None = None,
        parent: RunRow | None = None,
    ) -> None:
        """Start a life of a run in hand."""
        house = self._house
        if house.closing:
            return  # it is given back when this worker leaves
        if house.draining:
            self.give_back(row, "its worker drains")
            return
        if not house.worker.is_alive(row.worker or ""):  # taken for dead since
            self._let_fall(row, workflow)
            return
        if row.id in house.lives:  # a life that lost the run has not ended yet: its step may still execute
            house.keep(house.loop.create_task(self._begin_after(house.lives[row.id], row, workflow)))
            return
        if isinstance(workflow, Unneeded) and row.undoing is None:
            self.give_back(row, "it is not being undone any more, and its workflow is not known here")
            return
        try:
            life = Life(house, row, workflow, entries, messages, saved, parent)
        except Exception as error:
            self._park(row, error)
            return
        if not house.room.begin(row.fence):
            self.give_back(row, "its worker drains")
            return
        life.claimed = house.claimer is not None and row.fence in house.claimer.hands
        house.lives[row.id] = life
        if entries:
            self._count_recovery(life, entries[-1])
        if life.claimed and log.isEnabledFor(logging.INFO):
            alone = ", alone: it died more than once without recording anything" if life.suspect else ""
            log.info("run %s is claimed%s", row.id, alone, extra=house.facts(row))
        if house.settings.check_workflows and not isinstance(workflow, Unneeded):
            determinism.warn_once(workflow, house.facts(row))
        house.loop.call_soon(life.start)
        house.resting.watch()
        house.changes.tell()  # whoever waits for the run waits for this life now

    def _count_recovery(self, life: Life, last: Entry) -> None:
        """How long a run lay that a death or an interruption has cut off. One that only woke up may have a journal that ends so too, but
        what it was given back for last was something else."""
        if last.kind not in CUT:
            return
        said = json.loads(last.value or "{}")
        if life.row.interrupted is not None or said.get("why") == life.row.reason:
            life.cause = last.kind
            now = self._house.store.now()
            self._house.meters.recovered(last.kind, now - said.get("seen", last.at))

    async def _begin_after(self, earlier: Life, row: RunRow, workflow: Workflow[..., Any]) -> None:
        await asyncio.wait([earlier.end])
        await self.begin_claimed([row._replace(lives=max(2, row.lives))], workflow)

    def _let_fall(self, row: RunRow, workflow: Workflow[..., Any]) -> None:
        """A run that is not this worker's any more: what was claimed is the fleet's, what was started here is wanted back."""
        house = self._house
        claimed = house.claimer is not None and row.fence in house.claimer.hands
        self.dropped(row.fence)
        if not claimed:
            house.adoption.of(row, workflow)

    def _park(self, row: RunRow, error: Exception) -> None:
        """Its journal cannot be read: a person must look."""
        house = self._house

        def parked(_: Any, outcome: Any) -> None:
            self.dropped(row.fence)
            if outcome is None:
                house.hooks.tell("parked", row.id)
            house.changes.tell()

        why = f"{NO_JOURNAL}: {error!r}"
        house.writer.put(Settle(row.pk, row.fence, "parked", reason=why), parked)


def _given(outcome: Any) -> list[RunRow]:
    """What a verb gave to this worker."""
    if isinstance(outcome, Submitted):
        return (
            [outcome.row]
            if outcome.new and outcome.row is not None and outcome.row.worker is not None
            else []
        )
    return outcome if isinstance(outcome, list) else []
