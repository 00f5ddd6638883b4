"""Build what all components of an engine share: the store, the registry, threads and tasks."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING

from outlast.engine.acquirer import WorkAcquirer
from outlast.engine.claimer_set import ClaimerSet
from outlast.engine.execution_mode import ExecutionMode
from outlast.engine.isolation import Isolation
from outlast.engine.known_workflows import KnownWorkflows
from outlast.engine.notifier import ChangeNotifier
from outlast.engine.registration import WorkerRegistration
from outlast.engine.shutdown_listener import ListenerSlot, ShutdownListener
from outlast.engine.store_client import StoreClient
from outlast.engine.submission import Submissions
from outlast.execution.shutdown_state import ShutdownState
from outlast.settings import Settings
from outlast.store.protocol import Store
from outlast.store.writer.group_commit_writer import GroupCommitWriter

if TYPE_CHECKING:
    from outlast.engine.budgets import Budgets
    from outlast.engine.limiters import Limiters


class SharedComponents:
    """The shared parts of one engine. `Engine` adds the components that use them."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        shutdown: ShutdownState,
        mode: ExecutionMode,
    ) -> None:
        self.settings = settings
        self.shutdown = shutdown
        """Whether this process shuts down. Only `shutdown/` writes it."""
        self.mode = mode
        self.background = mode.background(loop, shutdown, settings.log_values)
        writer = mode.writer(
            store,
            loop,
            patience=settings.store_patience,
            batch_max=settings.batch_size_max,
            metered=bool(settings.metrics),
            log_values=settings.log_values,
        )
        self.worker = WorkerRegistration(store, writer, settings, has_threads=mode.threads)
        patience = settings.store_patience
        self.client = StoreClient(store, writer, self.worker, self.background, patience)
        self.notifier = ChangeNotifier(loop)
        self.listener = ListenerSlot()
        self.claimers = ClaimerSet()
        self.in_flight = mode.in_flight(self.listener.hung_work_ended)
        self.isolation = Isolation(
            self.in_flight,
            shutdown,
            patience=settings.suspect_patience,
            on_ended=self.claimers.wake,
        )
        self.acquirer = WorkAcquirer(
            self.client, self.worker, self.in_flight, self.isolation, self.claimers, shutdown
        )
        self.submissions = Submissions(self.client, KnownWorkflows(), self.notifier, settings)

    @cached_property
    def limiters(self) -> Limiters:
        """Return the limiters that this process uses. Few programs have any."""
        from outlast.engine.limiters import Limiters

        return Limiters(self.client, self.background, self.shutdown)

    @cached_property
    def budgets(self) -> Budgets:
        """Return the budgets that this process uses. Few programs have any."""
        from outlast.engine.budgets import Budgets

        return Budgets(self.client, self.background)

    def subscribe(self, listener: ShutdownListener) -> None:
        """Report what a shutdown must know to `listener`. Call this before `open`."""
        self.listener.subscribe(listener)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop that executes this engine."""
        return self.background.loop

    @property
    def store(self) -> Store:
        """Return the store. It blocks: read it with `client.read`."""
        return self.client.store

    @property
    def writer(self) -> GroupCommitWriter:
        """Return the writer, through which every command goes."""
        return self.client.writer

    @property
    def workflows(self) -> KnownWorkflows:
        """Return the workflows that this process can execute."""
        return self.submissions.workflows

    def close_store(self) -> None:
        """Close the writer and the store. It blocks, so call it in a thread."""
        self.writer.close()
        self.store.close()
