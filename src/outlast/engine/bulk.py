"""Cancel, retry, resume or prune all runs that match a filter, in batches.

Nothing records the operation: each run says what was done to it. So a repeat after a crash
continues, and with the same token it does nothing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from outlast.engine import actions
from outlast.errors import OutlastError, SettingsError, StoreError
from outlast.store.commands import Prune
from outlast.store.rows import DELAYED, RunQuery, RunRow

if TYPE_CHECKING:
    from outlast.engine.engine import Engine

PAGE = 100
"""Runs in one batch. A `Prune` by id handles all of them in one call."""
EXAMPLES_MAX = 20
ACTIVE = ("queued", "running", "waiting", "parked")


class BulkAction(StrEnum):
    """What to do to every run that matches."""

    CANCEL = "cancel"
    RETRY = "retry"
    RESUME = "resume"
    PRUNE = "prune"


BY_DEFAULT: dict[BulkAction, tuple[str, ...]] = {
    BulkAction.CANCEL: ACTIVE,
    BulkAction.RETRY: ("failed", "dead"),
    BulkAction.RESUME: ("parked",),
    BulkAction.PRUNE: ("done", "failed", "cancelled"),
}
"""The statuses that match if the filter names none."""
APPLIES: dict[BulkAction, frozenset[str]] = {
    BulkAction.CANCEL: frozenset({*ACTIVE, DELAYED, "dead"}),
    BulkAction.RETRY: frozenset({"failed", "cancelled", "dead", "parked"}),
    BulkAction.RESUME: frozenset({"parked"}),
    BulkAction.PRUNE: frozenset({"done", "failed", "cancelled", "dead"}),
}
"""The statuses of runs that the action can apply to."""


@dataclass(frozen=True, slots=True)
class BulkReport:
    """What a bulk action did, or with `dry_run` would do."""

    action: str
    dry_run: bool
    matched: int
    """How many runs matched."""
    done: int
    """How many of them were cancelled, queued again or deleted. A cancelled run may still execute
    its `finally` blocks."""
    skipped: int
    """How many could not be: they changed meanwhile, or belong to a parent."""
    examples: tuple[str, ...]
    """The ids of the first runs that matched, newest first."""
    problems: tuple[tuple[str, str], ...]
    """The ids of the first runs that were skipped, each with the reason."""
    next: int | None
    """Where to continue if the time or the limit ended it first."""


class _Count:
    def __init__(self) -> None:
        self.matched = self.done = 0
        self.examples: list[str] = []
        self.problems: list[tuple[str, str]] = []

    def report(self, action: BulkAction, dry_run: bool, cursor: int | None) -> BulkReport:
        skipped = 0 if dry_run else self.matched - self.done
        return BulkReport(
            action.value,
            dry_run,
            self.matched,
            self.done,
            skipped,
            tuple(self.examples),
            tuple(self.problems),
            cursor,
        )


def bulk_action(name: str) -> BulkAction:
    """Return the action of this name. Raise SettingsError if there is none."""
    if name not in tuple(BulkAction):
        raise SettingsError(f"action={name!r} must be one of {', '.join(BulkAction)}.")
    return BulkAction(name)


def narrowed(action: BulkAction, query: RunQuery) -> RunQuery:
    """Return the query, limited to the statuses that the action applies to.

    Raise SettingsError for a filter without a condition, or with a status that never applies.
    """
    if query._replace(limit=0, items=None, before_pk=None) == RunQuery(limit=0):
        raise SettingsError(
            f"a bulk {action} needs a condition, such as workflow=, prefix=, key= or status=."
        )
    if not query.statuses:
        return query._replace(statuses=BY_DEFAULT[action])
    if wrong := sorted(set(query.statuses) - APPLIES[action]):
        applies = ", ".join(sorted(APPLIES[action]))
        raise SettingsError(
            f"{action} never applies to {' or '.join(wrong)} runs. It applies to: {applies}"
            f"{' (during a compensation)' if action is BulkAction.RETRY else ''}."
        )
    return query


async def act_on_all(
    engine: Engine,
    action: BulkAction,
    query: RunQuery,
    *,
    why: str,
    dry_run: bool,
    limit: int | None = None,
    token: str | None = None,
    by: str | None = None,
    until: float | None = None,
) -> BulkReport:
    """Apply an action to every run that matches the query when its page is read, newest first.

    A run that the action no longer applies to is skipped and reported. Stop after `limit`
    runs, or at `until` on the loop's clock.
    """
    query = narrowed(action, query)
    if limit is not None and limit < 1:
        raise SettingsError(f"limit={limit} must be at least 1.")
    token, by = actions.checked_token(engine, token), actions.checked_by(engine, by)
    count = _Count()
    while True:
        left = PAGE if limit is None else min(PAGE, limit - count.matched)
        rows = await engine.client.read(engine.store.runs, query._replace(limit=left))
        fit = [row for row in rows if _fits(action, row)]
        count.matched += len(fit)
        count.examples += [row.id for row in fit[: EXAMPLES_MAX - len(count.examples)]]
        if not dry_run:
            await _act(engine, action, fit, count, why=why, token=token, by=by)
        if len(rows) < left:
            return count.report(action, dry_run, None)
        query = query._replace(before_pk=rows[-1].pk)
        late = until is not None and engine.loop.time() >= until
        if late or count.matched == limit:
            return count.report(action, dry_run, rows[-1].pk)


def _fits(action: BulkAction, row: RunRow) -> bool:
    """Return whether the action can apply to a run that matches the query.

    A query cannot tell that parked runs are only retried during their compensation.
    """
    return action is not BulkAction.RETRY or row.status != "parked" or row.undoing is not None


async def _act(
    engine: Engine,
    action: BulkAction,
    rows: Sequence[RunRow],
    count: _Count,
    *,
    why: str,
    token: str,
    by: str | None,
) -> None:
    if not rows:
        return
    if action is BulkAction.PRUNE:
        await _prune(engine, rows, count)
        return
    act: Callable[[str], Awaitable[object]]
    if action is BulkAction.CANCEL:
        act = partial(actions.cancel, engine, why=why, by=by)
    elif action is BulkAction.RETRY:
        act = partial(actions.retry, engine, token=token, by=by)
    else:
        act = partial(actions.resume, engine, token=token, by=by)
    outcomes = await asyncio.gather(*(act(row.id) for row in rows), return_exceptions=True)
    for row, outcome in zip(rows, outcomes, strict=True):
        if not isinstance(outcome, BaseException):
            count.done += 1
        elif isinstance(outcome, OutlastError) and not isinstance(outcome, StoreError):
            if len(count.problems) < EXAMPLES_MAX:
                count.problems.append((row.id, str(outcome)))
        else:
            raise outcome


async def _prune(engine: Engine, rows: Sequence[RunRow], count: _Count) -> None:
    # A run that ended in this very moment counts as ended before the next one.
    before, ids = engine.store.now() + 1.0, tuple(row.id for row in rows)
    deleted = await engine.writer.execute(Prune(before, len(ids), ids=ids))
    count.done += deleted
    if deleted == len(ids) or len(count.problems) >= EXAMPLES_MAX:
        return
    for row in rows:
        if (kept := await engine.client.read(engine.store.run, row.id)) is not None:
            reason = "it is part of a run that has not ended, or is being compensated"
            reason = reason if kept.ended is not None else f"it is {kept.status} again"
            count.problems.append((row.id, f"run {row.id!r} stays: {reason}."))
            if len(count.problems) >= EXAMPLES_MAX:
                return
