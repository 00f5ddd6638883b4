"""Define the events that a viewer of a run receives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class DataEvent:
    """A value that the run has published."""

    kind: ClassVar[str] = "data"
    cursor: str
    """Pass it as `after` to receive what follows this event."""
    value: Any
    """Plain JSON. A viewer of a text joins the strings."""

    def document(self) -> dict[str, Any]:
        """Return the event as plain JSON."""
        return {"kind": self.kind, "cursor": self.cursor, "value": self.value}


@dataclass(frozen=True, slots=True)
class ResetEvent:
    """What the viewer has received so far no longer holds. The stream begins again after this."""

    kind: ClassVar[str] = "reset"
    cursor: str
    """Pass it as `after` to receive what follows this event."""

    def document(self) -> dict[str, Any]:
        """Return the event as plain JSON."""
        return {"kind": self.kind, "cursor": self.cursor}


@dataclass(frozen=True, slots=True)
class EndEvent:
    """The run has ended, and this is all that it has published."""

    kind: ClassVar[str] = "end"
    cursor: str
    """Pass it as `after` to receive this event again, or a `reset` if the run is retried."""
    status: str
    """`done`, `failed`, `cancelled` or `dead`."""
    result: Any
    """The result of a run that is done, as plain JSON."""
    error: dict[str, Any] | None
    """The type, the message and the traceback of the error of a run that failed."""
    reason: str | None
    """Why the run was cancelled or is dead."""

    def document(self) -> dict[str, Any]:
        """Return the event as plain JSON."""
        return {
            "kind": self.kind,
            "cursor": self.cursor,
            "status": self.status,
            "result": self.result,
            "error": self.error,
            "reason": self.reason,
        }


WatchEvent = DataEvent | ResetEvent | EndEvent
