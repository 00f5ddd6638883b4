"""Redirects do not carry the secrets of an HTTP effect to another server."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from outlast import run, workflow
from outlast.effects import HTTPAnswer, HTTPRefused, HTTPUnclear, http_effect
from outlast.fencing import FENCE_HEADER
from support.waiting import WAIT_SECONDS

SECRET = "hunter2-hunter2"
CERTIFICATES = ssl.create_default_context()
"""Read once. Without it each client would read all certificates of the machine."""
OUTCOMES = {301: HTTPUnclear, 302: HTTPUnclear, 303: None, 307: HTTPRefused, 308: HTTPRefused}


class Server(ThreadingHTTPServer):
    """Answers `status` with `location`, and keeps the headers of each request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.location = 200, ""
        self.requests: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/act"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        self.server.requests.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(self.server.status)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    """The one that is called, and the other one that a redirect leads to."""
    both = Server(), Server()
    threads = [threading.Thread(target=one.serve_forever, args=(0.01,)) for one in both]
    for thread in threads:
        thread.start()
    yield both
    for one in both:
        one.shutdown()
        one.server_close()
    for thread in threads:
        thread.join()


pay = http_effect(
    "pay",
    timeout=WAIT_SECONDS,
    headers={"X-Api-Key": SECRET},
    client=lambda: httpx.AsyncClient(follow_redirects=True, verify=CERTIFICATES),
    undo=None,
)


@workflow
async def pays(url: str) -> HTTPAnswer:
    return await pay("POST", url)


@pytest.mark.parametrize("status", OUTCOMES)
@pytest.mark.parametrize(
    "place", ["another port", "another host", "another scheme", "no host", "itself"]
)
def test_redirect_does_not_carry_secrets_to_another_server(servers, status, place):
    called, other = servers
    called.status = status
    called.location = {
        "another port": other.url,
        "another host": other.url.replace("127.0.0.1", "localhost"),
        "another scheme": other.url.replace("http:", "https:"),
        "no host": f"//127.0.0.1:{other.server_port}/act",
        "itself": "/act",
    }[place]
    outcome = None
    try:
        answer = asyncio.run(pay.request("POST", called.url, key="k1"))
        assert answer.status == status
    except (HTTPRefused, HTTPUnclear) as error:
        outcome = error
        assert f"redirects are not followed, and this one leads to {called.location}" in str(error)
    assert (None if outcome is None else type(outcome)) is OUTCOMES[status]
    (request,) = called.requests
    assert (request["x-api-key"], request["idempotency-key"]) == (SECRET, "k1")
    assert other.requests == []


def test_the_fence_of_a_run_stays_with_the_server_that_was_called(servers):
    called, other = servers
    called.status, called.location = 307, other.url
    with pytest.raises(HTTPRefused, match="redirects are not followed"):
        run(pays(called.url), id="r", store="memory:")
    (request,) = called.requests
    assert FENCE_HEADER.lower() in request
    assert other.requests == []


@pytest.mark.parametrize("status", OUTCOMES)
def test_redirected_verify_does_not_settle_the_call(servers, status):
    """It leads to a login page, most often."""
    called, other = servers
    called.status, called.location = status, other.url
    effect = http_effect(
        "verified", timeout=WAIT_SECONDS, verify_url=f"{called.url}?key={{key}}", undo=None
    )
    with pytest.raises(HTTPUnclear):
        asyncio.run(effect.verifier("k"))
    assert other.requests == []
