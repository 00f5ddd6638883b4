"""Use the runs of a store that this program cannot open, over the HTTP API.

    from outlast.client import Client

    async with Client("https://agents.example.com", token="…") as client:
        run = await client.submit(report("tides"), id="report-1")
        print(await run.result())

`outlast.client.sync` has a `Client` for sync programs. Needs `pip install 'outlast[client]'`.
"""

from typing import TYPE_CHECKING

from outlast.api.lazy_names import lazy_names

if TYPE_CHECKING:
    from outlast.client.calls import NamedCall, call
    from outlast.client.client import Client
    from outlast.client.errors import ApiError, ServerUnavailable
    from outlast.client.queue import Queue
    from outlast.client.run import Run
    from outlast.client.session import Checkpoint, Session
    from outlast.client.watch import Watch
else:
    # The command line needs the errors alone.
    __getattr__ = lazy_names(
        globals(),
        {
            "ApiError": "outlast.client.errors",
            "Checkpoint": "outlast.client.session",
            "Client": "outlast.client.client",
            "NamedCall": "outlast.client.calls",
            "Queue": "outlast.client.queue",
            "Run": "outlast.client.run",
            "ServerUnavailable": "outlast.client.errors",
            "Session": "outlast.client.session",
            "Watch": "outlast.client.watch",
            "call": "outlast.client.calls",
        },
    )

__all__ = [
    "ApiError", "Checkpoint", "Client", "NamedCall", "Queue", "Run", "ServerUnavailable",
    "Session", "Watch", "call",
]  # fmt: skip
