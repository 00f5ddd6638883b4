"""Answer recorded values as text, whole. Pages cut them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from outlast.http.web.inner_api import CallerApi
from outlast.http.web.run_page import no_page, read_entry
from outlast.http.web.values import text_of

PARTS = ("args", "value", "error", "result")
Path: TypeAlias = dict[str, str]
ReadText: TypeAlias = Callable[[CallerApi, Path], Awaitable[str]]


async def value_of_run(api: CallerApi, path: Path) -> str:
    """Return a value of an entry. The entry 0 is the run itself."""
    part = path["part"]
    if part not in PARTS:
        raise no_page()
    if path["seq"] == "0":
        holder = (await api.get("runs", path["id"], brief="true"))["run"]
    else:
        holder = await read_entry(api, path)
    if part not in holder:
        raise no_page()
    value = holder[part]
    if part == "error" and isinstance(value, dict):
        value = "\n".join(
            text_of(value[name]) for name in ("type", "message", "traceback") if value.get(name)
        )
    return text_of(value)


async def message_of_run(api: CallerApi, path: Path) -> str:
    """Return the value of a message, by its number."""
    document = await api.get("runs", path["id"], "timeline", limit=1)
    return _found(document["messages"], "number", path["number"])


async def progress_of_run(api: CallerApi, path: Path) -> str:
    """Return what an unfinished step has saved, by its call site."""
    document = await api.get("runs", path["id"], "timeline", limit=1)
    return _found(document["progress"], "key", path["key"])


async def value_of_session(api: CallerApi, path: Path) -> str:
    """Return a field of a session, or a whole list."""
    field = await api.get("sessions", path["id"], "fields", path["name"])
    if not field["found"]:
        raise no_page()
    return text_of(field["value"])


def _found(rows: list[dict[str, Any]], name: str, wanted: str) -> str:
    row = next((one for one in rows if str(one[name]) == wanted), None)
    if row is None:
        raise no_page()
    return text_of(row["value"])


TEXTS: dict[str, ReadText] = {
    "/runs/{id}/values/{seq}/{part}": value_of_run,
    "/runs/{id}/messages/{number}": message_of_run,
    "/runs/{id}/progress/{key}": progress_of_run,
    "/sessions/{id}/values/{name}": value_of_session,
}
