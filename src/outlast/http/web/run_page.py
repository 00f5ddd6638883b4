"""Show a run: its timeline, what it waits for, and what was recorded."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.datastructures import QueryParams

from outlast.http.rest.problems import Problem
from outlast.http.web.inner_api import CallerApi, Refusal
from outlast.http.web.rendering import Page, moment_of
from outlast.http.web.timeline_rows import timeline_of

ROWS = 50


async def run_page(api: CallerApi, path: dict[str, str], query: QueryParams) -> Page:
    """Return the page of a run, with one page of its timeline."""
    id = path["id"]
    after = _number(query.get("after", "0"))
    try:
        document, streams = await asyncio.gather(
            api.get("runs", id, "timeline", after=after, limit=ROWS),
            api.get("runs", id, "streams"),
        )
    except Refusal as refusal:
        if refusal.status != 413:
            raise
        return await _without_timeline(api, id, after)
    run = document["run"]
    facts = {
        "run": run,
        "document": document,
        "batch": document.get("items"),
        "now": document["now"],
        "timeline": timeline_of(document),
        "received": _received(document),
        "streams": streams["streams"],
        "after": after,
        "next": document["next"],
        "is_queued": run["status"] == "queued",
        "took": _took(run, document["now"]),
        "actions": actions_of(run, [*document["undecided"], *document["questions"]]),
        "open_effects": [
            one for one in document["effects"] or () if one["place"] in document["undecided"]
        ],
    }
    return Page(run["id"], "run.html", facts)


async def _without_timeline(api: CallerApi, id: str, after: int) -> Page:
    """Return a page of the journal of a run that is too long for a timeline."""
    brief, page = await asyncio.gather(
        api.get("runs", id, brief="true"),
        api.get("runs", id, "journal", after=after, limit=ROWS),
    )
    run = brief["run"]
    facts = {
        "run": run,
        "entries": page["entries"],
        "next": page["next"],
        "after": after,
        "actions": actions_of(run, []),
    }
    return Page(run["id"], "journal.html", facts)


def _received(document: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the messages that entries have received, by the numbers of these entries."""
    mail = {message["number"]: message for message in document["messages"]}
    return {
        entry["seq"]: mail[entry["value"]]
        for entry in document["rows"]
        # A masked value is not a number.
        if entry["kind"] == "message" and isinstance(entry["value"], int) and entry["value"] in mail
    }


def actions_of(run: dict[str, Any], undecided: list[str]) -> list[str]:
    """Return the actions on a run in this status, the most likely first."""
    status = run["status"]
    if status == "parked":
        return [*(["decide"] if undecided else []), "resume", "message", "cancel"]
    if status in ("failed", "cancelled"):
        return ["retry"]
    if status == "dead":
        return ["retry", "cancel"]
    if status == "done":
        return []
    return ["message", "cancel"]


async def entry_page(api: CallerApi, path: dict[str, str], query: QueryParams) -> Page:
    """Return the page of one entry, with as much of its values as a page may have."""
    id, entry = path["id"], await read_entry(api, path)
    return Page(f"Entry {entry['seq']} of {id}", "entry.html", {"id": id, "entry": entry})


async def read_entry(api: CallerApi, path: dict[str, str]) -> dict[str, Any]:
    """Return one entry of a journal. Raise Problem 404 if there is none."""
    seq = _number(path["seq"])
    page = await api.get("runs", path["id"], "journal", after=max(0, seq - 1), limit=1)
    entry: dict[str, Any] | None = next(iter(page["entries"]), None)
    if entry is None or entry["seq"] != seq:
        raise no_page()
    return entry


def no_page() -> Problem:
    """Return the problem of an address without a page."""
    return Problem(404, "There is no such page.", next="Use a link in this UI.")


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 15:
        raise no_page()
    return int(text)


def _took(run: dict[str, Any], now: str) -> float | None:
    # A queued run executes nothing now, even if it has started before.
    began = moment_of(run["created"] if run["status"] == "queued" else run["started"])
    ended = moment_of(run["ended"]) or moment_of(now)
    return None if began is None or ended is None else ended - began
