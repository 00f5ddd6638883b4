"""Open an app and close it: its engine, its shutdown coordinator, its HTTP server, its lifespan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any

from outlast.api.context import Place, place
from outlast.errors import NotInStep, OutlastError
from outlast.execution.refusal import refused
from outlast.execution.threads import Executor
from outlast.shutdown.cleanup import CleanupRunner
from outlast.shutdown.phases import AppPhase
from outlast.shutdown.process import ProcessRole, check_not_ending

if TYPE_CHECKING:
    from outlast.api.app_config import AppConfig
    from outlast.api.outlast import Outlast
    from outlast.engine.engine import Engine
    from outlast.engine.execution_mode import ExecutionMode
    from outlast.engine.hooks import Hook
    from outlast.http import Server
    from outlast.http.status import AppStatus
    from outlast.shutdown.coordinator import ShutdownCoordinator

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
"""Takes the app and returns a context manager around everything that executes in it."""
WHY_CLOSED = "the program closed Outlast"
"""The reason that is recorded for runs released at close."""


class AppLifecycle:
    """The openings of one app, one after the other. Each has an engine of its own."""

    def __init__(
        self, config: AppConfig, lifespan: Lifespan | None, hooks: Mapping[str, Hook]
    ) -> None:
        self.config = config
        self.lifespan = lifespan
        self.hooks = dict(hooks)
        """Hooks by what a run became: parked or dead."""
        self.cleanup = CleanupRunner()
        self.mode: ExecutionMode | None = None
        """How the engine executes. None: with threads, on the real clock."""
        self._report_waiting: Callable[[str], None] | None = None
        self._role = ProcessRole.SHARED
        self._leave_block: Callable[[], object] | None = None
        self._engine: Engine | None = None
        self._coordinator: ShutdownCoordinator | None = None
        """Shuts down the current opening, or the last one."""
        self._status: AppStatus | None = None

    def set_process(
        self, role: ProcessRole, leave_block: Callable[[], object] | None = None
    ) -> None:
        """Set whose process this is, before opening. By default it is the user's program.

        `leave_block` leaves the app's block on the event loop if a signal ends the program.
        """
        self._role = role
        self._leave_block = leave_block

    def report_waiting(self, report: Callable[[str], None]) -> None:
        """Report with this function that opening waits for the store. By default it is logged."""
        self._report_waiting = report

    # -- the current opening

    @property
    def is_open(self) -> bool:
        """Return whether the app is open, or closing."""
        return self._engine is not None

    @property
    def engine(self) -> Engine:
        """Return the engine. Raise OutlastError if the app is not open."""
        if self._engine is None:
            raise _not_open()
        return self._engine

    def outside(self, what: str, instead: str | None = None) -> Engine:
        """Return the engine for a call `app.{what}()`. Raise NotInStep in a workflow's own code."""
        if place() in (Place.WORKFLOW, Place.SYNC_WORKFLOW):
            raise refused(
                NotInStep(
                    f"app.{what}() was called in a workflow's own code, where its answers would "
                    f"differ when the run is replayed. Use {instead or f'outlast.{what}()'} there."
                )
            )
        return self.engine

    @property
    def shutdown(self) -> ShutdownCoordinator:
        """Return the coordinator. Raise OutlastError if the app is not open."""
        if self._engine is None or self._coordinator is None:
            raise _not_open()
        return self._coordinator

    @property
    def status(self) -> AppStatus:
        """Return the status that the HTTP routes show."""
        if self._status is None:
            from outlast.http.status import AppStatus

            self._status = AppStatus(self.engine, self.shutdown)
        return self._status

    # -- after the last opening

    @property
    def exit_code(self) -> int:
        """Return the exit code of an owned process after its app was left."""
        return 0 if self._coordinator is None else self._coordinator.process.exit_code

    @property
    def is_hung(self) -> bool:
        """Return whether something still executes although the app was left."""
        return self._coordinator is not None and self._coordinator.app_phase is AppPhase.HUNG

    # -- opening and closing

    async def open(self, app: Outlast) -> None:
        """Open the store, begin to receive signals, enter the lifespan, and claim runs if a worker.

        Whatever was opened is closed again if a later part fails.
        """
        # Loads the engine.
        from outlast.api import opening

        if self._engine is not None:
            raise OutlastError("this Outlast is already open. Create another one.")
        self.config.check_worker()
        check_not_ending(self._role)
        engine = opening.build_engine(self.config, self.hooks, self.mode)
        server, lifespan = self._http_server(app), AsyncExitStack()
        callbacks = opening.AppCallbacks(
            leave_block=self._leave_block or (lambda: engine.loop.create_task(app.__aexit__())),
            cleanup=self.cleanup,
            exit_lifespan=lifespan.aclose,
            stop_server=None if server is None else server.stopped,
        )
        coordinator = opening.ShutdownCoordinator(engine, self._role, callbacks)
        engine.subscribe(coordinator)
        try:
            await engine.open(self._report_waiting)
        except BaseException:
            coordinator.abandon_opening()
            raise
        self._engine, self._coordinator = engine, coordinator
        try:
            coordinator.start()
            if server is not None:
                server.start()
            if self._role.is_owned:
                engine.loop.set_default_executor(Executor())
            if self.lifespan is not None:
                await lifespan.enter_async_context(self.lifespan(app))
        except BaseException:
            await self.close()
            raise
        if self.config.worker:
            opening.claim(engine, self.config)
        coordinator.opened()

    def _http_server(self, app: Outlast) -> Server | None:
        """Return the HTTP server of one opening, or None if the settings ask for none."""
        address = self.config.settings.http
        executes_inline = self.mode is not None and not self.mode.threads
        if executes_inline or not address:
            return None
        from outlast.http import Server

        return Server(app, address)

    async def close(self, *, left_by: int | None = None) -> None:
        """Close the app. `left_by` is the thread that leaves it, in a sync program."""
        shutdown = self.shutdown
        try:
            await shutdown.leave(WHY_CLOSED, left_by=left_by)
        finally:
            self._engine = None
            self._status = None


def _not_open() -> OutlastError:
    return OutlastError("this Outlast is not open: use `async with Outlast(...) as app:`.")
