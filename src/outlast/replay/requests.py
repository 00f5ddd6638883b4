"""What others want of a run, and its deadline: that it ends. It enters the journal, and then cancels the workflow's main task."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from outlast.store.rows import Entry
from outlast.store.verbs import Record

if TYPE_CHECKING:
    from outlast.replay.life import Life


def check(life: Life, cancel: str | None = None) -> None:
    """A request to cancel enters the journal here, unless it is in it already. What is being undone is not cancelled: this one was meant
    for an earlier life."""
    if life.undoing:
        return
    why = cancel if cancel is not None else life.row.cancel
    if why is not None and life.replaying:
        life.row = life.row._replace(cancel=why)
    elif why is not None:
        ask(life, {"why": why})


def ask(life: Life, request: dict[str, Any]) -> None:
    """Once a life: have the request recorded. Deferred steps wait for it, since it may cancel them."""
    if not life.cancel_asked and life.cancelling is None:
        life.cancel_asked = True
        seq = life.record("cancel", "", value=json.dumps(request))
        if life.deferred:
            life.first.add(seq)


def watch_deadline(life: Life) -> None:
    assert life.row.deadline is not None
    delay = min(max(0.0, life.row.deadline - life.now()), 86_400.0)
    life.deadline = life.host.call_later(delay, deadline_due, life)


def deadline_due(life: Life) -> None:
    if life.over is not None:
        return
    if life.row.deadline is not None and life.now() < life.row.deadline:
        watch_deadline(life)
    else:
        ask(life, {"why": "it took longer than its timeout", "timeout": True})


def cancel_main(life: Life, entry: Entry | Record) -> None:
    request = json.loads(entry.value or "{}")
    life.cancelling = str(request.get("why", ""))
    life.timed_out = bool(request.get("timeout"))
    life.cancel_seq = entry.seq
    if life.main is not None:
        life.main.cancel(life.cancelling)
