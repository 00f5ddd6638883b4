"""Open a remote client to the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outlast.client.client import Client
    from outlast.client.transport import Transport


def transport_of(client: Client) -> Transport:
    """Return what sends the requests of an open client."""
    return client._open
