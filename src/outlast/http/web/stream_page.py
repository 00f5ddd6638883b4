"""Show what a run has published to a stream."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, suppress

from starlette.datastructures import QueryParams

from outlast.http.web.inner_api import CallerApi
from outlast.http.web.rendering import Page
from outlast.http.web.values import text_of

QUIET_SECONDS = 0.5
"""Everything that was published has arrived once nothing has come for this long."""
TEXT_MAX = 40_000


async def stream_page(api: CallerApi, path: dict[str, str], query: QueryParams) -> Page:
    """Return the page of a stream, with what has been published so far."""
    text, is_cut = await _published(api, path["id"], path["name"])
    facts = {"id": path["id"], "name": path["name"], "text": text, "is_cut": is_cut}
    return Page(f"{path['name']} of {path['id']}", "stream.html", facts)


async def _published(api: CallerApi, id: str, name: str) -> tuple[str, bool]:
    """Return what was published, and whether it was cut."""
    texts: list[str] = []
    rest = b""
    async with aclosing(api.events("runs", id, "streams", name)) as parts:
        with suppress(TimeoutError, StopAsyncIteration):
            while sum(map(len, texts)) < TEXT_MAX:
                part = await asyncio.wait_for(anext(parts), QUIET_SECONDS)
                *events, rest = (rest + part).split(b"\n\n")
                for event in events:
                    _apply(event, texts)
    text = "".join(texts)
    return text[:TEXT_MAX], len(text) > TEXT_MAX


def _apply(event: bytes, texts: list[str]) -> None:
    fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if b": " in line)
    if fields.get(b"event") == b"reset":
        texts.clear()
    elif fields.get(b"event") == b"data":
        value = json.loads(fields[b"data"])["value"]
        texts.append(value if isinstance(value, str) else text_of(value) + "\n")
