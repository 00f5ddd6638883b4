"""Serve a store from another thread, for programs that block."""

import asyncio
from contextlib import contextmanager

from client_tools import remote

from outlast.sync.portal import Portal


@contextmanager
def served_store(store="memory:", **settings):
    """Yield a `Remote` and a function that executes a coroutine function on its event loop."""
    portal = Portal()
    ready = asyncio.Event()
    found = []

    async def serve():
        async with remote(store, **settings) as one:
            found.append(one)
            ready.set()
            await asyncio.Event().wait()

    async def start():
        found.append(asyncio.ensure_future(serve()))
        await ready.wait()

    portal.call(start)
    try:
        yield found[1], portal.call
    finally:
        portal.close(30.0)
