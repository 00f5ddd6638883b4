"""Define `Run`, a handle on a run behind the HTTP API."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Generic, TypeVar

from outlast.api.run import conclude
from outlast.client.rows import Document, error_text, json_text, run_row
from outlast.client.transport import Transport, segment
from outlast.codec.identifiers import check_id
from outlast.engine.inspection import RunInfo
from outlast.execution.execution_state import OutcomeKind, RunOutcome

R = TypeVar("R")
ID_LENGTH_MAX = 10_000
POLL_SECONDS = 30.0
"""How long one request waits for the end of a run."""


class Run(Generic[R]):
    """A handle on a run, wherever it executes.

    `await run.result()` returns the workflow's result, or raises an error if there is none.
    """

    def __init__(self, transport: Transport, id: str, codec: Any) -> None:
        self.id = id
        self._transport = transport
        self._codec = codec

    async def result(self, timeout: float | None = None) -> R:
        """Wait for the run to end and return its result.

        A failure is raised as the workflow's own exception where that is safe, else as RunFailed.
        RunCancelled, RunTimeout, RunParked and RunDead say how else it ended. Raise TimeoutError
        after `timeout` seconds.
        """
        end = await until_ended(self._transport, self.id, timeout)
        result: R = conclude(self.id, end, self._codec)
        return result

    async def info(self) -> RunInfo:
        """Return the run's current state. Raise UnknownRun if it does not exist."""
        found = await self._transport.get(run_path(self.id), {"brief": True})
        return RunInfo.of(run_row(found["run"]))

    def __repr__(self) -> str:
        return f"<run {self.id!r}>"


def run_path(id: str, *more: str) -> str:
    """Return the path of a run, or of something below it. Raise BadName for an unusable id."""
    parts = [check_id(id, ID_LENGTH_MAX, "run id"), *more]
    return "/v1/runs/" + "/".join(map(segment, parts))


async def until_ended(transport: Transport, id: str, timeout: float | None) -> RunOutcome:
    """Wait until a run has ended or is parked, and return its outcome.

    Raise TimeoutError after `timeout` seconds.
    """
    path = run_path(id, "result")
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout):
        while True:
            began = loop.time()
            answer = await transport.answer(
                "GET", path, params={"wait": POLL_SECONDS}, wait=POLL_SECONDS
            )
            if answer.status == 200 or answer.document["status"] == "parked":
                return _outcome(answer.document)
            if loop.time() - began < POLL_SECONDS / 2:
                # The server drains, and did not wait.
                await transport.pause(transport.policy.pause(1))


def _outcome(document: Document) -> RunOutcome:
    kind = OutcomeKind(document["status"])
    value = json_text(document["result"]) if kind is OutcomeKind.DONE else None
    return RunOutcome(kind, value, _recorded(document), document["reason"])


def _recorded(document: Document) -> str | None:
    """Return the error as the journal has it, so that the exception can be rebuilt."""
    recorded = document.get("recorded")
    if isinstance(recorded, dict) and isinstance(recorded.get("type"), str):
        return json.dumps(recorded)
    # It is masked, damaged, or of a server that does not send it.
    return error_text(document["error"])
