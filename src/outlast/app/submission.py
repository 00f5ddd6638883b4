"""Queueing runs and items: all of them in one commit, or none, and waiting for room where a queue is full."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from outlast.errors import Backpressure, Conflict, LimitExceeded, SettingsError
from outlast.store.verbs import CONFLICT, Refused, Submit, SubmitMany, Submitted

if TYPE_CHECKING:
    from outlast.app.house import House

PRIORITY_MAX = 1_000_000
LOOK_SECONDS = 0.25
"""How often who waits for room looks: a claim, which makes it, rings no bell."""


def check_seconds(what: str, seconds: float) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf:
        raise SettingsError(f"{what}={seconds!r} must be a number of seconds, 0 or more, and finite.")


async def enqueue(house: House, runs: list[Submit], wait: float) -> list[Submitted]:
    """Backpressure if there is no room within `wait` seconds; at once if there never can be. Nothing is written then."""
    if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not wait >= 0:
        raise SettingsError(f"wait={wait!r} must be a number of seconds, 0 or more.")
    for run in runs[:1]:  # they have these in common
        check_seconds("delay", run.delay)
        if type(run.priority) is not int or abs(run.priority) > PRIORITY_MAX:
            raise SettingsError(f"priority={run.priority!r} must be a whole number within ±{PRIORITY_MAX:,}.")
    if not runs:
        return []
    if len(runs) > house.settings.submit_many_max:
        raise LimitExceeded(
            "submit_many_max", house.settings.submit_many_max, len(runs), "runs in one commit"
        )
    until = house.loop.time() + wait
    while True:
        seen = house.changes.count
        outcome = await house.writer.ask(runs[0] if len(runs) == 1 else SubmitMany(tuple(runs)))
        if not isinstance(outcome, Refused):
            return outcome if isinstance(outcome, list) else [outcome]
        if outcome.why == CONFLICT:
            row = await house.read(house.store.run, outcome.detail)
            there = (
                f"{row.workflow}({row.args})"[:500] if row is not None else "something else in the same batch"
            )
            asked = next(run for run in reversed(runs) if run.id == outcome.detail)
            raise Conflict(outcome.detail, there, f"{asked.workflow}({asked.args})"[:500])
        depth, limit, needed = map(int, outcome.detail.split("/"))
        left = until - house.loop.time()
        if left <= 0 or needed > limit:
            raise Backpressure(runs[0].queue, depth, limit)
        await house.changes.next(min(left, LOOK_SECONDS), seen)
