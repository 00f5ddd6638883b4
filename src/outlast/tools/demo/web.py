"""Speak HTTP for the agent with only the standard library, so that the demo needs no extra.

Your own agent would use httpx or its provider's client.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

READ_SECONDS = 120.0
"""How long an answer may take to begin. The demo's gates hold it for less."""


class NotFound(Exception):
    """The server has nothing at this address."""


class Event(NamedTuple):
    """A server-sent event."""

    id: str
    data: str


async def get(url: str) -> Any:
    """Return the JSON at the address. Raise NotFound or ConnectionError."""
    async with _asked("GET", url, None) as reader:
        return json.loads(await reader.read())


async def post(url: str, **body: Any) -> Any:
    """Return the JSON of the answer. Raise NotFound or ConnectionError."""
    async with _asked("POST", url, body) as reader:
        return json.loads(await reader.read())


async def events(url: str, **body: Any) -> AsyncGenerator[Event, None]:
    """Yield the events of the answer, up to `[DONE]`. Raise ConnectionError if it ends without."""
    async with _asked("POST", url, body) as reader, aclosing(_parsed(reader)) as parsed:
        async for event in parsed:
            yield event


async def _parsed(reader: asyncio.StreamReader) -> AsyncGenerator[Event, None]:
    id = ""
    while line := (await reader.readline()).decode():
        name, _, value = line.rstrip("\n").partition(": ")
        if name == "id":
            id = value
        elif name == "data":
            if value == "[DONE]":
                return
            yield Event(id, json.loads(value))
    # An answer without `[DONE]` is incomplete.
    raise ConnectionError("the answer was cut short")


@asynccontextmanager
async def _asked(method: str, url: str, body: Any) -> AsyncIterator[asyncio.StreamReader]:
    """Yield the body of the answer for reading. The connection closes with the block."""
    to = urlsplit(url)
    reader, writer = await asyncio.open_connection(to.hostname, to.port)
    try:
        text = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {to.path} HTTP/1.0\r\nHost: {to.netloc}\r\nContent-Length: "
            f"{len(text)}\r\n\r\n"
        )
        writer.write(head.encode() + text)
        await writer.drain()
        async with asyncio.timeout(READ_SECONDS):
            first, *_ = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        status = int(first.split()[1])
        if status == 404:
            raise NotFound(url)
        if status != 200:
            raise ConnectionError(f"{url} answered {status}")
        yield reader
    except asyncio.IncompleteReadError as error:
        raise ConnectionError(f"{url} ended without an answer") from error
    finally:
        writer.close()
