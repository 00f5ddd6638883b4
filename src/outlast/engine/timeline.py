"""Build the document of a run's timeline: what `outlast show` prints, for programs."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from outlast.codec.documents import value_of
from outlast.codec.text import iso
from outlast.engine.documents import entry_document, folded_document, waits_of, worker_document
from outlast.engine.entry_text import TEXT_MAX, describe_entry
from outlast.engine.executing_steps import (
    ENDING_KINDS,
    ExecutingStep,
    executing_document,
    not_ended,
)
from outlast.engine.journal_view import History
from outlast.execution.call_site import child_id
from outlast.store.fleet import Fleet
from outlast.store.rows import NEVER, Entry, RunRow

DECIDED_BY = frozenset({"retry", "resume", "decision"})
"""Kinds of entries that record who asked for them."""
REPLAYED = frozenset({"step", "inner"})
"""Kinds of entries with a result that took time."""


def timeline_document(
    history: History,
    fleet: Fleet,
    children: Sequence[RunRow],
    executing: Sequence[ExecutingStep],
    *,
    after: int,
    limit: int,
    size_max: int,
    id_length_max: int,
    progress: Mapping[str, str],
) -> dict[str, Any]:
    """Return a run with a page of its timeline, its workers, and what it waits for.

    The page has at most `limit` entries after the number `after`, and ends earlier once these have
    `size_max` characters. `progress` is what unfinished steps have saved, as JSON by key.
    """
    whole = folded_document(history, fleet.now)
    page, more = _page(history.entries, after, limit, size_max)
    began = history.row.started if history.row.started is not None else history.row.created
    workers = {one.fence: one.worker for one in history.executions}
    holder = next((one for one in fleet.workers if one.id == history.row.worker), None)
    begun = still_executing(history, executing)
    return {
        **whole,
        "now": iso(fleet.now),
        "rows": [_row(entry, history, began, workers) for entry in page],
        "next": page[-1].seq if more else None,
        "holder": None
        if holder is None
        else worker_document(holder, fleet.state(holder), fleet.now),
        "has_worker": fleet.takes(history.row),
        "executing": [executing_document(one) for one in begun],
        "incidents": _incidents(history),
        "waits": _waits(history, children, {one.key for one in begun}),
        "children": _children(history, children, id_length_max),
        "progress": [{"key": key, "value": value_of(text)} for key, text in progress.items()],
    }


def still_executing(history: History, steps: Sequence[ExecutingStep]) -> tuple[ExecutingStep, ...]:
    """Return those of the recorded steps that the journal has no end of."""
    ended = {entry.key: entry.at for entry in history.entries if entry.kind in ENDING_KINDS}
    return not_ended(steps, ended)


def size_of(entry: Entry) -> int:
    """Return how many characters an entry records."""
    return sum(len(text) for text in (entry.args, entry.value, entry.error) if text is not None)


def _page(
    entries: Sequence[Entry], after: int, limit: int, size_max: int
) -> tuple[list[Entry], bool]:
    """Return at least one entry after a number, if there are any, and whether there are more."""
    following = [entry for entry in entries if entry.seq > after]
    page: list[Entry] = []
    size = 0
    for entry in following[:limit]:
        size += size_of(entry)
        if page and size > size_max:
            break
        page.append(entry)
    return page, len(page) < len(following)


def _row(
    entry: Entry, history: History, began: float, workers: Mapping[int, str]
) -> dict[str, Any]:
    text, _ = describe_entry(entry, history, TEXT_MAX, began)
    return {
        **entry_document(entry, entry.seq in history.void),
        "started": None if entry.seconds is None else iso(entry.at - entry.seconds),
        "worker": workers.get(entry.fence),
        "by": _by(entry),
        "words": text,
    }


def _by(entry: Entry) -> str | None:
    facts = value_of(entry.value) if entry.kind in DECIDED_BY else None
    by = facts.get("by") if isinstance(facts, dict) else None
    return by if isinstance(by, str) else None


def _incidents(history: History) -> list[dict[str, Any]]:
    """Return each death and interruption, with what it cost and what it did not."""
    found = []
    kept = 0.0
    """Seconds of the results that are recorded so far, and that replay does not repeat."""
    last = history.row.created
    for entry in history.entries:
        if entry.seq not in history.ends:
            last = entry.at
            if entry.kind in REPLAYED and entry.seq not in history.void and entry.error is None:
                kept += entry.seconds or 0.0
            continue
        executions = sorted(history.executions, key=lambda one: one.fence)
        ended = [one for one in executions if one.fence <= abs(entry.fence)]
        following = next((one for one in executions if one.fence > abs(entry.fence)), None)
        since = max(last, ended[-1].began) if ended else last
        found.append(
            {
                "kind": entry.kind,
                "seq": entry.seq,
                "at": iso(entry.at),
                "lost": history.ends[entry.seq].worker,
                "next": history.ends[entry.seq].next_worker,
                "resumed": None if following is None else iso(following.began),
                "lost_seconds": None
                if following is None
                else round(max(0.0, following.began - since), 3),
                "saved_seconds": round(kept, 3),
            }
        )
    return found


def _waits(
    history: History, children: Sequence[RunRow], begun: Container[str]
) -> list[dict[str, Any]]:
    """Return what a run that has not ended waits for. `begun` are the steps that execute."""
    row = history.row
    if row.ended is not None:
        return []
    found = [_wait("message", name) for name in waits_of(row)]
    if row.status == "waiting" and row.due < NEVER:
        found.append(_wait("timer", None, row.due))
    for key, entry in history.retrying.items():
        if key in begun:
            continue
        due = value_of(entry.value)
        found.append(_wait("retry", key, due if isinstance(due, (int, float)) else None))
    return found + [_wait("child", child.id) for child in children if child.ended is None]


def _wait(kind: str, name: str | None, until: float | None = None) -> dict[str, Any]:
    return {"kind": kind, "name": name, "until": iso(until)}


def _children(
    history: History, children: Sequence[RunRow], id_length_max: int
) -> list[dict[str, Any]]:
    parent = history.row.id
    ended = (entry for entry in history.entries if entry.kind == "child")
    keys = {child_id(parent, entry.key, id_length_max): entry.key for entry in ended}
    return [
        {
            "id": child.id,
            "workflow": child.workflow,
            "status": child.status,
            "started": iso(child.started),
            "ended": iso(child.ended),
            "key": keys.get(child.id) or _key_in(child.id, parent),
        }
        for child in children
    ]


def _key_in(child: str, parent: str) -> str | None:
    """Return the call site in the id of a child. None if the id was shortened."""
    prefix = f"{parent}/"
    key = child.removeprefix(prefix)
    return key if child.startswith(prefix) and "…" not in key else None
