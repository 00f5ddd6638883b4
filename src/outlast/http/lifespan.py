"""An Outlast inside somebody's web server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlast.app.outlast import Outlast


def lifespan(app: Outlast) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """What `FastAPI(lifespan=...)` and `Starlette(lifespan=...)` take: `app` is open while the server serves, and is left,
    which drains it, when the server shuts down. Handlers find it as `request.state.outlast` and `request.app.state.outlast`."""

    @asynccontextmanager
    async def living(server_app: Any) -> AsyncIterator[dict[str, Any]]:
        async with app:
            server_app.state.outlast = app
            yield {"outlast": app}

    return living
