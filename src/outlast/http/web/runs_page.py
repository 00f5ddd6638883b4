"""List runs by filters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.datastructures import QueryParams

from outlast.engine.bulk import APPLIES, BulkAction
from outlast.http.rest.problems import Problem
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
    """Return the filters of a query, as the API takes them. Unknown parameters are left out.

    Raise Problem 422 for a value that a filter does not have.
    """
    found: dict[str, Any] = {name: query[name] for name in TEXTS if query.get(name)}
    if status := [_one_of(STATUSES, "status", one) for one in query.getlist("status") if one]:
        found["status"] = status
    choices = {"newer_than": AGES, "items": ITEMS, **dict.fromkeys(SWITCHES, ("true", "false"))}
    for name, allowed in choices.items():
        if given := query.get(name):
            found[name] = _one_of(allowed, name, given)
    return found


def _one_of(allowed: Iterable[str], name: str, given: str) -> str:
    if given in allowed:
        return given
    choices = ", ".join(one for one in allowed if one)
    raise Problem(
        422, f"{given[:50]!r} is not a value of the filter {name}.", next=f"Use one of: {choices}."
    )


def _actions(statuses: list[str]) -> tuple[list[BulkAction], list[BulkAction]]:
    """Return the actions for selected runs, and those for all that match."""
    given = set(statuses)
    selected: list[BulkAction] = [
        action
        for action, applies in APPLIES.items()
        if action is not BulkAction.PRUNE and (not given or given & applies)
    ]
    return selected, [action for action in selected if given <= APPLIES[action]]


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
    selected, matching = _actions(filters.get("status", []))
    facts = {
        "runs": runs,
        "actions_on_selected": selected,
        "actions_on_matching": matching if filters else [],
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
