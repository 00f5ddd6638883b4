"""Use the runs of a store that this program cannot open, over the HTTP API.

    from outlast.client import Client

    async with Client("https://agents.example.com", token="…") as client:
        run = await client.submit(report("tides"), id="report-1")
        print(await run.result())

`outlast.client.sync` has a `Client` for sync programs. Needs `pip install 'outlast[client]'`.
"""

from outlast.client.calls import NamedCall, call
from outlast.client.client import Client
from outlast.client.errors import ApiError, ServerUnavailable
from outlast.client.queue import Queue
from outlast.client.run import Run
from outlast.client.session import Checkpoint, Session
from outlast.client.watch import Watch

__all__ = [
    "ApiError", "Checkpoint", "Client", "NamedCall", "Queue", "Run", "ServerUnavailable",
    "Session", "Watch", "call",
]  # fmt: skip
