"""List runs by filters."""

from __future__ import annotations

from typing import Any

from starlette.datastructures import QueryParams

from outlast.http.web.inner_api import CallerApi
from outlast.http.web.rendering import Page
from outlast.http.web.values import fitting

ROWS = 50
PAGE_BYTES = 75_000
STATUSES = (
    *("queued", "delayed", "running", "waiting", "parked"),
    *("done", "failed", "cancelled", "dead"),
)
AGES = {"": "any time", "3600": "the last hour", "86400": "the last day", "604800": "7 days"}
ITEMS = {"": "runs", "only": "work items", "all": "runs and items"}
SWITCHES = ("undoing", "awaits_message")
ONLY_BY_LINK = ("parent", "worker")
"""Filters without a field of the form, unless a link has set them."""
TEXTS = ("workflow", "queue", "prefix", "key", "waiting_for", "parent", "worker")
LABELS = {
    "workflow": "Workflow",
    "queue": "Queue",
    "prefix": "Id begins with",
    "key": "Key",
    "waiting_for": "Waits for",
    "parent": "Parent",
    "worker": "Worker",
}


def filters_of(query: QueryParams) -> dict[str, Any]:
    """Return the filters of a query, as the API takes them. Unknown parameters are left out."""
    found: dict[str, Any] = {name: query[name] for name in TEXTS if query.get(name)}
    if status := [one for one in query.getlist("status") if one in STATUSES]:
        found["status"] = status
    if query.get("newer_than", "") in list(AGES)[1:]:
        found["newer_than"] = query["newer_than"]
    if query.get("items", "") in list(ITEMS)[1:]:
        found["items"] = query["items"]
    for name in SWITCHES:
        if query.get(name) in ("true", "false"):
            found[name] = query[name]
    return found


async def runs_page(api: CallerApi, path: dict[str, str], query: QueryParams) -> Page:
    """Return a page of runs, newest first."""
    filters = filters_of(query)
    cursor = query.get("cursor") or None
    before = query.get("before") or None
    document = await api.get("runs", limit=ROWS, cursor=cursor, before=before, **filters)
    runs = fitting(document["runs"], PAGE_BYTES, ("id", "id"))
    older: dict[str, Any] = {}
    if len(runs) < len(document["runs"]):
        older = {**filters, "before": runs[-1]["id"]}
    elif document["next"] is not None:
        older = {**filters, "cursor": document["next"]}
    facts = {
        "runs": runs,
        "older": older,
        "is_first": cursor is None and before is None,
        "filters": filters,
        "given": {**dict.fromkeys((*TEXTS, *SWITCHES, "newer_than", "items"), ""), **filters},
        "chosen": filters.get("status", []),
        "statuses": STATUSES,
        "ages": AGES,
        "kinds": ITEMS,
        "labels": LABELS,
        "by_link": ONLY_BY_LINK,
    }
    return Page("Runs", "runs.html", facts)
