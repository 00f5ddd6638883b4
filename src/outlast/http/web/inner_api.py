"""Call the HTTP API in process, on behalf of a page's visitor.

The caller is passed in the ASGI scope, which no request from outside can set.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from outlast.http.rest.encoded_paths import quoted
from outlast.http.rest.roles import Caller, Role

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Send

CALLER = "outlast.caller"
"""The key of the caller in the scope."""
SMALL = 50_000
"""Answers of this many bytes are parsed on the event loop, larger ones in a thread."""

Query = Mapping[str, Any] | Sequence[tuple[str, Any]]


async def caller_in_scope(request: Request) -> Caller | None:
    """Return the caller that the UI has identified. It is the `authenticate` of its API."""
    caller: Caller | None = request.scope.get(CALLER)
    return caller


class Refusal(Exception):
    """An unsuccessful answer of the API, with its problem document."""

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        super().__init__(str(document.get("detail", status)))
        self.status = status
        self.document = document


def path_of(*segments: str) -> str:
    """Return a path of the API, with every segment percent-encoded."""
    return "/v1/" + "/".join(map(quoted, segments))


class CallerApi:
    """The API, as one caller may use it."""

    def __init__(self, web: ASGIApp, caller: Caller) -> None:
        self._web = web
        self.caller = caller

    @property
    def role(self) -> Role:
        return self.caller.role

    async def get(self, *segments: str, **query: Any) -> dict[str, Any]:
        """Return a document. Raise Refusal for a problem. Parameters that are None are left out."""
        return await self._call("GET", path_of(*segments), query)

    async def send(
        self,
        method: str,
        *segments: str,
        body: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Change something, and return the answer. Raise Refusal for a problem."""
        headers = {"content-type": "application/json"}
        if key is not None:
            headers["idempotency-key"] = key
        sent = b"" if body is None else json.dumps(body).encode()
        return await self._call(method, path_of(*segments), {}, sent, headers)

    async def _call(
        self,
        method: str,
        path: str,
        query: Query,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        status = 500
        parts: list[bytes] = []

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        scope = _scope(method, path, query, headers or {}, body, self.caller)
        await self._web(scope, _receiving(body, asyncio.Event()), send)
        text = b"".join(parts)
        parse = json.loads
        document = parse(text) if len(text) < SMALL else await run_in_threadpool(parse, text)
        if status >= 400:
            raise Refusal(status, document)
        found: dict[str, Any] = document
        return found

    async def events(self, *segments: str) -> AsyncGenerator[bytes, None]:
        """Yield the parts of a stream of events as they arrive. Raise Refusal for a problem."""
        parts: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=16)
        status = 500
        gone = asyncio.Event()

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                await parts.put(message.get("body", b""))

        async def serve() -> None:
            try:
                await self._web(scope, _receiving(b"", gone), send)
            finally:
                if not gone.is_set():
                    await parts.put(None)

        scope = _scope("GET", path_of(*segments), {}, {}, b"", self.caller)
        serving = asyncio.ensure_future(serve())
        try:
            while (part := await parts.get()) is not None:
                if status >= 400:
                    raise Refusal(status, json.loads(part))
                if part:
                    yield part
        finally:
            gone.set()
            while not parts.empty():
                parts.get_nowait()
            serving.cancel()
            await asyncio.wait((serving,))

    async def forward(
        self, segments: Sequence[str], receive: Receive, given: Mapping[str, str], send: Send
    ) -> None:
        """Answer a request of the visitor with a stream of events of the API."""
        last = given.get("last-event-id")
        headers = {} if last is None else {"last-event-id": last}
        scope = _scope("GET", path_of(*segments), {}, headers, b"", self.caller)
        await self._web(scope, receive, send)


def _scope(
    method: str,
    path: str,
    query: Query,
    headers: Mapping[str, str],
    body: bytes,
    caller: Caller,
) -> dict[str, Any]:
    items = query.items() if isinstance(query, Mapping) else query
    given = [(name, value) for name, value in items if value is not None]
    named = {"host": "outlast", "content-length": str(len(body)), **headers}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "query_string": urlencode(given, doseq=True).encode("ascii"),
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in named.items()],
        "client": None,
        "server": None,
        CALLER: caller,
    }


def _receiving(body: bytes, gone: asyncio.Event) -> Receive:
    sent = False

    async def receive() -> Message:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    return receive
