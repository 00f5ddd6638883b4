"""Log and call a hook when a run needs a person."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from shlex import quote
from typing import TYPE_CHECKING, TypeAlias

from outlast.engine.info import RunInfo
from outlast.errors import StoreUnavailable
from outlast.errors.reasons import of_run
from outlast.store.commands import ITEM
from outlast.store.rows import RunRow
from outlast.telemetry.error_text import format_reason

if TYPE_CHECKING:
    from outlast.engine.engine import Engine

log = logging.getLogger("outlast")
Hook: TypeAlias = Callable[[RunInfo], Awaitable[None] | None]


AGAIN_SECONDS = 1.0
"""Seconds between two reads of a run while the store does not answer."""
_BECAME = {"parked": "parked", "dead": "a dead letter"}


class Hooks:
    """Call the program's `on_parked` and `on_dead` hooks."""

    def __init__(self, engine: Engine, hooks: Mapping[str, Hook]) -> None:
        self._engine, self._hooks = engine, hooks
        """Hooks by what the run became: parked or dead."""
        self._telling: set[asyncio.Task[None]] = set()

    def tell(self, what: str, id: str) -> None:
        """Log that a run is parked or a dead letter, and call the hook, in the background."""
        engine = self._engine
        task = engine.track_task(engine.loop.create_task(self._tell(what, id)))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def close(self, seconds: float) -> None:
        """Wait for hooks in progress. No other process will report these runs."""
        if self._telling:
            await asyncio.wait(list(self._telling), timeout=seconds)

    async def _row(self, what: str, id: str) -> RunRow | None:
        """Read the run's row, and retry until the store answers.

        No other process will report this run. Log an error at the first failure.
        """
        engine, said = self._engine, False
        while True:
            try:
                return await engine.read(engine.store.run, id)
            except StoreUnavailable as error:
                if not said:
                    log.error("%s is %s; why is told when the store answers again: %s", id, _BECAME[what], error, extra={"run": id})  # fmt: skip
                said = True
                await asyncio.sleep(AGAIN_SECONDS)

    async def _tell(self, what: str, id: str) -> None:
        engine = self._engine
        row = await self._row(what, id)
        if row is None:
            return
        engine.meters.needs_a_person(what, row.queue)
        kind = "item" if row.workflow == ITEM else "run"
        became = _BECAME[what]
        # The reason for a death is our own text. The reason for parking, or for an item's failure,
        # may quote an error.
        ours = row.status == "dead" and not row.failures
        reason = format_reason(row.reason, engine.log_values, ours=ours)
        page = of_run(row.status, row.reason)
        facts = {
            **engine.log_fields(row),
            "status": row.status,
            "reason": reason or None,
            "explain": page,
        }
        why = reason or f"`outlast show {quote(id)}` says why"
        log.error("%s %s is %s: %s", kind, id, became, why, extra=facts)
        hook = self._hooks.get(what)
        if hook is None:
            return
        try:
            answer = hook(RunInfo.of(row))
            if isawaitable(answer):
                await answer
        except Exception as error:
            log.error(
                "on_%s failed, called for %s %s",
                what,
                kind,
                id,
                exc_info=engine.redact_exception(error),
                extra=facts,
            )
