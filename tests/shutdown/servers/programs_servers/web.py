"""A web app with an Outlast in it, `web:web`. FRAMEWORK is starlette or fastapi; PLAIN=1 leaves the Outlast out."""

import asyncio
import os
from contextlib import asynccontextmanager

from said import cleanup, handlers, living, one, pass_gate, say, two, two_in_thread

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
    """Use the lifespan of Outlast, and say what the tests want to know."""
    before = handlers()
    async with lifespan(app)(web) as state:
        workflow = (
            one
            if os.environ.get("STEPS")
            else two_in_thread
            if os.environ.get("IN_THREAD")
            else two
        )
        run = await app.start(workflow("gate"), id="run")
        asyncio.get_running_loop().create_task(watch(run))
        say("ready", os.getpid())
        yield state
    say("restored", handlers() == before)


async def watch(run) -> None:
    reason = await app.wait_drain()
    say("drain", reason)


living_web = nothing if plain else with_outlast


async def wait_for(gate: str = "") -> dict:
    """Answer when there is a file of this name."""
    say("request-begins")
    await pass_gate(gate)
    say("request-ends")
    return {"waited": True}


async def result() -> dict:
    """Answer with the result of the run."""
    say("request-begins")
    return {"result": await app.result("run")}


async def elsewhere() -> dict:
    """Answer with the result of a run that another process executes."""
    run = await app.submit(one(""), id="elsewhere", queue="elsewhere")
    say("request-begins")
    return {"result": await run.result()}


async def stop() -> dict:
    """Stop the server without a signal, as --limit-max-requests does."""
    say("stop")
    await wait_for()
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
        return JSONResponse(await wait_for(request.query_params.get("gate", "")))

    async def result_route(request):
        assert request.state.outlast is app and request.app.state.outlast is app
        return JSONResponse(await result())

    async def elsewhere_route(request):
        return JSONResponse(await elsewhere())

    async def stop_route(request):
        return JSONResponse(await stop())

    web = Starlette(
        routes=[
            Route("/wait", wait_route),
            Route("/result", result_route),
            Route("/elsewhere", elsewhere_route),
            Route("/stop", stop_route),
        ],
        lifespan=living_web,
    )
web.mount("/ops", routes(app))
