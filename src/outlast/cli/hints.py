"""Suggest what to do next, as commands that can be pasted."""

from __future__ import annotations

import shlex

from outlast.cli.server import is_url
from outlast.cli.text import one_line, safe
from outlast.codec.documents import value_of
from outlast.engine.effect_text import verdict
from outlast.errors.reasons import DIVERGED, EXHAUSTED, STUCK, UNKNOWN
from outlast.settings.redaction import masked
from outlast.store.commands import EACH, ITEM
from outlast.store.fleet import Fleet
from outlast.store.rows import RunRow


def noun(row: RunRow) -> str:
    """Return "item" or "run": items are stored as runs without a workflow."""
    return "item" if row.workflow == ITEM else "run"


def command(name: str, *arguments: str, store: str | None) -> str:
    """Return an `outlast` command on the same store, with ids quoted and passwords masked."""
    option = "--server" if is_url(store) else "--store"
    place = (option, masked(store)) if store is not None else ()
    return "`" + safe(shlex.join(["outlast", name, *arguments, *place])) + "`"


def taken_up(row: RunRow, fleet: Fleet, store: str | None, to: str = "continue") -> str:
    """Say how an unheld run gets executed: by itself, or by what the user can do."""
    if row.workflow == ITEM:
        return f"The next consumer of queue {row.queue} takes it."
    if row.workflow == EACH:
        return f"To {to}, make the same call again in its program: finished items are skipped."
    if fleet.takes(row):
        when = "as soon as the wait is over" if row.status == "waiting" else "when it is due"
        return f"A live worker has this workflow and claims the run {when}."
    run = command("run", f"FILE:{row.workflow}", "--id", row.id, store=store)
    queue = ("--queue", row.queue) if row.queue != "default" else ()
    worker = command("worker", "FILE", *queue, store=store)
    return (
        f"No live worker claims the run. To {to}, start its program again, run {run}, or "
        f"start a worker: {worker}."
    )


def waits_for_a_person(row: RunRow) -> bool:
    """Return whether the run is parked because of an effect or a budget.

    Its reason then starts with a prefix of its own (`outlast.execution.release`).
    """
    return row.status == "parked" and (row.reason or "").startswith((UNKNOWN, STUCK, EXHAUSTED))


def diverged(row: RunRow) -> bool:
    """Return whether the run is parked because its code does not match its journal."""
    return row.status == "parked" and (row.reason or "").startswith(DIVERGED)


def short_reason(row: RunRow) -> str:
    """Return the row's reason, without the commands at its end that `show` prints by itself."""
    reason = row.reason or ""
    if diverged(row):
        return "diverged: " + one_line(reason.partition(" Restore the old code")[0])
    cause, _, _ = reason.rpartition(" Run `outlast ")
    return one_line(cause if cause and waits_for_a_person(row) else reason)


def becomes(row: RunRow) -> str:
    """Return how a run that is being compensated will end."""
    facts = value_of(row.undoing)
    return verdict(facts if isinstance(facts, dict) else {}, None)
