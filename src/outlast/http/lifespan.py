"""Run an Outlast inside a web server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from outlast.http.status import DrainableApp


def lifespan(app: DrainableApp) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """Return a lifespan for `FastAPI(lifespan=...)` and `Starlette(lifespan=...)`.

    `app` is open while the server serves, and is drained and closed when the server stops. Handlers
    find it as `request.state.outlast` and `request.app.state.outlast`.

    A signal that stops the server begins the drain at once, in parallel with the server's own
    shutdown, which may wait for requests in flight. If the server stops for another reason, the
    drain begins then: steps in flight have `grace` seconds to end.
    """

    @asynccontextmanager
    async def living(server_app: Any) -> AsyncIterator[dict[str, Any]]:
        async with app:
            server_app.state.outlast = app
            yield {"outlast": app}
            # Closing without a drain would cancel steps.
            app.status_provider.begin_drain("the server stops")

    return living
