"""Hold the state of one step in flight."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextvars import ContextVar
from enum import Enum, auto
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from outlast.codec.cost import NAMES_MAX, Cost
from outlast.codec.exceptions import encode_error
from outlast.execution import recording
from outlast.execution.effects_from_journal import UNDO
from outlast.telemetry.error_text import format_error

if TYPE_CHECKING:
    from outlast.execution.progress import Progress
    from outlast.execution.publishing import Publisher
    from outlast.execution.run_execution import RunExecution

BODY: ContextVar[StepExecution | None] = ContextVar("outlast_body", default=None)
"""The step execution that the current code belongs to."""

log = logging.getLogger("outlast.replay")
_spending = threading.Lock()
"""Guards sums of costs: steps report them from any thread. It is held for one addition."""


OVER: dict[tuple[str, str], Publisher] = {}
"""The publishers of an attempt that has ended. What the attempt left behind publishes nothing."""


class StepState(Enum):
    """What a step in flight does."""

    SCHEDULED = auto()
    """Its task has not had its first turn."""
    EXECUTING = auto()
    IDLE = auto()
    """It waits for its next attempt, and nothing of it executes."""


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
        self.listeners: list[tuple[StepExecution, Callable[[str], object]]] = []
        """Callbacks to notify of a drain, each with the step that registered it: the step itself
        or one within it."""


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


class StepUses:
    """What a step asks of limiters."""

    __slots__ = ("calls", "open", "postponed")

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        """The number of uses of this attempt so far, by name."""
        self.open = 0
        """How many uses wait or are in their blocks."""
        self.postponed: Postponement | None = None
        """Why and until when the step ends. It was cancelled for that reason."""


class Postponement(NamedTuple):
    """A step ends and continues later, without using up an attempt."""

    why: str
    until: float
    cancelled: bool
    """Whether its task was cancelled. A thread raises an exception instead."""


class StepExecution:
    """One step in flight, or a step within a step.

    `calls` numbers the steps that this step calls. `results` holds their results, and those of
    steps nested deeper, as long as the outermost step is in flight.
    """

    # 20 attributes: every step has one of these, so what most steps never use is attached on
    # first use (`drain`, `effect`, `uses`), and the rest stays in one object.
    __slots__ = (
        "_drain",
        "_outer",
        "attempt",
        "calls",
        "cost",
        "due",
        "effect",
        "error_text",
        "execution",
        "how",
        "key",
        "name",
        "publishers",
        "results",
        "since",
        "started",
        "state",
        "task",
        "threads",
        "uses",
    )

    def __init__(
        self,
        execution: RunExecution,
        key: str,
        name: str,
        results: dict[str, str],
        outer: StepExecution | None = None,
    ) -> None:
        self.execution = execution
        self.key = key
        self.name = name
        # Not `self`: a reference cycle would wait for the garbage collector.
        self._outer = None if outer is None else outer.outer
        self.state = StepState.SCHEDULED
        self.task: asyncio.Task[None] | None = None
        """None for a step within a step, which is part of the outer step's task."""
        self.attempt = 1
        self.since = execution.host.time()
        """When the attempt began, on the loop's clock."""
        self.started = perf_counter()
        self.threads = 0
        """The number of threads that execute this step or steps within it."""
        self.calls: dict[str, int] = {}
        self.results = results
        self.cost: Cost | None = None
        """The cost that the step has reported and that is not yet part of an entry."""
        self.how: str | None = None
        """How the step ended. `error_text` is the recorded error of the step or of its last
        attempt."""
        self.error_text: str | None = None
        self.publishers: dict[tuple[str, str], Publisher] | None = None
        """What this attempt publishes, by writer and stream. None if it has published nothing, and
        OVER once it has ended.
        """
        self._drain: DrainRequest | None = None
        self.effect: EffectState | None = None
        """None for a plain step."""
        self.due: float | None = None
        """Until when an effect or a postponed step waits. Its run may be released meanwhile."""
        self.uses: StepUses | None = None
        """None for a step that uses no limiter."""

    @property
    def outer(self) -> StepExecution:
        """Return the step of the workflow that this step is part of."""
        return self._outer or self

    @property
    def attempted(self) -> StepExecution:
        """Return the step whose attempt this is part of."""
        return self

    def part(self, key: str) -> StepExecution:
        """Create a part of this step that numbers its own calls."""
        return SubExecution(self, key)

    @property
    def kind(self) -> str:
        return "effect" if self.effect is not None else "step" if self._outer is None else "inner"

    @property
    def is_effect(self) -> bool:
        return self.effect is not None

    @property
    def is_compensation(self) -> bool:
        return self.effect is not None and self.key.startswith(UNDO)

    @property
    def idle(self) -> bool:
        """Return whether the step waits for its next attempt and nothing of it executes."""
        return self.state is StepState.IDLE

    @property
    def is_shielded(self) -> bool:
        """Return whether the step is an effect that acts now."""
        return self.effect is not None and self.effect.shielded

    # -- cost

    def spend(self, cost: Cost, *, checked: bool = True) -> None:
        """Add to the step's cost. Safe to call from any thread.

        Raise Unrecordable and add nothing if the sum exceeds what one step may record. With
        `checked=False`, drop the names beyond the limit instead.
        """
        with _spending:
            if self.cost is None:
                self.cost = cost
            else:
                self.cost = (
                    self.cost.plus(cost).checked() if checked else self.cost.plus(cost, NAMES_MAX)
                )

    def take_cost(self) -> str | None:
        """Return the cost since the last entry in its recorded form, or None, and reset it."""
        if self.cost is None:
            return None
        with _spending:
            cost, self.cost = self.cost, None
        return cost.text() if cost else None

    def move_cost_to(self, outer: StepExecution) -> None:
        """Add the cost that no entry has recorded to the calling step."""
        if self.cost is not None:
            outer.spend(self.cost, checked=False)

    # -- drains

    @property
    def drain(self) -> DrainRequest:
        """Return the state that concerns drains. Most steps never use it, so it is made late."""
        if self._drain is None:
            self._drain = DrainRequest()
        return self._drain

    @property
    def leaving(self) -> str | None:
        """Return why a drain asked the step to stop, or None."""
        return None if self._drain is None else self._drain.leaving

    @property
    def is_cut(self) -> bool:
        """Return whether the step's result may be cut short by a drain.

        A thread cannot be cancelled, so its result is complete unless the step checked whether it
        must stop.
        """
        drain = self._drain
        return drain is not None and drain.leaving is not None and (drain.aware or drain.cut)

    @property
    def must_stop(self) -> bool:
        """Return whether a drain asked the step to stop and could not cancel it yet."""
        drain = self._drain
        return drain is not None and drain.leaving is not None and not drain.cut

    @property
    def can_save(self) -> bool:
        """Return whether the step saves progress, and so loses little when asked to stop."""
        drain = self.outer._drain
        return drain is not None and bool(drain.progress)

    def call_listeners(self, why: str) -> None:
        """Call every listener once, and log the listeners that fail."""
        if self._drain is None:
            return
        listeners, self._drain.listeners = self._drain.listeners, []
        for _, listener in listeners:
            try:
                listener(why)
            except Exception as error:
                log.error(
                    "on_drain of step %s failed",
                    self.key,
                    exc_info=self.execution.services.redact(error),
                    extra=self.execution.log_fields(self.key, self.attempt),
                )

    def forget_listeners(self) -> None:
        """Remove this step's listeners at the end of an attempt.

        The outermost step removes all of them.
        """
        outer = self.outer
        drain = outer._drain
        if drain is not None and drain.listeners:
            drain.listeners = [
                one for one in drain.listeners if one[0] is not self and outer is not self
            ]

    def leave(self, why: str) -> None:
        """Ask the step to stop because of a drain. Cancel it as soon as no thread executes it."""
        drain = self.drain
        drain.leaving = why
        for progress in list(drain.progress):
            progress.flush()
        self.call_listeners(why)
        self.cancel()

    def cancel(self) -> None:
        """Cancel the step on behalf of a drain, unless a thread executes it or an effect acts."""
        if self.task is not None and not self.threads and not self.is_shielded:
            self.drain.cut = True
            self.task.cancel(self.leaving)

    # -- attempts

    def ended(self, end: str, seconds: float | None = None, error: str | None = None) -> None:
        """Set how the step or one of its attempts ended, and update metrics.

        `seconds` is the duration of a success, `error` the recorded error of a failure.
        """
        if end == "retried":
            self.how = self.error_text = None
        else:
            self.how = end
            self.error_text = error
        self.execution.services.metrics.step(
            self.execution.workflow.name, self.name, self.kind, end, seconds
        )

    def attempt_failed(self, error: str, delay: float | None) -> None:
        """Log a failed attempt.

        `delay` is None if it is not certain that another attempt follows.
        """
        self.ended("retried")
        # The key of a step within a step contains its arguments.
        key = self.outer.key
        step = f"{self.kind} {key}" if self.outer is self else f"step {self.name} in {key}"
        log.info(
            "attempt %d of %s of run %s failed: %s%s",
            self.attempt,
            step,
            self.execution.id,
            error,
            "" if delay is None else f"; the next in {delay:.3g} s",
            extra=self.execution.log_fields(key, self.attempt),
        )

    def record_failure(self, error: BaseException, delay: float) -> None:
        """Log and record a failed attempt that another one follows.

        Attempts of a step within a step are only logged: they are part of the outer attempt.
        """
        execution = self.execution
        self.attempt_failed(format_error(error, execution.services.log_values), delay)
        if self.task is not None:
            self.error_text = encode_error(error, execution.services.settings.error_text_max)
            recording.record(
                execution,
                "attempt",
                self.key,
                value=str(execution.clock.now() + delay),
                error=self.error_text,
                seconds=execution.host.time() - self.since,
                attempt=self.attempt,
                cost=self.take_cost(),
            )


class SubExecution(StepExecution):
    """A part of a step that numbers its own calls, like an item of a `map`.

    Its cost is added to the step's.
    """

    __slots__ = ("_whole",)

    def __init__(self, whole: StepExecution, key: str) -> None:
        super().__init__(whole.execution, f"{whole.key}[{key}]", whole.name, whole.results, whole)
        self._whole = whole

    @property
    def attempted(self) -> StepExecution:
        return self._whole.attempted

    def spend(self, cost: Cost, *, checked: bool = True) -> None:
        self._whole.spend(cost, checked=checked)
