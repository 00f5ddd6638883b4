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
from outlast.store.rows import NEVER, QueueRow, RunRow


def noun(row: RunRow) -> str:
    """Return "item" or "run": items are stored as runs without a workflow."""
    return "item" if row.workflow == ITEM else "run"


def command(name: str, *arguments: str, store: str | None) -> str:
    """Return an `outlast` command on the same store, with ids quoted and passwords masked."""
    option = "--server" if is_url(store) else "--store"
    place = (option, masked(store)) if store is not None else ()
    return "`" + safe(shlex.join(["outlast", name, *arguments, *place])) + "`"


def resume_queue(row: QueueRow, store: str | None) -> str | None:
    """Return the command that resumes a queue, or None if it is not paused."""
    if not row.gives_nothing:
        return None
    options = ["--resume"] if row.paused else []
    options += ["--no-concurrency"] if row.concurrency_max == 0 else []
    return command("limit", row.name, *options, store=store)


def pauses_of(row: RunRow, fleet: Fleet, store: str | None) -> list[str]:
    """Return a sentence for each pause that keeps workers from claiming the run."""
    found = [
        (f"Queue {queue.name}", resume_queue(queue, store))
        for queue in fleet.paused_queues
        if queue.name == row.queue
    ]
    if row.workflow in fleet.paused_workflows:
        resume = command("workflow", "resume", row.workflow, store=store)
        found.append((f"Workflow {row.workflow}", resume))
    return [
        f"{what} is paused, so no worker claims the {noun(row)}. To resume it, run {resume}."
        for what, resume in found
    ]


def taken_up(row: RunRow, fleet: Fleet, store: str | None, to: str = "continue") -> str:
    """Say how an unheld run gets executed: by itself, or by what the user can do."""
    if row.workflow == EACH:
        return f"To {to}, make the same call again in its program: finished items are skipped."
    pauses = " ".join(pauses_of(row, fleet, store))
    if pauses and (fleet.takes(row) or row.workflow == ITEM):
        return pauses
    if row.workflow == ITEM:
        return f"The next consumer of queue {row.queue} takes it."
    if fleet.takes(row):
        if row.status == "waiting":
            return "A live worker has this workflow and will claim the run after the wait."
        due = " when it is due" if fleet.now < row.due < NEVER else ""
        return f"A live worker has this workflow and will claim the run{due}."
    run = command("run", f"FILE:{row.workflow}", "--id", row.id, store=store)
    queue = ("--queue", row.queue) if row.queue != "default" else ()
    worker = command("worker", "FILE", *queue, store=store)
    before = f"{pauses} " if pauses else ""
    return (
        f"{before}No live worker claims the run. To {to}, start its program again, run {run}, or "
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
