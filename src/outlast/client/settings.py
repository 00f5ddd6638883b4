"""Determine the server of a client, its token, and its timeouts."""

from __future__ import annotations

from typing import NamedTuple

from outlast.client.retry_policy import RetryPolicy
from outlast.errors import SettingsError
from outlast.settings.load import load


class ServerAccess(NamedTuple):
    """Where the HTTP API is, and how a client uses it."""

    url: str
    token: str
    policy: RetryPolicy


def server_access(
    url: str | None,
    token: str | None,
    *,
    timeout: float | None = None,
    patience: float | None = None,
    backoff: float | None = None,
    backoff_max: float | None = None,
) -> ServerAccess:
    """Return the access from these options and the settings.

    Raise SettingsError if there is no URL.
    """
    loaded = load(
        {
            "server": url,
            "token": token,
            "client_timeout": timeout,
            "client_patience": patience,
            "client_backoff": backoff,
            "client_backoff_max": backoff_max,
        }
    )
    found = loaded.server()
    if not found:
        raise SettingsError(
            "no server is set. Pass the URL of an `outlast serve`, like "
            "Client('http://127.0.0.1:8000'), or set OUTLAST_SERVER."
        )
    settings = loaded.settings
    policy = RetryPolicy(
        settings.client_timeout,
        settings.client_patience,
        settings.client_backoff,
        settings.client_backoff_max,
    )
    return ServerAccess(found, settings.token, policy)
