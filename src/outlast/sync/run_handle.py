"""Define `Run` for sync programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from outlast.engine.inspection import RunInfo
    from outlast.sync.portal import Portal

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class AwaitedRun(Protocol[R_co]):
    """A handle on a run of an async program."""

    @property
    def id(self) -> str: ...

    async def result(self, timeout: float | None = None) -> R_co:
        """Wait for the run to end and return its result."""
        ...

    async def info(self) -> RunInfo:
        """Return the run's current state."""
        ...


class Run(Generic[R]):
    """A handle on a run, wherever it executes.

    `run.result()` returns the workflow's result, or raises an error if there is none.
    """

    def __init__(self, portal: Portal, run: AwaitedRun[R]) -> None:
        self._portal, self._run = portal, run

    @property
    def id(self) -> str:
        """Return the run's id."""
        return self._run.id

    def result(self, timeout: float | None = None) -> R:
        """Wait for the run to end and return its result.

        A failure is raised as the workflow's own exception where that is safe, else as RunFailed.
        RunCancelled, RunTimeout, RunParked and RunDead say how else it ended. Raise TimeoutError
        after `timeout` seconds.
        """
        return self._portal.call(self._run.result, timeout)

    def info(self) -> RunInfo:
        """Return the run's current state. Raise UnknownRun if it does not exist."""
        return self._portal.call(self._run.info)

    def __repr__(self) -> str:
        return repr(self._run)
