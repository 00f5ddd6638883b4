"""Read server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import NamedTuple


class ServerEvent(NamedTuple):
    """One event, or a part of the stream that is none: then `kind` is empty."""

    kind: str
    data: str
    retry: float | None
    """How many seconds the server asks the client to wait before it reconnects, if it asks."""


async def server_events(lines: AsyncIterable[str]) -> AsyncIterator[ServerEvent]:
    """Yield an event for each block of lines, even for a comment, which shows that all is well."""
    kind = ""
    data: list[str] = []
    retry: float | None = None
    async for line in lines:
        if not line:
            yield ServerEvent(kind if data else "", "\n".join(data), retry)
            kind, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "data":
            data.append(value)
        elif name == "retry" and value.isdecimal():
            retry = int(value) / 1000
