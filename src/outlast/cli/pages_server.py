"""Serve the web UI from a command: of its own, or beside the work of a worker."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import typer

from outlast.api.outlast import Outlast
from outlast.errors import SettingsError
from outlast.settings.http_address import is_for_this_machine, parse

LOCAL = "local"
"""The name that is recorded for the visitor of a UI without tokens."""


class PagesServer:
    """The server of the web UI, and the link that a command prints for it.

    Raise SettingsError if others can reach the address and nothing says who may use the UI.
    """

    def __init__(self, app: Outlast, address: str) -> None:
        parse(address)
        self._token = _own_token(address) if not app.settings.api_tokens else None
        from outlast.http.api_server import ApiServer

        tokens = None if self._token is None else [f"{LOCAL}:operator:{self._token}"]
        self.server = ApiServer(app, address, tokens=tokens, has_ui=True)

    def print_link(self) -> None:
        """Print where the UI is. Without tokens the link signs its reader in."""
        path = "/" if self._token is None else f"/login?token={self._token}"
        typer.echo(f"Open {self.server.url}{path}")

    @asynccontextmanager
    async def around(self, app: Outlast) -> AsyncIterator[None]:
        """Open the app and serve its UI meanwhile. The server stops beside the drain.

        Raise SettingsError before anything is claimed if the address cannot be listened on.
        """
        self.server.start()
        stopping: asyncio.Future[None] | None = None
        try:
            async with app:
                self.print_link()
                try:
                    yield
                finally:
                    stopping = asyncio.ensure_future(self.server.stop())
        finally:
            await (self.server.stop() if stopping is None else stopping)


def _own_token(address: str) -> str:
    """Return a token for this process. Raise SettingsError if others can reach the address."""
    if not is_for_this_machine(address):
        raise SettingsError(
            f"the address {address} can be reached from elsewhere, and OUTLAST_API_TOKENS is not "
            "set. Set it to name:role:token,… or listen on 127.0.0.1."
        )
    return secrets.token_urlsafe(24)
