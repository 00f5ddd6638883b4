"""Open a sync app to adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outlast.api import outlast as core
    from outlast.sync.app import Outlast
    from outlast.sync.portal import Portal


def core_of(app: Outlast) -> core.Outlast:
    """Return the async app that a sync app uses."""
    return app._async


def portal_of(app: Outlast) -> Portal:
    """Return the event loop of an open sync app. Raise OutlastError if it is not open."""
    return app._open
