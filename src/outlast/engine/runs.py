"""Start, follow and cancel runs on behalf of callers in this process."""

from __future__ import annotations

from typing import Any

from outlast.engine.request_poller import RequestPoller
from outlast.engine.run_starter import RunStarter
from outlast.engine.run_waiter import RunWaiter
from outlast.engine.submission import OnConflict
from outlast.engine.takeover_by_id import Takeover
from outlast.execution.definitions import WorkflowCall
from outlast.execution.execution_state import RunOutcome
from outlast.store.rows import RunRow


class Runs:
    """What a caller can do with runs."""

    def __init__(
        self,
        starter: RunStarter,
        waiter: RunWaiter,
        takeover: Takeover,
        requests: RequestPoller,
    ) -> None:
        self._starter = starter
        self._waiter = waiter
        self.takeover = takeover
        self.requests = requests

    async def start(
        self,
        call: WorkflowCall,
        id: str,
        parent: RunRow | None = None,
        on_conflict: OnConflict = "raise",
    ) -> RunRow:
        """Start a run in this process, take it over, or join it. See `RunStarter.start`."""
        return await self._starter.start(call, id, parent, on_conflict)

    async def wait_until_ended(self, id: str) -> RunOutcome:
        """Wait until a run has ended or is parked, in any process. See `RunWaiter.until_ended`."""
        return await self._waiter.until_ended(id)

    async def while_parked(self, id: str) -> None:
        """Wait until a run is no longer parked."""
        await self._waiter.while_parked(id)

    async def cancel(self, id: str, why: str) -> Any:
        """Request the cancellation of a run and return the store's outcome."""
        return await self.requests.cancel(id, why)
