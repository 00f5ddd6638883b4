"""List runs, journals, sessions and more, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from outlast.api.run_filters import RunFilters, age_seconds, check_filters, statuses_of
from outlast.client.journal_rows import entry_row
from outlast.client.rows import Document, limiter_of
from outlast.client.run import run_path
from outlast.client.transport import Transport
from outlast.engine.limiters import LimiterInfo
from outlast.store.rows import Entry

PAGE = 1_000
ITEMS = {False: "no", True: "only", None: "all"}
"""The values of the HTTP API's `items`: which plain work items to list."""


def run_conditions(filters: RunFilters) -> dict[str, Any]:
    """Return the conditions of a list of runs as the HTTP API takes them."""
    check_filters(filters)
    conditions = {
        **filters,
        "status": statuses_of(filters),
        # Every id begins with the empty text.
        "prefix": filters.get("prefix") or None,
        "items": ITEMS[filters.get("items", False)],
        "older_than": age_seconds(filters.get("older_than")),
        "newer_than": age_seconds(filters.get("newer_than")),
    }
    return {name: value for name, value in conditions.items() if value is not None}


async def run_documents(
    transport: Transport, conditions: Document, limit: int, before: str | None
) -> tuple[list[Document], bool]:
    """Return the documents of at most `limit` runs, and whether there are more."""
    found: list[Document] = []
    cursor: str | None = None
    while len(found) < limit:
        page = {"limit": min(PAGE, limit - len(found)), "before": before, "cursor": cursor}
        answer = await transport.get("/v1/runs", {**conditions, **page})
        found += answer["runs"]
        cursor = answer["next"]
        if cursor is None:
            return found, False
    return found, cursor is not None


async def journal(transport: Transport, id: str) -> list[Entry]:
    """Return every entry of a run's journal."""
    path = run_path(id, "journal")
    return [entry_row(one) async for one in _pages(transport, path, "entries")]


async def timeline(transport: Transport, id: str) -> tuple[Document, list[Document]]:
    """Return what `outlast show` prints: the document, and the rows of all its pages."""
    path = run_path(id, "timeline")
    first = await transport.get(path)
    rows = list(first["rows"])
    if first["next"] is not None:
        rows += [one async for one in _pages(transport, path, "rows", first["next"])]
    return first, rows


async def session_documents(
    transport: Transport,
    space: str,
    prefix: str,
    limit: int,
    *,
    order: str = "updated",
    after: str | None = None,
) -> tuple[list[Document], bool]:
    """Return the documents of at most `limit` sessions, and whether there are more."""
    found: list[Document] = []
    cursor = after
    while len(found) < limit:
        count = min(PAGE, limit - len(found))
        page: dict[str, Any] = {"prefix": prefix, "limit": count, "order": order, "after": cursor}
        answer = await transport.get(f"/v1/{space}s", page)
        found += answer["sessions"]
        cursor = answer["next"]
        if cursor is None:
            return found, False
    return found, cursor is not None


async def _pages(
    transport: Transport, path: str, name: str, after: int = 0
) -> AsyncIterator[Document]:
    following: int | None = after
    while following is not None:
        page = await transport.get(path, {"after": following})
        for one in page[name]:
            yield one
        following = page["next"]


async def limiters(transport: Transport) -> list[LimiterInfo]:
    """Return all limiters, ordered by name. Damaged ones are left out."""
    found = await transport.get("/v1/limiters")
    return [limiter_of(one) for one in found["limiters"]]
