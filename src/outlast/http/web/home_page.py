"""Show what needs attention, and whether work makes progress."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from starlette.datastructures import QueryParams

from outlast.http.web.inner_api import CallerApi
from outlast.http.web.rendering import Page, moment_of
from outlast.http.web.values import fitting

ROWS = 15
LIST_BYTES = 17_000
"""How much of the page each of its five lists may take."""
HOUR = 3600
LISTS = ("parked", "stuck", "dead", "answers")
DRAINS = 50


async def home_page(api: CallerApi, path: dict[str, str], query: QueryParams) -> Page:
    """Return the first page."""
    attention, queues, workers, drains = await asyncio.gather(
        api.get("attention", limit=ROWS),
        api.get("queues"),
        api.get("workers"),
        api.get("drains", limit=DRAINS),
    )
    now = attention["now"]
    known = [queue for queue in queues["queues"] if "ready" in queue]
    facts = {
        "now": now,
        **{name: _some(attention[name]) for name in LISTS},
        "totals": _totals(known),
        "recent": _recent(attention["last_hour"]),
        "recovery": _recovery(drains["drains"], (moment_of(now) or 0.0) - HOUR),
        "queues": fitting(sorted(known, key=_load, reverse=True)[:12], LIST_BYTES, ("name",)),
        "states": Counter(
            one["state"] for one in workers["workers"] if "state" in one and one["queues"]
        ),
    }
    return Page("Home", "home.html", facts)


def _some(found: dict[str, Any]) -> dict[str, Any]:
    """Return the runs of a list that fit into the page, and whether there are more."""
    runs = fitting(found["runs"], LIST_BYTES, ("id", "id", "id"))
    return {"runs": runs, "more": found["more"] or len(runs) < len(found["runs"])}


def _load(queue: dict[str, Any]) -> tuple[Any, ...]:
    return (queue["oldest_seconds"] or 0, queue["ready"], queue["running"])


def _totals(queues: list[dict[str, Any]]) -> dict[str, int]:
    names = ("ready", "running", "parked", "dead", "stuck")
    totals = {name: sum(queue[name] for queue in queues) for name in names}
    return {**totals, "parked": totals["parked"] - totals["stuck"]}


def _recent(hour: dict[str, Any]) -> dict[str, Any]:
    """Return how the runs of the last hour ended."""
    ended = hour["ended"]
    return {
        **hour,
        "total": sum(ended.values()),
        "failed": ended.get("failed", 0) + ended.get("dead", 0),
    }


def _recovery(drains: list[dict[str, Any]], after: float) -> dict[str, Any]:
    """Return how fast interrupted runs continued, over the drains of the last hour."""
    latest = [one for one in drains if (moment_of(one.get("began")) or 0.0) >= after]
    found = [one["recoveries"] for one in latest if one.get("recoveries")]
    return {
        "count": int(sum(one.get("count", 0) for one in found)),
        "p95": max((one.get("p95", 0.0) for one in found), default=None),
    }
