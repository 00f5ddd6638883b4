"""Log and call a hook when a run needs a person."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from shlex import quote
from typing import TYPE_CHECKING, TypeAlias

from outlast.errors import StoreUnavailable
from outlast.errors.reasons import of_run
from outlast.execution.services import log_fields
from outlast.store.commands import ITEM
from outlast.telemetry.error_text import format_reason, redact

if TYPE_CHECKING:
    from outlast.engine.background import Background
    from outlast.engine.inspection import RunInfo
    from outlast.engine.registration import WorkerRegistration
    from outlast.engine.store_client import StoreClient
    from outlast.store.rows import RunRow
    from outlast.telemetry.meters import Meters

log = logging.getLogger("outlast")
Hook: TypeAlias = "Callable[[RunInfo], Awaitable[None] | None]"

AGAIN_SECONDS = 1.0
"""Seconds between two reads of a run while the store does not answer."""
_BECAME = {"parked": "parked", "dead": "a dead letter"}


class Hooks:
    """Call the program's `on_parked` and `on_dead` hooks."""

    def __init__(
        self,
        hooks: Mapping[str, Hook],
        client: StoreClient,
        *,
        registration: WorkerRegistration,
        meters: Meters,
        background: Background,
        log_values: int,
    ) -> None:
        self._hooks = hooks
        """Hooks by what the run became: parked or dead."""
        self._client = client
        self._registration = registration
        self._meters = meters
        self._background = background
        self._log_values = log_values
        self._reporting: set[asyncio.Task[None]] = set()

    def report(self, what: str, id: str) -> None:
        """Log that a run is parked or a dead letter, and call the hook, in the background."""
        task = self._background.spawn(self._report(what, id))
        self._reporting.add(task)
        task.add_done_callback(self._reporting.discard)

    async def close(self, seconds: float) -> None:
        """Wait for hooks in progress. No other process will report these runs."""
        if self._reporting:
            await asyncio.wait(list(self._reporting), timeout=seconds)

    async def _row(self, what: str, id: str) -> RunRow | None:
        """Read the run's row, and retry until the store answers.

        No other process will report this run. Log an error at the first failure.
        """
        is_logged = False
        while True:
            try:
                return await self._client.read(self._client.store.run, id)
            except StoreUnavailable as error:
                if not is_logged:
                    log.error(
                        "%s is %s. The reason follows when the store answers again: %s",
                        id,
                        _BECAME[what],
                        error,
                        extra={"run": id},
                    )
                is_logged = True
                await asyncio.sleep(AGAIN_SECONDS)

    async def _report(self, what: str, id: str) -> None:
        row = await self._row(what, id)
        if row is None:
            return
        self._meters.needs_a_person(what, row.queue)
        kind = "item" if row.workflow == ITEM else "run"
        became = _BECAME[what]
        # The reason for a death is our own text. The reason for parking, or for an item's failure,
        # may quote an error.
        ours = row.status == "dead" and not row.failures
        reason = format_reason(row.reason, self._log_values, ours=ours)
        page = of_run(row.status, row.reason)
        fields = {
            **log_fields(row),
            "worker": row.worker or self._registration.id,
            "status": row.status,
            "reason": reason or None,
            "explain": page,
        }
        why = reason or f"`outlast show {quote(id)}` shows why"
        log.error("%s %s is %s: %s", kind.capitalize(), id, became, why, extra=fields)
        hook = self._hooks.get(what)
        if hook is None:
            return
        from outlast.engine.inspection import RunInfo

        try:
            answer = hook(RunInfo.of(row))
            if isawaitable(answer):
                await answer
        except Exception as error:
            log.error(
                "The hook on_%s failed for %s %s.",
                what,
                kind,
                id,
                exc_info=redact(error, self._log_values),
                extra=fields,
            )
