"""Compose everything that one process needs to execute runs. `Outlast` is its public face."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from outlast.engine.active_scopes import ActiveScopes
from outlast.engine.batch_acquirer import BatchAcquirer
from outlast.engine.batch_run import Batches
from outlast.engine.children import Children
from outlast.engine.closing import Closing
from outlast.engine.dead_worker_sweeper import Sweeper
from outlast.engine.direct_claim import DirectClaim
from outlast.engine.executing_steps import ExecutingSteps
from outlast.engine.execution_mode import ExecutionMode
from outlast.engine.execution_services import EngineServices
from outlast.engine.execution_starter import ExecutionStarter
from outlast.engine.hooks import Hook, Hooks
from outlast.engine.item_outcomes import ItemOutcomes
from outlast.engine.item_queues import ItemQueues
from outlast.engine.lost_lease import LostLease
from outlast.engine.maintenance import Maintenance
from outlast.engine.message_poller import MessagePoller
from outlast.engine.message_types import MessageTypes
from outlast.engine.request_poller import RequestPoller
from outlast.engine.run_observer import RunObserver
from outlast.engine.run_queues import RunQueues
from outlast.engine.run_reporter import RunReporter
from outlast.engine.run_starter import RunStarter
from outlast.engine.run_waiter import RunWaiter
from outlast.engine.runs import Runs
from outlast.engine.shared_components import SharedComponents
from outlast.engine.stalls import Stalls
from outlast.engine.store_opening import Startup
from outlast.engine.submission_windows import Windows
from outlast.engine.takeover_by_id import FleetRule, Takeover
from outlast.engine.waiting_run_releaser import WaitingRunReleaser
from outlast.engine.watching.followers import Followers
from outlast.engine.workflow_pauses import WorkflowPauses
from outlast.execution.run_execution import RunExecution
from outlast.execution.services import StepBodies
from outlast.execution.shutdown_state import ShutdownState
from outlast.execution.store_access import StoreAccess
from outlast.execution.tracing import Spans
from outlast.settings import Settings
from outlast.settings.redaction import secrets_of
from outlast.store.protocol import Store
from outlast.telemetry.logs import hide
from outlast.telemetry.meters import meters_of

if TYPE_CHECKING:
    from outlast.engine.schedule_rows import Definition
    from outlast.engine.scheduler import Scheduler

log = logging.getLogger("outlast")


class Engine(SharedComponents):
    """Connect the components of one process, and open and close them in order.

    It makes no decisions of its own.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        shutdown: ShutdownState,
        *,
        mode: ExecutionMode | None = None,
        hooks: Mapping[str, Hook] | None = None,
    ) -> None:
        super().__init__(store, settings, loop, shutdown, mode or ExecutionMode())
        meters = meters_of(settings)
        self.hooks = Hooks(
            hooks or {},
            self.client,
            registration=self.worker,
            meters=meters,
            background=self.background,
            log_values=settings.log_values,
        )
        sweeper = Sweeper(
            self.client,
            self.worker,
            self.in_flight,
            hooks=self.hooks,
            meters=meters,
            settings=settings,
        )
        self.stalls = Stalls(self.client, self.worker, self.in_flight, meters, settings.stall_warn)
        self.executing_steps = ExecutingSteps(
            self.client, self.worker, self.in_flight, self.background
        )
        LostLease(
            self.worker,
            self.in_flight,
            self.claimers,
            meters=meters,
            background=self.background,
            shutdown=shutdown,
        )
        self._steps = StepBodies(
            loop,
            self.background.pool,
            overrides=self.mode.step_overrides,
            on_start=self.mode.on_step_start,
        )
        self._meters = meters
        self._spans = Spans()
        self.maintenance = Maintenance(
            sweeper,
            self.client,
            durations=self._steps.durations,
            background=self.background,
            shutdown=shutdown,
            settings=settings,
        )
        claims = DirectClaim(self.client, self.acquirer, self.in_flight, self.isolation, sweeper)
        self._waiting_runs = WaitingRunReleaser(
            self.in_flight, self.claimers, store, shutdown, settings.linger
        )
        self.followers = Followers(
            self.client,
            self.notifier,
            background=self.background,
            shutdown=shutdown,
            settings=settings,
        )
        messages = MessagePoller(self.client, self.background, MessageTypes(self.client))
        requests = self._build_requests(messages)
        observer = self._build_observer(messages, requests)
        self._connect_runs(claims, observer, requests)
        self._connect_batches(claims)
        self.services = self._build_services(observer)
        self._connect_items()

    def _build_requests(self, messages: MessagePoller) -> RequestPoller:
        """Build what polls for messages, cancellations and other requests."""
        requests = RequestPoller(
            self.client,
            self.worker,
            self.in_flight,
            messages,
            background=self.background,
            shutdown=self.shutdown,
            claims=lambda: self.maintenance.has_started,
            on_drain_requested=self.listener.drain_requested,
        )
        self.notifier.subscribe(self.claimers.wake)
        self.notifier.subscribe(requests.poll_soon)
        return requests

    def _build_observer(self, messages: MessagePoller, requests: RequestPoller) -> RunObserver:
        """Build what reacts to the reports of executions."""
        return RunObserver(
            in_flight=self.in_flight,
            claimers=self.claimers,
            notifier=self.notifier,
            requests=requests,
            messages=messages,
            isolation=self.isolation,
            waiting_runs=self._waiting_runs,
            hooks=self.hooks,
            reporter=RunReporter(self._meters, self.settings),
            shutdown=self.shutdown,
            listener=self.listener,
        )

    def _connect_runs(
        self, claims: DirectClaim, observer: RunObserver, requests: RequestPoller
    ) -> None:
        """Build what starts and follows runs."""
        client, in_flight, background = self.client, self.in_flight, self.background
        shutdown, settings = self.shutdown, self.settings
        starter = ExecutionStarter(
            self._build_execution,
            client=client,
            acquirer=self.acquirer,
            in_flight=in_flight,
            workflows=self.workflows,
            read_parent=self._spans.above,
            observer=observer,
            background=background,
            shutdown=shutdown,
        )
        takeover = Takeover(
            claims,
            FleetRule(self.claimers, self.worker, in_flight, client.store),
            starter,
            in_flight=in_flight,
            notifier=self.notifier,
            background=background,
            shutdown=shutdown,
            settings=settings,
            store=client.store,
        )
        observer.report_wanted(takeover.start)
        run_starter = RunStarter(
            self.submissions,
            self.acquirer,
            starter,
            takeover,
            isolation=self.isolation,
            registration=self.worker,
            background=background,
            shutdown=shutdown,
            spans=self._spans,
        )
        self.run_queues = RunQueues(
            starter,
            self.acquirer,
            self.claimers,
            self._waiting_runs,
            isolation=self.isolation,
            client=client,
            workflows=self.workflows,
            pauses=self.pauses,
            background=background,
            settings=settings,
        )
        waiter = RunWaiter(client, in_flight, self.notifier, shutdown, settings.poll)
        self.runs = Runs(run_starter, waiter, takeover, requests)

    def _build_execution(self, *past: Any, **options: Any) -> RunExecution:
        return RunExecution(self.services, *past, **options)

    def _connect_batches(self, claims: DirectClaim) -> None:
        """Build what claims the batches of `each` and `map`."""
        batch_acquirer = BatchAcquirer(
            self.client,
            self.acquirer,
            claims,
            self.submissions,
            in_flight=self.in_flight,
            isolation=self.isolation,
            registration=self.worker,
            notifier=self.notifier,
            shutdown=self.shutdown,
            settings=self.settings,
        )
        self.batches = Batches(
            batch_acquirer,
            self.client,
            self.in_flight,
            self.isolation,
            self.notifier,
            self.shutdown,
            self.settings.error_text_max,
        )

    def _build_services(self, observer: RunObserver) -> EngineServices:
        """Build what every execution receives."""
        client = self.client
        children = Children(
            self.runs,
            client,
            self.workflows,
            sweeper=self.sweeper,
            notifier=self.notifier,
            claimers=self.claimers,
            background=self.background,
            meters=self._meters,
            settings=self.settings,
        )
        return EngineServices(
            store=StoreAccess(
                client.store,
                client.store.now,
                client.writer.enqueue,
                client.writer.execute,
                client.read,
            ),
            steps=self._steps,
            shutdown=self.shutdown,
            children=children,
            observer=observer,
            background=self.background,
            scopes=ActiveScopes(self.listener.scope_left),
            settings=self.settings,
            metrics=self._meters,
            spans=self._spans,
            host=self.loop,
            running=self.in_flight.executions,
            batches=self.batches,
            find_limiters=lambda: self.limiters,
            find_budgets=lambda: self.budgets,
        )

    def _connect_items(self) -> None:
        """Build what claims the items of queues."""
        outcomes = ItemOutcomes(
            self.client,
            self.in_flight,
            maintenance=self.maintenance,
            hooks=self.hooks,
            meters=self._meters,
            shutdown=self.shutdown,
            listener=self.listener,
            error_text_max=self.settings.error_text_max,
        )
        self.items = ItemQueues(
            outcomes,
            self.client,
            self.acquirer,
            self.isolation,
            self.claimers,
            notifier=self.notifier,
            background=self.background,
            shutdown=self.shutdown,
            settings=self.settings,
            on_claiming=self._on_claiming,
        )

    @cached_property
    def scheduler(self) -> Scheduler:
        """Return what fires schedules. Only programs that have schedules load it."""
        from outlast.engine.schedule_rows import ScheduleRows
        from outlast.engine.scheduler import Scheduler

        return Scheduler(
            ScheduleRows(self.client),
            self.submissions,
            self.client,
            background=self.background,
            shutdown=self.shutdown,
            settings=self.settings,
        )

    @cached_property
    def pauses(self) -> WorkflowPauses:
        """Return which workflows are paused, as this process knows it."""
        return WorkflowPauses(self.client, self.settings.poll)

    @cached_property
    def windows(self) -> Windows:
        """Return what submits runs in windows."""
        return Windows(self.client, self.submissions, self.settings.id_length_max)

    @property
    def sweeper(self) -> Sweeper:
        """Return the component that sweeps dead workers."""
        return self.maintenance.sweeper

    @property
    def active_scopes(self) -> ActiveScopes:
        """Return the scopes outside of runs that a drain waits for."""
        return self.services.scopes

    async def open(self, report_waiting: Callable[[str], None] | None = None) -> None:
        """Open the store, start the writer and register this worker. See `Startup.open`."""
        hide(*secrets_of(self.settings))
        startup = Startup(
            self.client,
            self.worker,
            self.notifier,
            background=self.background,
            shutdown=self.shutdown,
            settings=self.settings,
            waits=self.mode.threads,
        )
        await startup.open(report_waiting or log.warning)
        if self.mode.threads:
            self.notifier.poll_every(self.settings.poll)
            self.stalls.start()
            self.executing_steps.start()

    def claim_from(
        self,
        queues: tuple[str, ...],
        concurrency: int,
        schedules: Mapping[str, Definition] | None = None,
    ) -> None:
        """Become a worker: claim and execute runs that other processes submit.

        Set the `schedules` of this worker's code, and fire those of the store.
        """
        self.run_queues.claim_from(queues, concurrency)
        self.scheduler.start(schedules or {})
        self._on_claiming(queues)

    def _on_claiming(self, queues: tuple[str, ...]) -> None:
        self._meters.begin(queues)
        self.maintenance.start()

    async def close(
        self, why: str, *, left_by_task: asyncio.Task[Any] | None, left_by_thread: int | None
    ) -> None:
        """Stop everything that executes and release what has stopped. See `Closing.close`."""
        self.notifier.stop()
        self.stalls.stop()
        self.executing_steps.stop()
        closing = Closing(
            self.in_flight,
            self.claimers,
            self.hooks,
            self.active_scopes,
            registration=self.worker,
            client=self.client,
            background=self.background,
            shutdown=self.shutdown,
        )
        await closing.close(why, left_by_task=left_by_task, left_by_thread=left_by_thread)
