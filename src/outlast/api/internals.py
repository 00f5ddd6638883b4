"""Open an app to the layers above `api`: the command line, sync programs, adapters and tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outlast.api.lifecycle import AppLifecycle
    from outlast.api.outlast import Outlast


def internals(app: Outlast) -> AppLifecycle:
    """Return the engine, the shutdown, the options and the process of an app, in one object."""
    return app._lifecycle
