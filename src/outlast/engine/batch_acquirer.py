"""Acquire the run of an `each` or a `map`: a new one, or one that no live worker holds."""

from __future__ import annotations

import json
import secrets

from outlast.engine.acquirer import WorkAcquirer
from outlast.engine.direct_claim import DirectClaim, HeldElsewhereNotice
from outlast.engine.in_flight_registry import InFlight
from outlast.engine.isolation import Isolation
from outlast.engine.notifier import ChangeNotifier
from outlast.engine.registration import WorkerRegistration
from outlast.engine.store_client import StoreClient
from outlast.engine.submission import Submissions
from outlast.errors import Conflict, Draining, WrongStatus
from outlast.execution.shutdown_state import ShutdownState
from outlast.settings import Settings
from outlast.store.commands import DRAINING, EACH, Refused, Resume
from outlast.store.rows import ENDED, RunRow


class BatchAcquirer:
    """Submit or claim the runs behind `each` and `map`."""

    def __init__(
        self,
        client: StoreClient,
        acquirer: WorkAcquirer,
        claims: DirectClaim,
        submissions: Submissions,
        *,
        in_flight: InFlight,
        isolation: Isolation,
        registration: WorkerRegistration,
        notifier: ChangeNotifier,
        shutdown: ShutdownState,
        settings: Settings,
    ) -> None:
        self._client = client
        self._acquirer = acquirer
        self._claims = claims
        self._submissions = submissions
        self._in_flight = in_flight
        self._isolation = isolation
        self._registration = registration
        self._notifier = notifier
        self._shutdown = shutdown
        self._settings = settings

    async def acquire(self, id: str, form: str, parent: str | None) -> tuple[RunRow, int]:
        """Acquire a batch and return its row, and how many changes the notifier had seen before.

        While another process holds the run, wait. The death of that process is noticed. Raise
        Draining if this process is shutting down.
        """
        await self._isolation.wait_until_over(parent)
        notice = HeldElsewhereNotice(self._settings.lease)
        store = self._client.store
        while True:
            if self._shutdown.begun:
                raise draining(form, id)
            seen = self._notifier.count
            row = await self._client.read(store.run, id)
            if row is None:
                held = await self._submit(id, form, parent)
            else:
                held = await self._claim(row, form)
            if held is not None:
                break
            if row is not None:
                notice.log_if_late(row)
                pause = min(self._settings.heartbeat, self._settings.poll)
                due_in = row.due - store.now()
                await self._notifier.wait(min(pause, due_in) if due_in > 0 else pause, seen)
        if not self._in_flight.start(held.fence):
            self._acquirer.release(held, "its worker drains")
            raise draining(form, id)
        return held, seen

    async def _submit(self, id: str, form: str, parent: str | None) -> RunRow | None:
        worker = self._registration.id
        command = self._submissions.build(
            id, EACH, _args(form), queue=EACH, parent=parent, worker=worker
        )
        outcome = await self._acquirer.acquire(command)
        if isinstance(outcome, Refused):
            if outcome.why == DRAINING:
                raise draining(form, id)
            # The worker was declared dead in between.
            await self._registration.register(instead_of=worker)
            return None
        return outcome.row if outcome.new else None

    async def _claim(self, row: RunRow, form: str) -> RunRow | None:
        """Claim the run and return its row, or None if it cannot be claimed yet.

        Raise Conflict if the id belongs to another call, and WrongStatus if the run needs a person
        or is in flight here.
        """
        if (row.workflow, row.args) != (EACH, _args(form)):
            recorded = f"{row.workflow}({row.args})"[:500]
            raise Conflict(row.id, recorded, f"{EACH}({_args(form)})")
        if row.status == "done":
            # The store refuses this if another process was first.
            await self._client.writer.execute(Resume(row.id, secrets.token_hex(8)))
        elif row.status == "parked" or row.status in ENDED:
            command = "resume" if row.status == "parked" else "retry"
            why = f" ({row.reason})" if row.reason else ""
            raise WrongStatus(
                f"{form} {row.id!r} is {row.status}{why}. To continue, run "
                f"`outlast {command} {row.id}`, then make this call again."
            )
        elif row.worker is not None:
            if self._in_flight.is_held(row.fence):
                raise WrongStatus(
                    f"{form} {row.id!r} is already executing in this process. Leave that loop "
                    "first, or use another id."
                )
            if not await self._claims.free(row):
                return None
        rows = await self._claims.claim(row)
        return rows[0] if rows else None


def draining(form: str, id: str) -> Draining:
    """Return the error for a batch that stops because this process drains."""
    return Draining(
        f"this process is shutting down: {form} {id!r} stops here. What is done is recorded, and "
        "the same call in another process continues from there."
    )


def _args(form: str) -> str:
    return json.dumps({"form": form})
