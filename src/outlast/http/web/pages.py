"""List the pages of the web UI."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from outlast.http.web import (
    action_pages,
    bulk_pages,
    deploys_page,
    fleet_page,
    home_page,
    run_page,
    runs_page,
    stream_page,
)
from outlast.http.web.inner_api import CallerApi
from outlast.http.web.live import after_news
from outlast.http.web.site import MakePage, NewsOf, Path, Submit


def _news_of_run(api: CallerApi, path: Path) -> AsyncIterator[Any]:
    return after_news(api.events("runs", path["id"], "watch"))


PAGES: dict[str, MakePage] = {
    "/runs/{id}/entries/{seq}": run_page.entry_page,
    "/runs/{id}/streams/{name}": stream_page.stream_page,
    "/sessions": fleet_page.sessions_page,
    "/sessions/{id}": fleet_page.session_page,
}
"""Pages that are shown once."""

LIVE_PAGES: dict[str, tuple[MakePage, NewsOf | None]] = {
    "/": (home_page.home_page, None),
    "/deploys": (deploys_page.deploys_page, None),
    "/fleet": (fleet_page.fleet_page, None),
    "/runs": (runs_page.runs_page, None),
    "/runs/{id}": (run_page.run_page, _news_of_run),
}
"""Pages that follow what happens, and what says that something may have. None: read every tick."""

FORMS: dict[str, tuple[MakePage, Submit]] = {
    "/bulk": (bulk_pages.selection_page, bulk_pages.act_on_selection),
    "/runs/{id}/{action}": (action_pages.action_page, action_pages.submit_action),
    "/fleet/queues/{name}/limits": (fleet_page.limits_page, fleet_page.set_limits),
    "/fleet/queues/{name}/{action}": (fleet_page.queue_page, fleet_page.act_on_queue),
    "/fleet/workers/{id}/drain": (fleet_page.drain_page, fleet_page.drain_worker),
    "/fleet/schedules/{name}/{action}": (fleet_page.schedule_page, fleet_page.act_on_schedule),
}
"""Pages that change something."""
