"""Speak HTTP for the agent with only the standard library, so that the demo needs no extra.

Your own agent would use httpx or its provider's client.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from urllib.parse import urlsplit


async def post(url: str, **body: Any) -> Any:
    """Return the JSON of the answer."""
    async with aclosing(stream(url, **body)) as values:
        return await anext(values, None)


async def stream(url: str, **body: Any) -> AsyncGenerator[Any, None]:
    """Yield the JSON of each line of the answer, up to null. Raise if it ends without."""
    to = urlsplit(url)
    text = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(to.hostname, to.port)
    try:
        writer.write(f"POST {to.path} HTTP/1.0\r\nContent-Length: {len(text)}\r\n\r\n".encode())
        writer.write(text)
        head = await reader.readuntil(b"\r\n\r\n")
        if head.split()[1] != b"200":
            raise ConnectionError(f"{url} answered {head!r}")
        async for line in reader:
            if (value := json.loads(line)) is None:
                return
            yield value
        raise ConnectionError(f"{url} did not finish its answer")
    finally:
        writer.close()
