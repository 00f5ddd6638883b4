"""Show other processes which steps execute, without a write per step.

A journal records a step when it ends. So once a second, each worker records the steps that have
been running for longer than a second, in one session per worker with one field per run. It writes
only changes, in one command. A worker with short steps writes nothing.

A reader ignores a field whose fence is not the run's. So fields of a dead or paused worker are not
shown, and nothing has to be removed when a run is lost.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from outlast.codec.text import iso
from outlast.engine.background import Background
from outlast.engine.in_flight_registry import InFlight
from outlast.engine.registration import WorkerRegistration
from outlast.engine.store_client import StoreClient
from outlast.errors import StoreError
from outlast.execution.step_execution import StepExecution
from outlast.store.commands import Refused, UpdateSession
from outlast.store.protocol import Store
from outlast.store.rows import RunRow

EXECUTING = "executing"
"""The session space in which workers record the steps that they execute."""
INTERVAL_SECONDS = 1.0
"""The time between two checks. A step that takes less is recorded only when it ends."""
ENDING_KINDS = ("step", "attempt")
"""The kinds of entries that end an attempt of a step."""
STEPS_MAX = 100
"""How many steps of a run are recorded, the oldest first."""
KEPT_SECONDS = 86_400.0
"""How long a session stays after its worker has stopped writing it."""

Known = tuple[int, tuple[tuple[str, int], ...]]
"""A fence, and the steps that execute under it: their keys and attempts."""


class ExecutingStep(NamedTuple):
    """A step that has begun and not ended yet."""

    key: str
    name: str
    kind: str
    """"step" or "effect"."""
    attempt: int
    started: float
    """When the attempt began, by the store's clock."""


class ExecutingSteps:
    """Record the steps that this process executes."""

    def __init__(
        self,
        client: StoreClient,
        registration: WorkerRegistration,
        in_flight: InFlight,
        background: Background,
    ) -> None:
        self._client = client
        self._registration = registration
        self._in_flight = in_flight
        self._loop = background.loop
        self._worker = ""
        self._recorded: dict[str, Known] = {}
        """What the store has of each run, by its number."""
        self._renew_at = 0.0
        self._writing = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Check once a second from now on."""
        self._timer = self._loop.call_later(INTERVAL_SECONDS, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self.start()
        if not self._writing and (self._in_flight.executions or self._recorded):
            self._record(self._loop.time())

    def _record(self, now: float) -> None:
        """Record what has changed since the last time."""
        if self._worker != self._registration.id or now >= self._renew_at:
            # The session is new, or would expire.
            self._recorded = {}
        found = {
            str(execution.pk): (execution.fence, steps)
            for execution in self._in_flight.executions.values()
            if (steps := self._long_steps(execution.steps.tasks.values(), now))
        }
        known: dict[str, Known] = {
            run: (fence, tuple((step.key, step.attempt) for step in steps))
            for run, (fence, steps) in found.items()
        }
        fields: dict[str, str | None] = {
            run: self._text(fence, steps, now)
            for run, (fence, steps) in found.items()
            if known[run] != self._recorded.get(run)
        }
        fields |= dict.fromkeys(self._recorded.keys() - known.keys())
        if not fields:
            return
        worker, self._writing = self._registration.id, True

        def written(_: Any, outcome: Any) -> None:
            self._writing = False
            # Without an answer, the next check records it again.
            if not isinstance(outcome, (Refused, StoreError)):
                self._worker, self._recorded = worker, known
                self._renew_at = now + KEPT_SECONDS / 2

        command = UpdateSession(worker, secrets.token_hex(8), fields, KEPT_SECONDS, space=EXECUTING)
        self._client.writer.enqueue(command, written)

    @staticmethod
    def _long_steps(steps: Any, now: float) -> list[StepExecution]:
        long = (
            step
            for step in steps
            if step is not None and not step.idle and now - step.since >= INTERVAL_SECONDS
        )
        return list(islice(long, STEPS_MAX))

    def _text(self, fence: int, steps: list[StepExecution], now: float) -> str:
        clock = self._client.store.now()
        rows = [
            (step.key, step.name, step.kind, step.attempt, round(clock - (now - step.since), 3))
            for step in steps
        ]
        return json.dumps([fence, rows])


def not_ended(
    steps: Iterable[ExecutingStep], ended: Mapping[str, float]
) -> tuple[ExecutingStep, ...]:
    """Leave out steps that have ended since they were recorded.

    `ended` has when the last attempt of a step ended, by its key.
    """
    return tuple(one for one in steps if ended.get(one.key, -math.inf) < one.started)


def executing_document(step: ExecutingStep) -> dict[str, Any]:
    return {**step._asdict(), "started": iso(step.started)}


def executing_steps(store: Store, row: RunRow) -> tuple[ExecutingStep, ...]:
    """Return the steps of a run that its worker executes, as of a second or two ago."""
    if row.status != "running" or row.worker is None:
        return ()
    run = str(row.pk)
    session = store.session(row.worker, EXECUTING, names=(run,))
    try:
        fence, steps = json.loads("" if session is None else session.fields.get(run, ""))
        return tuple(ExecutingStep(*step) for step in steps) if fence == row.fence else ()
    except (TypeError, ValueError):
        # There is no readable field. The journal has what matters.
        return ()
