"""An Outlast inside somebody's web server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlast.api.outlast import Outlast


def lifespan(app: Outlast) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """What `FastAPI(lifespan=...)` and `Starlette(lifespan=...)` take: `app` is open while the server serves, and is drained and
    left when the server stops. Handlers find it as `request.state.outlast` and `request.app.state.outlast`.

    A signal that stops the server begins the drain at once, beside the server's own shutdown, which takes its time over
    requests under way. A server that stops for another reason drains now: steps under way have `grace` seconds to end.
    """

    @asynccontextmanager
    async def living(server_app: Any) -> AsyncIterator[dict[str, Any]]:
        async with app:
            server_app.state.outlast = app
            yield {"outlast": app}
            app.status_provider.begin_drain("the server stops")  # leaving alone would cancel steps

    return living
