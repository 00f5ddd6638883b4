"""Gather the writes of a superstep, so that they are one commit.

LangGraph saves what each task has written, and then the checkpoint that follows. It asks for both
in the same moment. So a task's writes wait for a few turns of the event loop, and are written
together with the checkpoint if it comes. Nobody is answered before everything is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from outlast.api.session import Session, make_change

TURNS = 4
"""How many turns of the event loop writes wait for a checkpoint."""
QUIET = 0.05
"""If no other thread was written for this many seconds, there is nothing to share a commit with."""
SIZE_MAX = 1_000_000
"""Beyond this many characters nothing is gathered: a large commit delays all who wait for it."""


@dataclass
class _Batch:
    """Changes of one session that are written together."""

    session: Session
    answer: asyncio.Future[None]
    fields: dict[str, Any] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    size: int = 0

    def add(self, fields: Mapping[str, Any], absent: Collection[str], size: int) -> None:
        for name, value in fields.items():
            if name not in absent:
                self.fields[name] = value
                self.absent.discard(name)
            elif name not in self.fields:
                self.fields[name] = value
                self.absent.add(name)
        self.size += size


class GatheredWrites:
    """Write the fields of sessions, several requests in one commit. Use it on one event loop."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int | None], _Batch] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._last: tuple[str, float] = ("", 0.0)
        """Which session was written last, and when."""

    async def write(
        self,
        session: Session,
        fields: Mapping[str, Any],
        absent: Collection[str],
        *,
        size: int,
        size_max: int,
        now: bool,
    ) -> None:
        """Set fields, those of `absent` only if they have no value. Return once they are durable.

        `size` is about the number of characters. Requests with more than `size_max` together are
        not gathered. With `now`, write everything that has been gathered for the session too. Raise
        what `Session.update` raises.
        """
        loop, key = asyncio.get_running_loop(), (session.id, session.owner)
        batch = self._open.get(key)
        if batch is not None and batch.size + size > min(size_max, SIZE_MAX):
            self._send(key, batch)
            batch = None
        if batch is None:
            batch = self._open[key] = _Batch(session, loop.create_future())
            if not now:
                loop.call_soon(self._wait, key, batch, TURNS)
        batch.add(fields, absent, size)
        if now:
            self._send(key, batch)
        # Others wait for the same commit, so a cancelled caller does not cancel it.
        await asyncio.shield(batch.answer)

    def _wait(self, key: tuple[str, int | None], batch: _Batch, turns: int) -> None:
        """Let some turns of the loop pass, then write what nobody has written until then."""
        if self._open.get(key) is batch:
            if turns:
                asyncio.get_running_loop().call_soon(self._wait, key, batch, turns - 1)
            else:
                self._send(key, batch)

    def _send(self, key: tuple[str, int | None], batch: _Batch) -> None:
        if self._open.get(key) is not batch:
            return
        del self._open[key]
        now, (before, then) = asyncio.get_running_loop().time(), self._last
        alone = not self._open and not self._tasks and (before == key[0] or now - then > QUIET)
        self._last = (key[0], now)
        task: asyncio.Task[None] = asyncio.ensure_future(_sent(batch, alone=alone))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _sent(batch: _Batch, *, alone: bool) -> None:
    try:
        change = batch.session.change(batch.fields, if_absent=batch.absent)
        await make_change(change, alone=alone)
    except asyncio.CancelledError:
        batch.answer.cancel()
        raise
    except Exception as error:
        batch.answer.set_exception(error)
        # It is no loss if every caller was cancelled: they ask again in their next life.
        batch.answer.exception()
    else:
        batch.answer.set_result(None)
