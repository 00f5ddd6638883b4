"""Act on selected runs, or on all that match a filter."""

from __future__ import annotations

import secrets
from typing import Any

from starlette.datastructures import QueryParams

from outlast.http.rest.problems import Problem
from outlast.http.web.forms import Form
from outlast.http.web.inner_api import CallerApi, Refusal
from outlast.http.web.rendering import Page
from outlast.http.web.runs_page import SWITCHES, filters_of
from outlast.http.web.site import Done

ACTIONS = ("cancel", "retry", "resume")
SELECTED_MAX = 200
WHY = "cancelled with others in the web UI"


async def selection_page(api: CallerApi, path: dict[str, str], query: QueryParams) -> Page:
    """Return the form that acts on the selected runs, or on all that match."""
    action = query.get("action", "")
    if action not in ACTIONS:
        raise Problem(404, "There is no such action.", next="Select runs, and choose one.")
    ids = query.getlist("id")[:SELECTED_MAX]
    filters = filters_of(query)
    facts: dict[str, Any] = {
        "action": action,
        "ids": ids,
        "filters": filters,
        "token": secrets.token_hex(16),
        "matched": None,
        "examples": ids,
    }
    if not ids:
        if "status" not in filters and not filters:
            raise Problem(422, "No runs are selected.", next="Select runs, or set a filter.")
        body = {**_bulk_body(action, filters), "dry_run": True}
        report = await api.send("POST", "bulk", body=body)
        facts |= {"matched": report["matched"], "examples": report["examples"]}
    return Page(f"{action.capitalize()} runs", "bulk.html", facts)


async def act_on_selection(api: CallerApi, path: dict[str, str], form: Form) -> Done | Page:
    """Act on the runs, and return what became of each."""
    # The filter by key has the name "key".
    action, token = form["action"], form["token"]
    if action not in ACTIONS:
        raise Problem(404, "There is no such action.", next="Select runs, and choose one.")
    ids = form.all("id")[:SELECTED_MAX]
    if ids:
        problems = [found for id in ids if (found := await _act(api, action, id, token))]
        report = {"done": len(ids) - len(problems), "problems": problems, "next": None}
    else:
        filters = filters_of(QueryParams([(name, one) for name in form for one in form.all(name)]))
        if not filters:
            raise Problem(422, "No runs are selected.", next="Select runs, or set a filter.")
        cursor = form["cursor"]
        body = _bulk_body(action, filters)
        if cursor.isdecimal():
            body["cursor"] = int(cursor)
        report = await api.send("POST", "bulk", body=body, key=token)
        report["filters"] = filters
    facts = {
        "action": action,
        "report": report,
        "token": token,
        "filters": report.get("filters", {}),
    }
    return Page(f"{action.capitalize()} runs", "bulk_done.html", facts)


async def _act(api: CallerApi, action: str, id: str, key: str) -> dict[str, str] | None:
    """Act on one run. Return what is wrong, or None."""
    body = {"why": WHY} if action == "cancel" else None
    try:
        await api.send("POST", "runs", id, action, body=body, key=key)
    except Refusal as refusal:
        return {"id": id, "message": str(refusal.document.get("detail", refusal.status))}
    return None


def _bulk_body(action: str, filters: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {"action": action, **filters}
    if "newer_than" in body:
        body["newer_than"] = float(body["newer_than"])
    for name in SWITCHES:
        if name in body:
            body[name] = body[name] == "true"
    if action == "cancel":
        body["why"] = WHY
    return body
