"""What to do next, as commands that can be pasted."""

from __future__ import annotations

import shlex

from outlast.cli.text import safe
from outlast.store.rows import RunRow


def command(name: str, *words: str, store: str | None) -> str:
    """An `outlast` command on the same store. Ids are quoted for the shell."""
    place = ("--store", store) if store is not None else ()
    return "`" + safe(shlex.join(["outlast", name, *words, *place])) + "`"


def go_on(row: RunRow, store: str | None) -> str:
    """How a queued run goes on: its program again, or this."""
    words = [f"FILE:{row.workflow}", "--id", row.id]
    return f"start its program again, or {command('run', *words, store=store)}"
