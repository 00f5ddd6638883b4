"""Show and submit the forms that act on one run."""

from __future__ import annotations

import json
import secrets
from typing import Any

from starlette.datastructures import QueryParams

from outlast.http.rest.problems import Problem
from outlast.http.rest.roles import Role
from outlast.http.web.forms import Form
from outlast.http.web.inner_api import CallerApi
from outlast.http.web.message_form import form_of, value_of_form
from outlast.http.web.rendering import Page
from outlast.http.web.run_page import actions_of
from outlast.http.web.site import Done

Path = dict[str, str]
LABELS = {
    "cancel": "Cancel",
    "retry": "Retry",
    "resume": "Resume",
    "message": "Send a message",
    "decide": "Decide",
}
KINDS = ("text", "json", "yes", "no", "nothing")
BY_SUBMITTERS = ("cancel", "message")


async def action_page(api: CallerApi, path: Path, query: QueryParams) -> Page:
    """Return the form of an action, with a description of what will happen."""
    action, id = path["action"], path["id"]
    if action not in LABELS:
        raise Problem(404, "There is no such page.", next="Use a link in this UI.")
    if api.role is Role.VIEWER or (api.role is Role.SUBMITTER and action not in BY_SUBMITTERS):
        # The API would refuse the form, so refuse before it is filled in.
        raise Problem(403, f"A {api.role} may not do this.", next="Ask an operator.")
    run = (await api.get("runs", id, brief="true"))["run"]
    found = await api.get("runs", id, "effects")
    chosen = query.get("effect", "")
    effects = [one for one in found["effects"] if one["place"] in found["undecided"]]
    facts = {
        "run": run,
        "action": action,
        "label": LABELS[action],
        "key": secrets.token_hex(16),
        "fits": action in actions_of(run, [*found["undecided"], *found["questions"]]),
        "effects": sorted(effects, key=lambda one: one["place"] != chosen),
        "name": query.get("name") or next(iter(run["waiting_for"]), ""),
        "form": None,
        "questions": await _questions(api, found["questions"]) if action == "decide" else [],
    }
    if action == "message" and query.get("as") != "json":
        waits = (await api.get("runs", id, "waits"))["waits"]
        facts["form"] = form_of(
            next((one["schema"] for one in waits if one["name"] == facts["name"]), None)
        )
    return Page(f"{LABELS[action]} {id}", "action.html", facts)


async def submit_action(api: CallerApi, path: Path, form: Form) -> Done | Page:
    """Carry out the action of a form."""
    action, id = path["action"], path["id"]
    key = form["key"]
    if action == "message":
        await _send_message(api, id, form)
    elif action == "decide":
        await api.send("POST", "runs", id, "decide", body=_decision(form), key=key)
    elif action == "cancel":
        body = {"why": form["why"] or "cancelled in the web UI"}
        await api.send("POST", "runs", id, "cancel", body=body)
    elif action in ("retry", "resume"):
        await api.send("POST", "runs", id, action, key=key)
    else:
        raise Problem(404, "There is no such page.", next="Use a link in this UI.")
    return Done(("runs", id), action)


async def _send_message(api: CallerApi, id: str, form: Form) -> None:
    value = value_of_form(form) if form["shape"] else _value(form["kind"], form["value"])
    body = {"name": form["name"], "value": value, "id": form["key"]}
    await api.send("POST", "runs", id, "messages", body=body)


async def _questions(api: CallerApi, asked: dict[str, str]) -> list[dict[str, Any]]:
    """Return what the run asks about budgets, each with the limits that apply."""
    found = []
    for id, text in asked.items():
        page = await api.get("budgets", prefix=id, limit="1")
        limits = page["budgets"][0]["limits"] if page["budgets"] else {}
        found.append({"budget": id, "text": text, "limits": limits})
    return found


def _limits(form: Form) -> dict[str, float]:
    """Return the limits that were filled in. Raise Problem 422 for what is not a number."""
    found = {}
    for name, text in zip(form.all("limit"), form.all("value"), strict=False):
        if text.strip():
            try:
                found[name] = float(text)
            except ValueError:
                raise Problem(422, f"The limit {name} is not a number.", next="Go back.") from None
    return found


def _decision(form: Form) -> dict[str, Any]:
    intent = form["intent"]
    body: dict[str, Any] = {
        "effect": form["effect"],
        "intent": int(intent) if intent.isdecimal() and len(intent) < 16 else None,
    }
    match form["outcome"]:
        case "happened":
            body["happened"] = _value(form["kind"], form["value"])
        case "did_not":
            body["did_not"] = True
        case "compensate":
            body["compensate"] = True
            if form["value"].strip():
                body["result"] = _value(form["kind"], form["value"])
        case "limit":
            body["limit"] = _limits(form)
        case _:
            raise Problem(422, "No outcome is selected.", next="Go back and choose one.")
    return body


def _value(kind: str, text: str) -> Any:
    """Return what a form means. Raise Problem 422 for text that is not the JSON it should be."""
    if kind in ("yes", "no"):
        return kind == "yes"
    if kind == "nothing":
        return None
    # A form has CRLF line ends.
    text = text.replace("\r\n", "\n")
    if kind == "json":
        try:
            return json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise Problem(
                422,
                f"The value is not JSON: {error}",
                next='Text in JSON has quotes, like "yes". Or choose "text".',
            ) from None
    return text


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
