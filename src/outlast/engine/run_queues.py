"""Claim runs from queues for this worker, and execute them."""

from __future__ import annotations

from outlast.engine.acquirer import WorkAcquirer
from outlast.engine.background import Background
from outlast.engine.claimer import ClaimedWork, Claimer
from outlast.engine.claimer_set import ClaimerSet
from outlast.engine.execution_starter import ExecutionStarter
from outlast.engine.isolation import Isolation
from outlast.engine.known_workflows import KnownWorkflows
from outlast.engine.store_client import StoreClient
from outlast.engine.waiting_run_releaser import WaitingRunReleaser
from outlast.engine.workflow_pauses import WorkflowPauses
from outlast.settings import Settings


class RunQueues:
    """Make this process a worker that executes runs which other processes submit."""

    def __init__(
        self,
        starter: ExecutionStarter,
        acquirer: WorkAcquirer,
        claimers: ClaimerSet,
        waiting_runs: WaitingRunReleaser,
        *,
        isolation: Isolation,
        client: StoreClient,
        workflows: KnownWorkflows,
        pauses: WorkflowPauses,
        background: Background,
        settings: Settings,
    ) -> None:
        self.starter = starter
        self._acquirer = acquirer
        self._claimers = claimers
        self._idle_releaser = waiting_runs
        self._isolation = isolation
        self._client = client
        self._workflows = workflows
        self._pauses = pauses
        self._background = background
        self._settings = settings

    def claim_from(self, queues: tuple[str, ...], concurrency: int) -> None:
        """Claim runs of the registered workflows in the background, until the claimers stop."""
        claimer = Claimer(
            ClaimedWork(
                queues,
                self._workflows.names,
                self.starter.begin_claimed,
                pauses=self._pauses,
            ),
            concurrency,
            acquirer=self._acquirer,
            isolation=self._isolation,
            client=self._client,
            settings=self._settings,
        )
        self._claimers.add_own(claimer)
        self._background.spawn(claimer.work())
        self._idle_releaser.watch()
