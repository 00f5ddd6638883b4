"""Show what needs a person, and whether work gets done."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from starlette.datastructures import QueryParams

from outlast.http.web.inner_api import CallerApi
from outlast.http.web.rendering import Page
from outlast.http.web.values import fitting

ROWS = 15
LIST_BYTES = 17_000
"""How much of the page each of its five lists may take."""
HOUR = 3600
SAMPLE = 1_000
"""How many runs of the last hour are counted. With more, the page says so."""


async def home_page(api: CallerApi, path: dict[str, str], query: QueryParams) -> Page:  # noqa: ARG001
    """Return the first page."""
    parked, dead, undoing, waiting, recent, queues, workers, drains = await asyncio.gather(
        api.get("runs", status="parked", items="all", limit=ROWS),
        api.get("runs", status="dead", items="all", limit=ROWS),
        api.get("runs", status="parked", undoing="true", items="all", limit=ROWS),
        api.get("runs", status="waiting", limit=100),
        api.get("runs", newer_than=HOUR, items="all", limit=SAMPLE),
        api.get("queues"),
        api.get("workers"),
        api.get("drains", limit=50),
    )
    stuck = {run["id"] for run in undoing["runs"]}
    answers = [run for run in waiting["runs"] if run.get("waiting_for")]
    known = [queue for queue in queues["queues"] if "ready" in queue]
    facts = {
        "now": waiting["now"],
        "parked": _some([run for run in parked["runs"] if run["id"] not in stuck]),
        "stuck": _some(undoing["runs"]),
        "dead": _some(dead["runs"]),
        "answers": _some(answers[:ROWS]),
        "totals": _totals(known),
        "recent": _recent(recent),
        "recovery": _recovery(drains["drains"]),
        "queues": fitting(sorted(known, key=_load, reverse=True)[:12], LIST_BYTES, ("name",)),
        "states": Counter(
            one["state"] for one in workers["workers"] if "state" in one and one["queues"]
        ),
    }
    return Page("Home", "home.html", facts)


def _some(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return fitting(runs, LIST_BYTES, ("id", "id", "id"))


def _load(queue: dict[str, Any]) -> tuple[Any, ...]:
    return (queue["oldest_seconds"] or 0, queue["ready"], queue["running"])


def _totals(queues: list[dict[str, Any]]) -> dict[str, int]:
    names = ("ready", "running", "waiting", "parked", "dead", "stuck", "ended_last_minute")
    return {name: sum(queue[name] for queue in queues) for name in names}


def _recent(document: dict[str, Any]) -> dict[str, Any]:
    """Count how the runs of the last hour ended."""
    runs = [run for run in document["runs"] if "status" in run]
    counts = Counter(run["status"] for run in runs)
    return {
        "submitted": len(runs),
        "is_more": document["next"] is not None,
        "done": counts["done"],
        "failed": counts["failed"] + counts["dead"],
        "deaths": sum(run["deaths"] for run in runs),
        "interruptions": sum(run["interruptions"] for run in runs),
    }


def _recovery(drains: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how fast interrupted runs went on, over the latest drains."""
    found = [one["recoveries"] for one in drains if one.get("recoveries")]
    return {
        "count": int(sum(one.get("count", 0) for one in found)),
        "p95": max((one.get("p95", 0.0) for one in found), default=None),
    }
