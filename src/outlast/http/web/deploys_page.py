"""Show drains: which workers left, when, and what became of their work."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from starlette.datastructures import QueryParams

from outlast.http.web.inner_api import CallerApi
from outlast.http.web.rendering import Page, moment_of
from outlast.http.web.time_axis import Place, TimeAxis
from outlast.http.web.values import fitting

DRAINS = 60
PAGE_BYTES = 75_000
GAP_SECONDS = 120.0
"""Drains that begin within this time of another's end belong to the same deploy."""
LAYERS = ("coordinate", "boundary", "checkpoint", "exit")
COUNTS = {
    "completed": "completed",
    "released": "released",
    "waiting": "waiting",
    "checkpointed": "checkpointed",
    "not_started": "not started",
}
"""What became of the work that a worker held, and how the page calls it."""


class Drain(NamedTuple):
    report: dict[str, Any]
    began: float
    ended: float
    bars: list[tuple[Place, str]]
    """Each layer, from the end of the one before."""


class Deploy(NamedTuple):
    """Drains that happened together."""

    drains: list[Drain]
    axis: TimeAxis
    counts: dict[str, int]
    left: int
    cut_short: int
    recoveries: int
    slowest: float | None
    """The 95th percentile of the slowest worker's recoveries."""


async def deploys_page(api: CallerApi, path: dict[str, str], query: QueryParams) -> Page:
    """Return the page of the latest drains, as deploys."""
    document, me = await asyncio.gather(api.get("drains", limit=DRAINS), api.get("me"))
    now = moment_of(me["now"]) or 0.0
    readable = [one for one in document["drains"] if moment_of(one.get("began")) is not None]
    # Each is in the picture and in the table.
    readable = fitting(readable, PAGE_BYTES // 2)
    deploys = [_deploy(group, now) for group in _groups(readable)]
    facts = {"deploys": deploys, "layers": LAYERS, "counts": COUNTS}
    return Page("Deploys", "deploys.html", facts)


def _groups(reports: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return drains that overlap or follow closely, the latest group first."""
    groups: list[list[dict[str, Any]]] = []
    last = float("-inf")
    for report in sorted(reports, key=_began):
        if _began(report) - last > GAP_SECONDS:
            groups.append([])
        groups[-1].append(report)
        last = max(last, _began(report) + (report["seconds"] or 0.0))
    return groups[::-1]


def _began(report: dict[str, Any]) -> float:
    return moment_of(report["began"]) or 0.0


def _ended(report: dict[str, Any], now: float) -> float:
    """Return when a drain ended, or now if it goes on."""
    if report["seconds"] is not None:
        return _began(report) + float(report["seconds"])
    return _began(report) if report["cut_short"] else now


def _deploy(reports: list[dict[str, Any]], now: float) -> Deploy:
    spans = [(_began(one), max(_began(one), _ended(one, now))) for one in reports]
    axis = TimeAxis(spans, min(a for a, _ in spans), max(b for _, b in spans))
    recoveries = [one["recoveries"] for one in reports if one["recoveries"]]
    return Deploy(
        [
            Drain(report, began, ended, _bars(report, axis, began, ended))
            for report, (began, ended) in zip(reports, spans, strict=True)
        ],
        axis,
        {name: sum(one[name] for one in reports) for name in COUNTS},
        sum(len(one["left"]) for one in reports),
        sum(one["cut_short"] for one in reports),
        int(sum(one.get("count", 0) for one in recoveries)),
        max((one.get("p95", 0.0) for one in recoveries), default=None),
    )


def _bars(
    report: dict[str, Any], axis: TimeAxis, began: float, ended: float
) -> list[tuple[Place, str]]:
    layers = sorted(
        ((seconds, name) for name, seconds in report["layers"].items() if name in LAYERS),
    )
    if not layers:
        return [(axis.place(began, ended), "cut" if report["cut_short"] else "running")]
    bars, last = [], began
    for seconds, name in layers:
        end = max(last, began + seconds)
        bars.append((axis.place(last, end), name))
        last = end
    return bars
