"""Pause workflows: workers leave the runs of a paused workflow in their queues.

A pause is a session, so it works on every store. Workers read the pauses once per poll.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from outlast.codec.identifiers import check_name
from outlast.engine.actions import checked_by
from outlast.engine.store_client import StoreClient
from outlast.store.commands import DeleteSession, UpdateSession
from outlast.store.pauses import PAUSE, PAUSES, PausedWorkflow, read_pauses

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.execution.definitions import WorkflowDefinition

POLL_SHARE_MIN = 0.75
"""Rounds of a claimer this share of a poll apart each read the pauses.

It is the shortest pause of an idle claimer, which so needs no rounds for the pauses alone."""


class WorkflowPauses:
    """The pauses as the claimer of this process has read them."""

    def __init__(self, client: StoreClient, poll: float) -> None:
        self._client = client
        self._poll = poll
        self._read_at: float | None = None
        self._names: frozenset[str] = frozenset()

    async def refresh(self, now: float) -> None:
        """Read the pauses, unless that was done a moment ago."""
        age = None if self._read_at is None else now - self._read_at
        if age is None or not 0 <= age < POLL_SHARE_MIN * self._poll:
            found = await self._client.read(read_pauses, self._client.store)
            self._names = frozenset(one.name for one in found)
            self._read_at = now

    def seconds_left(self, now: float) -> float:
        """Return after how many seconds the pauses are to be read again."""
        return 0.0 if self._read_at is None else max(0.0, self._read_at + self._poll - now)

    def forget(self) -> None:
        """Read the pauses before the next claim, because this process has changed them."""
        self._read_at = None

    def without_paused(self, workflows: Sequence[str]) -> tuple[str, ...]:
        """Return the workflows that are not paused."""
        return tuple(name for name in workflows if name not in self._names)


async def set_paused(
    engine: Engine, workflow: str | WorkflowDefinition, *, paused: bool, by: str | None = None
) -> None:
    """Pause or resume a workflow, which need not be known here. A repeat changes nothing."""
    name = check_name(
        workflow if isinstance(workflow, str) else workflow.name,
        engine.settings.name_length_max,
        "workflow name",
    )
    by, token = checked_by(engine, by), secrets.token_hex(8)
    command: UpdateSession | DeleteSession
    if paused:
        fields = {PAUSE: json.dumps({"since": engine.store.now(), "by": by})}
        # The first pause counts. The store refuses another one.
        command = UpdateSession(name, token, dict(fields), space=PAUSES, absent=(PAUSE,))
    else:
        command = DeleteSession(name, token, space=PAUSES)
    await engine.writer.execute(command)
    engine.pauses.forget()
    engine.claimers.wake()


async def paused_workflows(engine: Engine) -> list[PausedWorkflow]:
    """Return the paused workflows, ordered by name."""
    return await engine.client.read(read_pauses, engine.store)
