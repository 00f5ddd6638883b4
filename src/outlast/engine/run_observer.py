"""React to what run executions report: their start, progress, messages, end and hung code."""

from __future__ import annotations

from collections.abc import Callable

from outlast.engine.claimer_set import ClaimerSet
from outlast.engine.hooks import Hooks
from outlast.engine.in_flight_registry import InFlight
from outlast.engine.isolation import Isolation
from outlast.engine.message_poller import MessagePoller
from outlast.engine.notifier import ChangeNotifier
from outlast.engine.request_poller import RequestPoller
from outlast.engine.run_reporter import RunReporter
from outlast.engine.shutdown_listener import ShutdownListener
from outlast.engine.waiting_run_releaser import WaitingRunReleaser
from outlast.execution.definitions import WorkflowDefinition
from outlast.execution.execution_state import OutcomeKind, RunOutcome
from outlast.execution.run_execution import RunExecution
from outlast.execution.shutdown_state import ShutdownState
from outlast.store.rows import RunRow


class RunObserver:
    """Pass the reports of executions on to the components that act on them."""

    def __init__(
        self,
        *,
        in_flight: InFlight,
        claimers: ClaimerSet,
        notifier: ChangeNotifier,
        requests: RequestPoller,
        messages: MessagePoller,
        isolation: Isolation,
        waiting_runs: WaitingRunReleaser,
        hooks: Hooks,
        reporter: RunReporter,
        shutdown: ShutdownState,
        listener: ShutdownListener,
    ) -> None:
        self._in_flight = in_flight
        self._claimers = claimers
        self._notifier = notifier
        self._requests = requests
        self._messages = messages
        self._isolation = isolation
        self._idle_releaser = waiting_runs
        self._hooks = hooks
        self._reporter = reporter
        self._shutdown = shutdown
        self._listener = listener
        self._wanted: list[Callable[[RunRow, WorkflowDefinition], None]] = []

    def report_wanted(self, take_over: Callable[[RunRow, WorkflowDefinition], None]) -> None:
        """Call `take_over` for every run that this process lost or left and still wants."""
        self._wanted.append(take_over)

    def _take_over(self, row: RunRow, workflow: WorkflowDefinition) -> None:
        for take_over in self._wanted:
            take_over(row, workflow)

    # -- before and at the start

    def started(self, execution: RunExecution) -> None:
        """Note that an execution has been registered and is about to start."""
        self._reporter.started(execution)
        self._idle_releaser.watch()
        # Callers that wait for the run wait for this execution now.
        self._notifier.notify()

    def recovered(self, kind: str, seconds: float) -> None:
        """Note how long a run was idle after a death or an interruption."""
        self._reporter.recovered(kind, seconds)

    def lost(self, row: RunRow, workflow: WorkflowDefinition, *, claimed: bool) -> None:
        """Take over a run that was lost before its execution began.

        A claimed run is left to the fleet.
        """
        if not claimed:
            self._take_over(row, workflow)

    def parked(self, id: str, *, recorded: bool) -> None:
        """Call the hook for a run that is parked because its journal cannot be read."""
        if recorded:
            self._hooks.report("parked", id)
        self._notifier.notify()

    async def journals_read(self) -> None:
        """Handle cancellations that were requested while journals were read."""
        await self._requests.poll_requests()

    # -- while it executes

    def made_progress(self, execution: RunExecution) -> None:
        """End the isolation of a suspect: the worker may claim other runs again."""
        self._isolation.end(execution.fence)

    def waits_for_messages(self, execution: RunExecution) -> None:
        """Look for messages that the run waits for."""
        self._messages.poll(execution)

    def message_taken(self, execution: RunExecution) -> None:
        """Update what the store says the run waits for."""
        self._messages.report_waiting(execution)

    def became_idle(self, execution: RunExecution) -> None:
        """Let the shutdown release a run of which nothing is in flight."""
        self._listener.became_idle(execution)

    # -- the end

    def nothing_executes(self, execution: RunExecution) -> None:
        """Free the run's slot, so that the next claim is written after the run's end."""
        self._in_flight.release_slot(execution.fence)

    def hung(self, execution: RunExecution) -> None:
        """Keep the run: the app closed while its code still executes."""
        self._in_flight.hang(execution.row)

    def finished_late(self, execution: RunExecution) -> None:
        """Drop a hung run whose code has ended.

        If the store did not accept its last command, deregistering the worker releases it.
        """
        self._in_flight.drop(execution.fence)

    def ended(self, execution: RunExecution, outcome: RunOutcome) -> None:
        """Clean up after an execution, and take its run over again if it is still wanted.

        A run that was started here and has not ended is wanted, unless this process drains.
        """
        self._in_flight.remove_execution(execution)
        self._messages.forget(execution.id)
        self._in_flight.release_slot(execution.fence)
        if not self._in_flight.is_hung(execution.fence):
            self._in_flight.drop(execution.fence)
        if outcome.kind is OutcomeKind.PARKED:
            self._hooks.report("parked", execution.id)
        elif outcome.became_dead:
            self._hooks.report("dead", execution.id)
        self._reporter.ended(execution, outcome)
        if self._shutdown.begun:
            self._listener.run_ended(execution, outcome)
        # Its parent may have waited for it, or its queue may have room now.
        self._claimers.wake()
        if outcome.is_wanted_back and not execution.claimed and not self._shutdown.begun:
            self._take_over(execution.row, execution.workflow)
