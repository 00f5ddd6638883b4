"""Find out whether a command works on a store or over the HTTP API of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, Union

from outlast.api.outlast import Outlast
from outlast.cli.os_user import os_user
from outlast.settings.load import load

if TYPE_CHECKING:
    from outlast.client.client import Client

App: TypeAlias = Union[Outlast, "Client"]
"""What a command acts through. Both have the same methods."""


def is_url(address: str | None) -> bool:
    """Return whether an address is the URL of a server."""
    return address is not None and address.startswith(("http://", "https://"))


def server_of(address: str | None) -> str | None:
    """Return the URL of --server or OUTLAST_SERVER. None if a command works on a store."""
    if address is not None:
        return address if is_url(address) else None
    return load({}).server() or None


def caller_options(app: App) -> dict[str, Any]:
    """Return `by` for an action on a store. A server knows its caller by the token."""
    return {"by": os_user()} if isinstance(app, Outlast) else {}
