"""Define what the engine reports to the layer that shuts it down."""

from __future__ import annotations

from typing import Protocol

from outlast.engine.active_scopes import ActiveScope
from outlast.execution.execution_state import RunOutcome
from outlast.execution.run_execution import RunExecution


class ShutdownListener(Protocol):
    """Receives what a shutdown must know. The first three are called only after it has begun."""

    def became_idle(self, execution: RunExecution) -> None:
        """Note that nothing of a run is in flight, so that it may be released."""

    def run_ended(self, execution: RunExecution, outcome: RunOutcome) -> None:
        """Note that an execution of a run has ended."""

    def item_ended(self, *, released: bool) -> None:
        """Note that an item's handler has ended. `released` items go to another worker."""

    def scope_left(self, scope: ActiveScope) -> None:
        """Note that a scope outside of any run has ended. May be called from any thread."""

    def hung_work_ended(self) -> None:
        """Note that code which outlived the close of the app has ended."""

    def drain_requested(self, reason: str) -> None:
        """Begin a drain that another process has requested through the store."""


class ListenerSlot:
    """Pass every report on to the listener that subscribed. Components exist before it does."""

    _listener: ShutdownListener

    def subscribe(self, listener: ShutdownListener) -> None:
        """Report to this listener from now on."""
        self._listener = listener

    def became_idle(self, execution: RunExecution) -> None:
        self._listener.became_idle(execution)

    def run_ended(self, execution: RunExecution, outcome: RunOutcome) -> None:
        self._listener.run_ended(execution, outcome)

    def item_ended(self, *, released: bool) -> None:
        self._listener.item_ended(released=released)

    def scope_left(self, scope: ActiveScope) -> None:
        self._listener.scope_left(scope)

    def hung_work_ended(self) -> None:
        self._listener.hung_work_ended()

    def drain_requested(self, reason: str) -> None:
        self._listener.drain_requested(reason)
