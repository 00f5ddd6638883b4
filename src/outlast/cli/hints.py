"""What to do next, as commands that can be pasted."""

from __future__ import annotations

import shlex

from outlast.cli.takers import Fleet
from outlast.cli.text import safe
from outlast.store.rows import RunRow
from outlast.store.verbs import EACH, ITEM


def noun(row: RunRow) -> str:
    """What it is called: items are kept as runs without a workflow."""
    return "item" if row.workflow == ITEM else "run"


def command(name: str, *words: str, store: str | None) -> str:
    """An `outlast` command on the same store. Ids are quoted for the shell."""
    place = ("--store", store) if store is not None else ()
    return "`" + safe(shlex.join(["outlast", name, *words, *place])) + "`"


def taken_up(row: RunRow, fleet: Fleet, store: str | None, to: str = "go on") -> str:
    """How a run that nobody holds comes to be executed: by itself, or by what to do, as a sentence."""
    if row.workflow == ITEM:
        return f"Whoever consumes queue {row.queue} takes it."
    if row.workflow == EACH:
        return f"To {to}, make the same call again, in its program: what is done is skipped."
    if fleet.takes(row):
        return "A living worker knows it, and takes it when it is due."
    run = command("run", f"FILE:{row.workflow}", "--id", row.id, store=store)
    queue = ("--queue", row.queue) if row.queue != "default" else ()
    worker = command("worker", "FILE", *queue, store=store)
    return f"To {to}, start its program again, or {run}, or a worker that knows it: {worker}."
