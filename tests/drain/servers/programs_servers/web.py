"""A web app with an Outlast in it: `web:web`, for whatever server. FRAMEWORK says what it is made with, PLAIN=1 leaves the Outlast out."""

import asyncio
import os
from contextlib import asynccontextmanager

from said import cleanup, handlers, living, one, say, two, two_in_thread

from outlast import Outlast
from outlast.http import lifespan, routes

app = Outlast(lifespan=living)
app.on_cleanup(cleanup)
plain = bool(os.environ.get("PLAIN"))
framework = os.environ.get("FRAMEWORK", "starlette")


@asynccontextmanager
async def nothing(web):
    say("ready", os.getpid())
    yield


@asynccontextmanager
async def with_outlast(web):
    """Ours, and around it what the tests want to know."""
    before = handlers()
    async with lifespan(app)(web) as state:
        workflow = one if os.environ.get("STEPS") else two_in_thread if os.environ.get("IN_THREAD") else two
        run = await app.start(workflow(float(os.environ.get("SECONDS", "1"))), id="run")
        asyncio.get_running_loop().create_task(watch(run))
        say("ready", os.getpid())
        yield state
    say("restored", handlers() == before)


async def watch(run) -> None:
    reason = await app.wait_drain()
    say("drain", reason)


living_web = nothing if plain else with_outlast


async def wait_for(seconds: float) -> dict:
    """A request under way."""
    say("request-begins")
    await asyncio.sleep(seconds)
    say("request-ends")
    return {"waited": True}


async def result() -> dict:
    """A request that waits for a run."""
    say("request-begins")
    return {"result": await app.result("run")}


async def elsewhere() -> dict:
    """A request that waits for a run which another process is to execute."""
    run = await app.submit(one(1), id="elsewhere", queue="elsewhere")
    say("request-begins")
    return {"result": await run.result()}


async def stop() -> dict:
    """As --limit-max-requests, or a program: the server stops, and no signal came."""
    say("stop")
    await wait_for(0.1)
    import gc

    import uvicorn

    for server in gc.get_objects():
        if isinstance(server, uvicorn.Server) and server.config.lifespan != "off":
            server.should_exit = True
    return {}


if framework == "fastapi":
    from fastapi import FastAPI

    web = FastAPI(lifespan=living_web)
    web.get("/wait")(wait_for)
    web.get("/result")(result)
    web.get("/elsewhere")(elsewhere)
    web.get("/stop")(stop)
else:
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def wait_route(request):
        return JSONResponse(await wait_for(float(request.query_params["seconds"])))

    async def result_route(request):
        assert request.state.outlast is app and request.app.state.outlast is app
        return JSONResponse(await result())

    async def stop_route(request):
        return JSONResponse(await stop())

    web = Starlette(
        routes=[Route("/wait", wait_route), Route("/result", result_route), Route("/stop", stop_route)],
        lifespan=living_web,
    )
web.mount("/ops", routes(app))
