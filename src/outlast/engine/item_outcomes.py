"""Record and report what becomes of items."""

from __future__ import annotations

from typing import Any

from outlast.engine.hooks import Hooks
from outlast.engine.in_flight_registry import InFlight
from outlast.engine.maintenance import Maintenance
from outlast.engine.shutdown_listener import ShutdownListener
from outlast.engine.store_client import StoreClient
from outlast.errors import StoreError
from outlast.execution.shutdown_state import ShutdownState
from outlast.store.commands import Ack, Refused, Release
from outlast.store.rows import RunRow
from outlast.telemetry.meters import Meters


class ItemOutcomes:
    """What the claims of items share: where their ends are recorded and reported."""

    def __init__(
        self,
        client: StoreClient,
        in_flight: InFlight,
        *,
        maintenance: Maintenance,
        hooks: Hooks,
        meters: Meters,
        shutdown: ShutdownState,
        listener: ShutdownListener,
        error_text_max: int,
    ) -> None:
        self.writer = client.writer
        self.in_flight = in_flight
        self.error_text_max = error_text_max
        self._maintenance = maintenance
        self._hooks = hooks
        self._meters = meters
        self._shutdown = shutdown
        self._listener = listener

    def report(self, row: RunRow, command: Ack | Release, outcome: Any) -> None:
        """Count the first outcome of an item."""
        self._meters.item(row.queue, outcome_label(command, outcome))

    def report_lost(self, row: RunRow) -> None:
        """Count an item whose worker was declared dead while its handler executed."""
        self._meters.item(row.queue, "lost")

    def on_recorded(self, row: RunRow, command: Ack | Release, outcome: Any) -> None:
        """Act on an outcome that the store has recorded: prune acked items, report dead letters."""
        if isinstance(command, Ack):
            self._maintenance.item_acked()
        elif outcome == "dead":
            self._hooks.report("dead", row.id)

    def on_handled(self, *, released: bool) -> None:
        """Tell a drain that the handling of an item has ended."""
        if self._shutdown.begun:
            self._listener.item_ended(released=released)


def outcome_label(command: Ack | Release, outcome: Any) -> str:
    """Return an item's outcome, for the metrics."""
    if isinstance(outcome, (Refused, StoreError)):
        return "lost"
    if isinstance(command, Ack):
        return "acked"
    return "nacked" if command.failed else "released"
