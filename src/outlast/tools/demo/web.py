"""HTTP for the agent, by the standard library alone: the demo runs without any extra. Your own agent has httpx, or its provider's client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

READ_SECONDS = 120.0
"""How long an answer may take to begin. A gate of the demo holds it for less."""


class NotFound(Exception):
    """There is nothing of that name there."""


class Event(NamedTuple):
    """One of a stream of server-sent events."""

    id: str
    data: str


async def get(url: str) -> Any:
    """The JSON there. NotFound, or ConnectionError."""
    async with _asked("GET", url, None) as reader:
        return json.loads(await reader.read())


async def post(url: str, **body: Any) -> Any:
    """The JSON of the answer. NotFound, or ConnectionError."""
    async with _asked("POST", url, body) as reader:
        return json.loads(await reader.read())


async def events(url: str, **body: Any) -> AsyncGenerator[Event, None]:
    """The events of the answer, up to its `[DONE]`. ConnectionError if it ends without."""
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
    raise ConnectionError("the answer was cut short")  # an end that nobody announced is no end


@asynccontextmanager
async def _asked(method: str, url: str, body: Any) -> AsyncIterator[asyncio.StreamReader]:
    """The body of the answer, to be read; the connection ends with the block."""
    to = urlsplit(url)
    reader, writer = await asyncio.open_connection(to.hostname, to.port)
    try:
        text = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {to.path} HTTP/1.0\r\nHost: {to.netloc}\r\nContent-Length: {len(text)}\r\n\r\n"
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
