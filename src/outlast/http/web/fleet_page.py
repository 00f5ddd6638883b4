"""Show workers, queues, schedules and sessions, and change their limits."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from starlette.datastructures import QueryParams

from outlast.http.rest.problems import Problem
from outlast.http.rest.roles import Role
from outlast.http.web.forms import Form
from outlast.http.web.inner_api import CallerApi
from outlast.http.web.rendering import Page
from outlast.http.web.site import Done
from outlast.http.web.values import fitting

Path = dict[str, str]
ROWS = 60
LIST_BYTES = 27_000
"""How much of the page each of the three lists may take."""
SESSIONS, SESSIONS_BYTES = 50, 75_000
SCHEDULE_ACTIONS = ("pause", "resume", "trigger")
QUEUE_ACTIONS = ("pause", "resume")
COUNTS = ("depth", "concurrency", "per_key_concurrency")


async def fleet_page(api: CallerApi, path: Path, query: QueryParams) -> Page:
    """Return the page of workers, queues and schedules."""
    workers, queues, schedules, newest = await asyncio.gather(
        api.get("workers"), api.get("queues"), api.get("schedules"), api.get("runs", limit=1)
    )
    facts = {
        "now": newest["now"],
        "workers": _readable(workers["workers"], "state", "id"),
        "workers_count": len(workers["workers"]),
        "stalls": workers["stalls"][:10],
        "queues": _readable(queues["queues"], "ready", "name"),
        "queues_count": len(queues["queues"]),
        "schedules": _readable(schedules["schedules"], "next", "name"),
        "schedules_count": len(schedules["schedules"]),
        "damaged": schedules["damaged"][:5],
    }
    return Page("Fleet", "fleet.html", facts)


def _readable(rows: list[dict[str, Any]], field: str, name: str) -> list[dict[str, Any]]:
    """Return the rows that can be read and fit into the page."""
    return fitting([row for row in rows if field in row][:ROWS], LIST_BYTES, (name, name))


async def limits_page(api: CallerApi, path: Path, query: QueryParams) -> Page:
    """Return the form with the limits of a queue."""
    _check_operator(api)
    facts = {"queue": await api.get("queues", path["name"])}
    return Page(f"Limits of {path['name']}", "limits.html", facts)


async def set_limits(api: CallerApi, path: Path, form: Form) -> Done | Page:
    """Set the limits of a queue. An empty field removes one."""
    body: dict[str, Any] = {name: _limit(name, form[name]) for name in COUNTS}
    body["per_key_rate"] = form["per_key_rate"].strip() or None
    await api.send("PUT", "queues", path["name"], "limits", body=body)
    return Done(("fleet",), "limits")


def _limit(name: str, text: str) -> int | None:
    text = text.strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > 10:
        raise Problem(
            422, f"{name}: {text[:50]!r} is not a whole number.", next="Go back and correct it."
        )
    return int(text)


async def queue_page(api: CallerApi, path: Path, query: QueryParams) -> Page:
    """Return the form that pauses or resumes a queue."""
    _check_operator(api)
    action = _queue_action(path)
    facts = {"queue": await api.get("queues", path["name"]), "action": action}
    return Page(f"{action.capitalize()} {path['name']}", "queue.html", facts)


async def act_on_queue(api: CallerApi, path: Path, form: Form) -> Done | Page:
    """Pause or resume a queue. Its limits stay."""
    action = _queue_action(path)
    body = {"paused": action == "pause"}
    await api.send("PUT", "queues", path["name"], "limits", body=body)
    return Done(("fleet",), f"queue_{action}d")


def _queue_action(path: Path) -> str:
    if path["action"] not in QUEUE_ACTIONS:
        raise Problem(404, "There is no such page.", next="Use a link in this UI.")
    return path["action"]


async def drain_page(api: CallerApi, path: Path, query: QueryParams) -> Page:
    """Return the form that asks a worker to drain."""
    _check_operator(api)
    workers = (await api.get("workers"))["workers"]
    worker: dict[str, Any] | None = next((one for one in workers if one["id"] == path["id"]), None)
    if worker is None:
        raise Problem(404, f"No worker {path['id']!r} has the store open.", next="See the fleet.")
    return Page(f"Drain {path['id']}", "drain.html", {"worker": worker})


async def drain_worker(api: CallerApi, path: Path, form: Form) -> Done | Page:
    """Ask a worker to drain."""
    body = {"why": form["why"] or "asked in the web UI"}
    await api.send("POST", "workers", path["id"], "drain", body=body)
    return Done(("fleet",), "drain")


async def schedule_page(api: CallerApi, path: Path, query: QueryParams) -> Page:
    """Return the form that pauses, resumes or triggers a schedule."""
    _check_operator(api)
    if path["action"] not in SCHEDULE_ACTIONS:
        raise Problem(404, "There is no such page.", next="Use a link in this UI.")
    document = await api.get("schedules", path["name"], upcoming=5)
    facts = {
        "schedule": document["schedule"],
        "action": path["action"],
        "key": secrets.token_hex(16),
    }
    return Page(f"{path['action'].capitalize()} {path['name']}", "schedule.html", facts)


async def act_on_schedule(api: CallerApi, path: Path, form: Form) -> Done | Page:
    """Pause, resume or trigger a schedule."""
    name, action = path["name"], path["action"]
    if action not in SCHEDULE_ACTIONS:
        raise Problem(404, "There is no such page.", next="Use a link in this UI.")
    if action == "trigger":
        answer = await api.send("POST", "schedules", name, "trigger", key=form["key"])
        return Done(("runs", answer["run"]), "trigger")
    await api.send("POST", "schedules", name, action)
    return Done(("fleet",), "schedule")


async def sessions_page(api: CallerApi, path: Path, query: QueryParams) -> Page:
    """Return a page of sessions, by id."""
    prefix, after = query.get("prefix", ""), query.get("after") or None
    document = await api.get("sessions", prefix=prefix, limit=SESSIONS, after=after, order="id")
    sessions = fitting(document["sessions"], SESSIONS_BYTES, ("id",))
    is_cut = len(sessions) < len(document["sessions"])
    following = sessions[-1]["id"] if is_cut else document["next"]
    facts = {"sessions": sessions, "next": following, "prefix": prefix}
    return Page("Sessions", "sessions.html", facts)


async def session_page(api: CallerApi, path: Path, query: QueryParams) -> Page:
    """Return the page of a session: its fields, and the last items of its lists."""
    document = await api.get("sessions", path["id"], last=20)
    return Page(path["id"], "session.html", {"session": document["session"]})


def _check_operator(api: CallerApi) -> None:
    """Raise Problem 403 before showing a form that the API would refuse."""
    if api.role is not Role.OPERATOR:
        raise Problem(403, f"A {api.role} may not do this.", next="Ask an operator.")
