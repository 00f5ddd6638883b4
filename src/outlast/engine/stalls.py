"""Detect a step that blocks the event loop: log it, count it, and record it for other processes.

A thread watches the loop's ticks. When they stop for longer than `stall_warn` seconds, it finds out
what the loop's thread executes and records that at once, because the process may be killed before
the loop moves again. If the loop does move, it records how long the stall took.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import sys
import threading
import time
from types import FrameType
from typing import Any, NamedTuple

from outlast.engine.in_flight_registry import InFlight
from outlast.engine.registration import WorkerRegistration
from outlast.engine.store_client import StoreClient
from outlast.errors import StoreError
from outlast.execution.run_loop import RunLoop
from outlast.execution.source_lines import Line, is_users, location
from outlast.execution.step_execution import BODY
from outlast.store.commands import UpdateSession
from outlast.store.fleet import STALLS, STALLS_KEPT_SECONDS
from outlast.telemetry.meters import Meters

log = logging.getLogger("outlast.worker")

STEPS_MAX = 20
"""Maximum number of recorded steps per worker. A step that blocks does so again."""
RECORD_SECONDS = 5.0
"""How long the watching thread waits until an ongoing stall is recorded."""


class Culprit(NamedTuple):
    """What the loop executed during a stall."""

    what: str
    workflow: str
    step: str
    line: str
    remedy: str
    facts: dict[str, Any]


class Stalls:
    """Watch one event loop from a thread."""

    def __init__(
        self,
        client: StoreClient,
        registration: WorkerRegistration,
        in_flight: InFlight,
        meters: Meters,
        warn_seconds: float,
    ) -> None:
        self._client = client
        self._registration = registration
        self._in_flight = in_flight
        self._meters = meters
        self._loop = asyncio.get_running_loop()
        self._warn = warn_seconds
        self._tick_seconds = self._warn / 4
        self._seen = time.monotonic()
        self._culprit: Culprit | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stop = threading.Event()
        self._thread_id = 0
        self._counts: dict[str, int] = {}

    def start(self) -> None:
        """Watch the loop that calls this. Do nothing if `stall_warn` is 0."""
        if self._warn > 0:
            self._thread_id = threading.get_ident()
            self._tick()
            threading.Thread(target=self._watch, name="outlast-stalls", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()
        if self._timer is not None:
            self._timer.cancel()

    # -- on the loop

    def _tick(self) -> None:
        now = time.monotonic()
        seconds, self._seen = now - self._seen - self._tick_seconds, now
        culprit, self._culprit = self._culprit, None
        if culprit is not None:
            self._record(culprit, seconds)
        self._timer = self._loop.call_later(self._tick_seconds, self._tick)

    def _record(self, culprit: Culprit, seconds: float) -> None:
        """Count a stall that is over, and record it for `outlast workers` and `outlast doctor`."""
        log.warning(
            "The event loop runs again after %.1f s, in which %s blocked it.",
            seconds,
            culprit.what,
            extra=culprit.facts,
        )
        self._meters.stalled(culprit.workflow, culprit.step, seconds)
        keep = self._entry(culprit, seconds)
        if keep is not None:
            name = culprit.step or culprit.workflow
            self._counts[name] = self._counts.get(name, 0) + 1
            self._client.writer.enqueue(keep, lambda *_: None)

    def _entry(self, culprit: Culprit, seconds: float) -> UpdateSession | None:
        """Return the session update that records a stall, or None if it is not kept."""
        name = culprit.step or culprit.workflow
        if not name or (name not in self._counts and len(self._counts) >= STEPS_MAX):
            return None
        count = self._counts.get(name, 0) + 1
        value = {
            "count": count,
            "seconds": round(seconds, 3),
            "at": self._client.store.now(),
            "line": culprit.line,
        }
        return UpdateSession(
            self._registration.id,
            secrets.token_hex(8),
            {name: json.dumps(value)},
            STALLS_KEPT_SECONDS,
            space=STALLS,
        )

    # -- in the thread that watches

    def _watch(self) -> None:
        looked = time.monotonic()
        while not self._stop.wait(self._tick_seconds) and not self._loop.is_closed():
            now = time.monotonic()
            # A paused process, or a machine without CPU time, is not the step's fault.
            paused, looked = now - looked > self._warn, now
            seconds = now - self._seen - self._tick_seconds
            if seconds <= self._warn or paused or self._culprit is not None:
                continue
            culprit = self._find_culprit()
            if culprit is not None and now - self._seen - self._tick_seconds > self._warn:
                self._culprit = culprit
                log.warning(
                    "The event loop has been blocked for %.1f s: %s blocks it at %s. "
                    "Nothing else in this process can run until it returns. %s",
                    seconds,
                    culprit.what,
                    culprit.line,
                    culprit.remedy,
                    extra=culprit.facts,
                )
                self._record_now(culprit, seconds)
                looked = time.monotonic()

    def _record_now(self, culprit: Culprit, seconds: float) -> None:
        """Record an ongoing stall. The loop overwrites the entry when it moves again."""
        keep = self._entry(culprit, seconds)
        if keep is None:
            return
        try:
            self._client.writer.execute_urgent(keep, timeout=RECORD_SECONDS)
        except StoreError as error:
            log.warning(
                "Could not record that the event loop is blocked (%s). "
                "`outlast workers` shows it when the loop runs again.",
                error,
                extra=culprit.facts,
            )

    def _find_culprit(self) -> Culprit | None:
        """Return what the loop's thread executes now, or None if the loop executes no task."""
        stack = _frames(sys._current_frames().get(self._thread_id))
        for frame in stack:
            if frame.f_code is RunLoop.pump.__code__:
                execution = frame.f_locals["self"].execution
                what = f"workflow {execution.workflow.name} in run {execution.id}"
                remedy = "Move what blocks into a step, as a plain `def`: it executes in a thread."
                return Culprit(
                    what, execution.workflow.name, "", _line(stack), remedy, execution.log_fields()
                )
        task = asyncio.current_task(self._loop)
        if task is None:
            return None
        body = next(
            (
                execution.steps.tasks[task]
                for execution in list(self._in_flight.executions.values())
                if task in execution.steps.tasks
            ),
            None,
        )
        # A task that the step has created. Needs Python 3.12.
        if body is None and hasattr(task, "get_context"):
            body = task.get_context().get(BODY)
        if body is None:
            remedy = "Execute what blocks in a thread (asyncio.to_thread)."
            return Culprit(f"task {task.get_name()}", "", "", _line(stack), remedy, {})
        execution, outer = body.execution, body.outer
        what = f"{outer.kind} {outer.key} of run {execution.id}"
        remedy = (
            "Write it as `def` instead of `async def`, and call it with `await NAME.aio(...)`: "
            "it then executes in a thread."
        )
        facts = execution.log_fields(outer.key, outer.attempt)
        return Culprit(what, execution.workflow.name, outer.name, _line(stack), remedy, facts)


def _frames(frame: FrameType | None) -> list[FrameType]:
    """Return a stack, innermost first."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _line(stack: list[FrameType]) -> str:
    """Return the innermost line of the user's code, or of any code if there is none."""
    users = next((frame for frame in stack if is_users(frame)), stack[0] if stack else None)
    if users is None:
        return "an unknown line"
    line: Line = (users.f_code, users.f_lineno)
    return location(line)
