"""A program that calls `run`, and gets SIGTERM while its HTTP server stops: `drain_at_the_end.py STORE`.

The run has ended by then. A second SIGTERM follows before the interpreter has shut down.
"""

import asyncio
import signal
import sys

from drain_flows import chain

from outlast import Outlast, run
from outlast.http import Server

stopped = Server.stopped
apps: list[Outlast] = []
enter = Outlast.__aenter__


async def enter_and_remember(app: Outlast) -> Outlast:
    apps.append(app)
    return await enter(app)


async def be_told_then_stop(server: Server, timeout: float) -> None:
    signal.raise_signal(signal.SIGTERM)
    while not apps[0].status_provider.drain_view()["draining"]:
        await asyncio.sleep(0.01)
    await stopped(server, timeout)


Outlast.__aenter__ = enter_and_remember  # type: ignore[method-assign]
Server.stopped = be_told_then_stop  # type: ignore[method-assign]
print(run(chain(0, 1, 0.0), id="r0", store=sys.argv[1]))
signal.raise_signal(signal.SIGTERM)
