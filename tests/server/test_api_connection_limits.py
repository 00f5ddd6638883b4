"""Connections to the HTTP API that are slow, idle or too many, on a real server."""

import asyncio
import json
import logging
import socket
from contextlib import asynccontextmanager, closing
from urllib.parse import urlsplit

import httpx
import pytest
from server_tools import ITEMS, TOKENS, WORKFLOWS

from outlast import Outlast, publish, receive, workflow
from outlast.http.api_server import ApiServer
from support.waiting import WAIT_SECONDS, wait_until_async

PART = "x" * 100_000
TOKEN = TOKENS["olga"][1]


@workflow
async def verbose() -> str:
    """Publish more than the buffers between a server and its client can hold."""
    for _ in range(100):
        await publish("answer", PART)
    return await receive("go")


@asynccontextmanager
async def listening(**settings):
    """Yield an open Outlast and the server of its API."""
    app = Outlast(
        "memory:",
        worker=True,
        workflows=[*WORKFLOWS, verbose],
        api_tokens=",".join(ITEMS),
        grace=60.0,
        **settings,
    )
    server = ApiServer(app, "127.0.0.1:0")
    async with app:
        server.start()
        try:
            yield app, server
        finally:
            await server.stop()


def client_of(server):
    headers = {"authorization": f"Bearer {TOKEN}"}
    return httpx.AsyncClient(
        base_url=server.url, headers=headers, timeout=WAIT_SECONDS, trust_env=False
    )


def request_of(method, path, *headers):
    lines = [f"{method} {path} HTTP/1.1", "host: here", f"authorization: Bearer {TOKEN}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def address_of(server):
    url = urlsplit(server.url)
    return url.hostname, url.port


def connections_of(server):
    return server._server.server_state.connections


def test_body_that_does_not_arrive_is_answered_with_408():
    async def main():
        async with listening(api_body_timeout=0.2) as (_, server):
            reader, writer = await asyncio.open_connection(*address_of(server))
            head = request_of(
                "POST", "/v1/runs", "content-type: application/json", "content-length: 100"
            )
            writer.write(head + b'{"workflow":')
            answer = await asyncio.wait_for(reader.readuntil(b"}"), WAIT_SECONDS)
            writer.close()
            assert answer.startswith(b"HTTP/1.1 408 ")
            problem = json.loads(answer.partition(b"\r\n\r\n")[2])
            assert problem["status"] == 408
            async with client_of(server) as client:
                assert (await client.get("/v1/runs")).json()["runs"] == []

    asyncio.run(main())


def test_connection_beyond_the_limit_is_answered_with_503_until_one_ends():
    async def main():
        async with listening(api_connections_max=3) as (app, server), client_of(server) as client:
            await app.submit(verbose(), id="v")
            async with client.stream("GET", "/v1/runs/v/watch") as watching:
                assert watching.status_code == 200
                held = [await asyncio.open_connection(*address_of(server)) for _ in range(2)]
                await wait_until_async(lambda: len(connections_of(server)) == 3)
                async with client_of(server) as other:
                    assert (await other.get("/v1/runs")).status_code == 503
                    for _, writer in held:
                        writer.close()
                    await wait_until_async(lambda: len(connections_of(server)) < 3)
                    assert (await other.get("/v1/runs")).status_code == 200

    asyncio.run(main())


def test_client_that_does_not_read_its_stream_is_cut_and_others_are_served(caplog):
    async def main():
        async with listening(api_send_timeout=0.5) as (app, server), client_of(server) as client:
            await app.submit(verbose(), id="v")
            with closing(socket.socket()) as deaf:
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                deaf.connect(address_of(server))
                deaf.sendall(request_of("GET", "/v1/runs/v/streams/answer"))
                await wait_until_async(lambda: "did not read" in caplog.text)
                await wait_until_async(lambda: not connections_of(server))
            answer = await client.get("/v1/runs/v")
            assert answer.json()["run"]["status"] in {"running", "waiting"}
            cursor = None
            async with client.stream("GET", "/v1/runs/v/streams/answer") as watching:
                async for line in watching.aiter_lines():
                    if line.startswith("id: "):
                        cursor = line
                        break
            assert cursor is not None

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())


@pytest.mark.parametrize("setting", ["api_body_timeout", "api_send_timeout", "api_connections_max"])
def test_limits_of_connections_must_be_positive(setting):
    with pytest.raises(Exception, match=setting):
        Outlast("memory:", **{setting: 0})
