"""embedded.py HOW: a server in a program that has opened an Outlast before. LOOP is asyncio or uvloop."""

import asyncio
import os
import sys

import uvicorn
from said import cleanup, handlers, living, pass_gate, say, two, wakeup_fd

from outlast import Outlast

how = sys.argv[1]


async def plain_web(scope, receive, send) -> None:
    assert scope["type"] == "http"
    say("request-begins")
    await pass_gate(scope["query_string"].decode().partition("=")[2])
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"{}"})


async def serve(web, **options) -> None:
    server = uvicorn.Server(uvicorn.Config(web, port=0, **options))
    asyncio.get_running_loop().create_task(tell_when_it_serves(server))
    await server.serve()
    say("served")


async def tell_when_it_serves(server) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    say("url", f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}")
    say("ready")


async def outside(*, then: float = 0.0) -> None:
    """Open Outlast first. The server's handlers replace ours, and it raises the signal again when it has ended."""
    app = Outlast(lifespan=living)
    app.on_cleanup(cleanup)
    async with app:
        await app.start(two("gate"), id="run")
        await serve(plain_web, lifespan="off")
        try:
            await asyncio.sleep(then)
        except asyncio.CancelledError:
            say("cancelled")
            raise
    say("left")


async def plain() -> None:
    """Serve without Outlast."""
    await serve(plain_web, lifespan="off")


async def main() -> None:
    before = handlers(), wakeup_fd()
    try:
        await {"outside": outside, "outside-and-on": lambda: outside(then=3600), "plain": plain}[
            how
        ]()
    finally:
        say("restored", (handlers(), wakeup_fd()) == before)


if os.environ.get("LOOP") == "uvloop":
    import uvloop

    uvloop.run(main())
else:
    asyncio.run(main())
