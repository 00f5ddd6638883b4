"""Name the phases of a shutdown.

There are two axes, because a drain can begin while the app opens, while it is open and while it
closes. After a drain that no signal began, the program may run for hours.
"""

from __future__ import annotations

from enum import IntEnum


class DrainPhase(IntEnum):
    """How far the drain is."""

    NONE = 0
    """No drain has begun."""
    COORDINATE = 1
    """The worker claims nothing more and releases what has not started."""
    BOUNDARY = 2
    """Steps in flight continue and none starts. A run whose steps have ended is released."""
    CHECKPOINT = 3
    """Steps that did not end in time have the request to stop."""
    DRAINED = 4
    """Nothing more is waited for. Clean-up, the report and the end of the process follow."""

    @property
    def layer(self) -> str | None:
        """Return the name of the layer, as reports and `/drain` show it. None without a drain."""
        if self is DrainPhase.NONE:
            return None
        return "exit" if self is DrainPhase.DRAINED else self.name.lower()


class AppPhase(IntEnum):
    """How far the app is, from opening to leaving its block."""

    OPENING = 0
    """The store is open. Signal handlers, HTTP server and lifespan start."""
    OPEN = 1
    """The program is in the app's block."""
    CLOSING = 2
    """A drain ends, then all executions are stopped and released."""
    CLEANUP = 3
    """Clean-up hooks are called and the lifespan ends."""
    REPORT = 4
    """The report of a drain is stored, and spans are sent."""
    DEREGISTER = 5
    """The worker is deregistered and the store closes."""
    HUNG = 6
    """The block was left, but code still executes. The worker stays registered until it ends."""
    CLOSED = 7
    """The block was left and nothing still executes."""
