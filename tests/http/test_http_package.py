"""What importing costs, what is missing without the extra, and an Outlast in another web server."""

import asyncio
import subprocess
import sys
import threading

import httpx
import pytest
import uvicorn
from http_tools import Worker
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from outlast import Outlast, OutlastError, SettingsError, step, workflow
from outlast.http import Server, StatusProvider, lifespan, routes
from support.waiting import WAIT_SECONDS, wait_until

IMPORTS = """
import sys, outlast
print("outlast.http" in sys.modules)
import outlast.http
print(sorted({"starlette", "uvicorn", "prometheus_client", "h11"} & set(sys.modules)))
"""


def test_importing_outlast_imports_no_http_and_importing_outlast_http_no_server():
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS],
        check=False,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert done.stdout == "False\n[]\n", done.stderr


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "prometheus_client"])
def test_missing_http_extra_says_what_to_install(monkeypatch, missing):
    for name in [name for name in sys.modules if name.partition(".")[0] == missing]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("uvicorn_adapter", "application", "connection", "metrics"):
        monkeypatch.delitem(sys.modules, f"outlast.http.{name}", raising=False)
    with pytest.raises(SettingsError) as raised:
        Server(Worker(), ":0").start()
    assert str(raised.value) == "the HTTP server needs: pip install 'outlast[http]'"


class Opened:
    """An Outlast as the routes see it: a face while it is open, and settings."""

    class settings:
        http_secret = "swordfish"
        health_stall = 5.0

    def __init__(self) -> None:
        self.open: Worker | None = None

    @property
    def status_provider(self) -> Worker | None:
        return self.open


class Closed(Opened):
    @property
    def status_provider(self) -> Worker | None:
        if self.open is None:
            raise OutlastError("this Outlast is not open")
        return self.open


@pytest.mark.parametrize("kind", [Opened, Closed])
def test_routes_follow_an_app_that_opens_and_closes(kind):
    asyncio.run(_open_and_close(kind()))


async def _open_and_close(app):
    transport = httpx.ASGITransport(routes(app), client=("203.0.113.9", 1))
    client = httpx.AsyncClient(transport=transport, base_url="http://worker-7")
    secret = {"authorization": "Bearer swordfish"}
    assert (await client.get("/health")).status_code == 200
    assert (await client.get("/ready")).json() == {"status": "not ready", "reason": "starting"}
    assert (await client.get("/drain")).status_code == 403
    assert (await client.get("/drain", headers=secret)).json()["draining"] is False
    assert (await client.get("/metrics")).status_code == 200
    assert (await client.post("/shutdown", headers=secret)).status_code == 503
    app.open = Worker()
    assert (await client.get("/ready")).status_code == 200
    assert (await client.post("/shutdown")).status_code == 403
    assert (await client.post("/shutdown", headers=secret)).status_code == 202
    assert app.open.begun == ["POST /shutdown from 203.0.113.9"]
    app.open.stall = 6.0
    assert (await client.get("/health")).status_code == 503, "its settings are taken"
    app.open = None
    assert (await client.get("/ready")).status_code == 503


def test_routes_take_only_an_outlast_or_a_face():
    assert isinstance(Worker(), StatusProvider)
    with pytest.raises(TypeError, match="take an Outlast"):
        routes(object())
    with pytest.raises(TypeError, match="take an Outlast"):
        Server(object(), ":0").start()


@step
async def double(number: int) -> int:
    return number * 2


@workflow
async def doubling(number: int) -> int:
    return await double(number)


def test_lifespan_opens_and_closes_the_app_with_the_server(tmp_path, client):
    app = Outlast(store=f"sqlite:///{tmp_path}/outlast.db")

    async def ask(request: Request) -> JSONResponse:
        assert request.state.outlast is request.app.state.outlast is app
        run = await request.state.outlast.start(doubling(21), id="one")
        return JSONResponse(await run.result())

    web = Starlette(
        routes=[Route("/ask", ask), Mount("/ops", routes(Worker()))],
        lifespan=lifespan(app),
    )
    for _ in range(2):
        server = uvicorn.Server(uvicorn.Config(web, port=0, lifespan="on", log_config=None))
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            wait_until(lambda: server.started)
            url = "http://{}:{}".format(*server.servers[0].sockets[0].getsockname())
            assert client.get(f"{url}/ask").json() == 42
            assert client.get(f"{url}/ops/ready").status_code == 200
        finally:
            server.should_exit = True
            thread.join()
        with pytest.raises(OutlastError, match="not open"):
            app.get(doubling, "one")
