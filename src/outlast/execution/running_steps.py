"""Track what of a run executes in this process: its steps, their threads and its units."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from outlast.execution.resources import Resources
from outlast.execution.step_uses import RunBudgets
from outlast.store.stream_rows import PartInfo

if TYPE_CHECKING:
    from outlast.execution.publishing import Publisher
    from outlast.execution.step_execution import StepExecution


class SavedProgress:
    """The progress of the run's steps that have not ended, by key."""

    __slots__ = ("_owners", "_texts")

    def __init__(self, saved: Mapping[str, str] | None) -> None:
        self._texts: dict[str, str] = dict(saved) if saved else {}
        self._owners: dict[str, int] = {}
        """The step execution that saves under each key. A step within a step has a new one in
        every attempt of the outer step, and each starts at attempt 1."""

    def take(self, key: str, step: StepExecution) -> str | None:
        """Let a step execution save under a key, and return what was saved there before."""
        self._owners[key] = id(step)
        return self._texts.get(key)

    def is_owner(self, key: str, step: StepExecution) -> bool:
        return self._owners.get(key) == id(step)

    def remember(self, key: str, text: str) -> None:
        """Keep a text for the next attempt in this execution."""
        self._texts[key] = text


class PublishedParts:
    """What earlier attempts of the run's unfinished steps have published."""

    __slots__ = ("_attempts", "streams")

    def __init__(self, parts: Iterable[PartInfo] = ()) -> None:
        self._attempts = 0
        self.streams: dict[str, dict[str, Publisher | None]] = {}
        """By writer and stream, the publisher of the last attempt in this execution."""
        for part in parts:
            self.add(part.writer, part.stream)

    def next_attempt(self) -> int:
        """Return the number of a new attempt. It grows, whichever step the attempt is of."""
        self._attempts += 1
        return self._attempts

    def streams_of(self, writer: str) -> list[str]:
        return sorted(self.streams.get(writer, ()))

    def last(self, writer: str, stream: str) -> Publisher | None:
        return self.streams[writer][stream]

    def add(self, writer: str, stream: str, publisher: Publisher | None = None) -> None:
        self.streams.setdefault(writer, {})[stream] = publisher

    def forget(self, writer: str) -> None:
        """Forget the parts of a step that has ended."""
        self.streams.pop(writer, None)


class RunningSteps:
    """The steps of one run in flight, with their threads."""

    __slots__ = (
        "_budgets",
        "_idle_check_scheduled",
        "_nested",
        "_orphan_threads",
        "interrupted",
        "open_units",
        "progress",
        "published",
        "resources",
        "tasks",
        "threads",
    )

    def __init__(
        self,
        host: asyncio.AbstractEventLoop,
        saved: Mapping[str, str] | None,
        parts: Iterable[PartInfo] = (),
    ) -> None:
        self.tasks: dict[asyncio.Task[Any], StepExecution | None] = {}
        """Tasks of the steps in flight. The value is None for tasks that follow children or
        sessions."""
        self._nested: dict[StepExecution, int] = {}
        """How many steps each step calls at the moment, by the step of the workflow."""
        self.open_units = 0
        """The number of units the workflow is in. A drain waits for them."""
        self.interrupted = False
        """True once a drain has asked a step of this run to stop."""
        self.threads: set[asyncio.Future[Any]] = set()
        """Threads that execute a step's function. A thread outlives its step if the step was
        cancelled or timed out."""
        self._orphan_threads: list[asyncio.Future[Any]] = []
        """Threads that effects started and no longer wait for."""
        self.progress = SavedProgress(saved)
        self.published = PublishedParts(parts)
        self.resources = Resources(host)
        """What the steps have opened and share."""
        self._budgets: RunBudgets | None = None
        self._idle_check_scheduled = False

    # -- steps

    def add(self, task: asyncio.Task[Any], step: StepExecution) -> None:
        self.tasks[task] = step

    def discard(self, task: asyncio.Task[Any] | None) -> None:
        if task is not None:
            self.tasks.pop(task, None)

    def follow(self, task: asyncio.Task[Any]) -> None:
        """Track a task that follows a child or a session call until it ends."""
        self.tasks[task] = None
        task.add_done_callback(self.discard)

    def forget_done(self) -> None:
        """Drop the tasks that have ended.

        A task that was cancelled before its first turn could not remove itself.
        """
        self.tasks = {task: step for task, step in self.tasks.items() if not task.done()}

    def executing(self) -> list[StepExecution]:
        """Return the steps that execute now.

        Steps that wait for their next attempt and tasks that follow children do not count.
        """
        return [step for step in list(self.tasks.values()) if step is not None and not step.idle]

    @property
    def budgets(self) -> RunBudgets:
        """Return the budgets that the steps use. They are attached on first use."""
        if self._budgets is None:
            self._budgets = RunBudgets()
        return self._budgets

    def enter_nested(self, outer: StepExecution) -> None:
        self._nested[outer] = self._nested.get(outer, 0) + 1

    def leave_nested(self, outer: StepExecution) -> None:
        self._nested[outer] -= 1
        if not self._nested[outer]:
            del self._nested[outer]

    @property
    def executes_nested(self) -> bool:
        """Return whether a step executes that another step called."""
        return any(not outer.is_blocked for outer in self._nested)

    def interrupt(self) -> None:
        """Note that a drain has asked a step of this run to stop."""
        self.interrupted = True

    def begin_idle_check(self) -> bool:
        """Note that a check for idleness is scheduled. Return False if one was already."""
        was_scheduled, self._idle_check_scheduled = self._idle_check_scheduled, True
        return not was_scheduled

    def end_idle_check(self) -> None:
        self._idle_check_scheduled = False

    # -- threads

    def watch_thread(self, thread: asyncio.Future[Any], on_end: Callable[[], None]) -> None:
        """Track a thread that executes code of the run until the thread ends."""

        def ended(thread: asyncio.Future[Any]) -> None:
            self.threads.discard(thread)
            if not thread.cancelled():
                # Mark the exception as retrieved, even if nothing still awaits the thread.
                thread.exception()
            on_end()

        self.threads.add(thread)
        thread.add_done_callback(ended)

    def add_orphan(self, thread: asyncio.Future[Any]) -> None:
        """Track a thread that an effect started. It may outlive the effect's time-out."""
        self._orphan_threads.append(thread)

    @property
    def orphans_alive(self) -> list[asyncio.Future[Any]]:
        return [thread for thread in self._orphan_threads if not thread.done()]

    # -- units

    def enter_unit(self) -> None:
        self.open_units += 1

    def leave_unit(self) -> None:
        """Leave a unit. A drain whose time is up may have closed all of them."""
        self.open_units = max(0, self.open_units - 1)

    def close_units(self) -> None:
        """Let no unit keep the run in this process any longer."""
        self.open_units = 0
