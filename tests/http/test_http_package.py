"""What importing costs, what is missing without the extra, and an Outlast in somebody's web server."""

import asyncio
import subprocess
import sys
import threading

import httpx
import pytest
import uvicorn
from http_tools import Worker, until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from outlast import Outlast, OutlastError, step, workflow
from outlast.http import Face, Server, lifespan, routes


def python(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_it_imports_no_server():
    program = "import sys, outlast, outlast.http; print(sorted({'starlette','uvicorn','prometheus_client','h11'} & set(sys.modules)))"
    assert python(program) == "[]\n"


def test_importing_outlast_does_not_import_it():
    assert python("import sys, outlast; print('outlast.http' in sys.modules)") == "False\n"


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "prometheus_client"])
def test_without_the_extra_it_says_what_to_install(missing):
    program = f"""
import sys
sys.modules[{missing!r}] = None
sys.path.insert(0, {str(__file__).rpartition("/")[0]!r})
from http_tools import Worker
from outlast.http import Server
try:
    Server(Worker(), ":0").start()
except Exception as error:
    print(type(error).__name__, error)
"""
    assert python(program) == "SettingsError the HTTP server needs: pip install 'outlast[http]'\n"


class Opened:
    """An Outlast as the routes see it: a face while it is open, and settings."""

    class settings:
        http_secret = "swordfish"
        health_stall = 5.0

    def __init__(self) -> None:
        self.open: Worker | None = None

    @property
    def face(self) -> Worker | None:
        return self.open


class Closed(Opened):
    @property
    def face(self) -> Worker | None:
        if self.open is None:
            raise OutlastError("this Outlast is not open")
        return self.open


@pytest.mark.parametrize("kind", [Opened, Closed])
def test_routes_are_made_before_the_app_is_open_and_see_it_open_and_close(kind):
    asyncio.run(_open_and_close(kind()))


async def _open_and_close(app):
    transport = httpx.ASGITransport(routes(app), client=("203.0.113.9", 1))
    client = httpx.AsyncClient(transport=transport, base_url="http://worker-7")
    secret = {"authorization": "Bearer swordfish"}
    assert (await client.get("/health")).status_code == 200
    assert (await client.get("/ready")).json() == {"status": "not ready", "reason": "starting"}
    assert (await client.get("/drain")).json()["draining"] is False
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


def test_only_an_outlast_or_a_face_will_do():
    assert isinstance(Worker(), Face)
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


def test_an_outlast_lives_as_long_as_the_web_server(tmp_path, client):
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
            until(lambda: server.started)
            url = "http://{}:{}".format(*server.servers[0].sockets[0].getsockname())
            assert client.get(f"{url}/ask").json() == 42
            assert client.get(f"{url}/ops/ready").status_code == 200
        finally:
            server.should_exit = True
            thread.join()
        with pytest.raises(OutlastError, match="not open"):
            app.get(doubling, "one")
