"""Hold what most steps in flight never have: an effect, a drain's request.

A step gets one of these when it first needs it, which keeps the state of a plain step small.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlast.execution.progress import Progress
    from outlast.execution.step_execution import StepExecution

Listener = Callable[[str], object]


class DrainRequest:
    """What a step has registered for a drain, and what the drain has asked of it."""

    __slots__ = ("aware", "cut", "leaving", "listeners", "progress")

    def __init__(self) -> None:
        self.leaving: str | None = None
        """Why a drain asked the step to stop. What the step returns after that may be cut short."""
        self.cut = False
        """True if the step was cancelled for that reason."""
        self.aware = False
        """True if the step has checked whether it must stop."""
        self.progress: list[Progress[Any]] = []
        """The open progress blocks of the step and of the steps within it."""
        self.listeners: list[tuple[StepExecution, Listener]] = []
        """Callbacks to notify of a drain, each with the step that registered it: the step itself
        or one within it."""

    @property
    def is_cut(self) -> bool:
        """Return whether the step's result may be cut short.

        A thread cannot be cancelled, so its result is complete unless the step checked whether it
        must stop.
        """
        return self.leaving is not None and (self.aware or self.cut)

    @property
    def must_stop(self) -> bool:
        """Return whether the step was asked to stop and is not cancelled yet."""
        return self.leaving is not None and not self.cut

    def ask_to_stop(self, why: str) -> None:
        """Note that a drain asks the step to stop."""
        self.leaving = why

    def note_cut(self) -> None:
        """Note that the step is cancelled because it was asked to stop."""
        self.cut = True

    def note_aware(self) -> None:
        """Note that the step has checked whether it must stop."""
        self.aware = True

    def add_listener(self, step: StepExecution, listener: Listener) -> None:
        """Register a callback of an attempt of a step. A step that listens knows of drains."""
        self.aware = True
        self.listeners.append((step, listener))

    def take_listeners(self) -> list[Listener]:
        """Return every callback, and forget them: each is called once."""
        taken, self.listeners = self.listeners, []
        return [listener for _, listener in taken]

    def forget_listeners(self, step: StepExecution) -> None:
        """Forget the callbacks of an attempt that has ended.

        The attempt of the outermost step takes those of the steps within it along.
        """
        if self.listeners:
            self.listeners = [
                one for one in self.listeners if one[0] is not step and step.outer is not step
            ]


class EffectState:
    """What a step that executes an effect has in addition."""

    __slots__ = ("key", "nudge", "shielded", "threads")

    def __init__(self) -> None:
        self.key: str | None = None
        """The idempotency key of the last act. None before the first intent is durable."""
        self.shielded = False
        """True while the effect acts. Only its own time-out interrupts it."""
        self.threads: tuple[asyncio.Future[Any], ...] = ()
        """Threads that the effect started with `asyncio.to_thread`. They continue when its
        time-out interrupts the effect."""
        self.nudge = asyncio.Event()
        """Set when the workflow cancels the effect."""

    def begin_act(self, key: str) -> None:
        """Note that the effect acts from now on, under this key."""
        self.key = key
        self.shielded = True

    def end_act(self) -> None:
        """Note that the effect does not act now."""
        self.shielded = False

    def add_thread(self, thread: asyncio.Future[Any]) -> None:
        """Note a thread that the effect has started."""
        self.threads = (*self.threads, thread)
