"""Hold the state of one step in flight."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum, auto
from time import perf_counter
from typing import TYPE_CHECKING, Any

from outlast.codec.cost import NAMES_MAX, Cost
from outlast.execution.effects_from_journal import UNDO
from outlast.execution.step_attachments import DrainRequest, EffectState
from outlast.execution.step_uses import (
    OpenUse,
    Postponement,
    StepUses,
    begin_block,
    end_block,
)

if TYPE_CHECKING:
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
    BLOCKED = auto()
    """It waits for a budget, and nothing of it executes."""


class StepExecution:
    """One step in flight, or a step within a step. Only this class changes its state.

    `calls` numbers the steps that this step calls. `results` holds their results, and those of
    steps nested deeper, as long as the outermost step is in flight.
    """

    # 20 attributes: every step has one of these, so what most steps never use is attached on
    # first use (`drain`, `effect`, `uses`), and the rest stays in one object.
    __slots__ = (
        "_drain",
        "_outer",
        "_uses",
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
    )

    def __init__(
        self,
        execution: RunExecution,
        key: str,
        name: str,
        results: dict[str, str],
        outer: StepExecution | None = None,
        effect: EffectState | None = None,
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
        self.started = 0.0
        """When the step began, as `perf_counter` tells it."""
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
        self.effect = effect
        """None for a plain step."""
        self.due: float | None = None
        """Until when an effect or a postponed step waits. Its run may be released meanwhile."""
        self._uses: StepUses | None = None

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
        """Return whether nothing of the step executes, because it waits for something."""
        return self.state in (StepState.IDLE, StepState.BLOCKED)

    @property
    def is_blocked(self) -> bool:
        """Return whether the step waits for a budget."""
        return self.state is StepState.BLOCKED

    @property
    def is_shielded(self) -> bool:
        """Return whether the step is an effect that acts now."""
        return self.effect is not None and self.effect.shielded

    # -- from the first turn of its task to the end

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Create the task that executes the step on the host loop."""
        task = self.task = asyncio.Task(work, loop=self.execution.host, name=self.key)
        self.execution.steps.add(task, self)

    def begin(self) -> None:
        """Note that the step has its first turn. An effect is idle until it acts."""
        self.state = StepState.EXECUTING if self.effect is None else StepState.IDLE
        self.started = perf_counter()

    def become_active(self) -> None:
        """Note that code of the step executes from now on: an attempt, or an effect's `verify`."""
        self.state = StepState.EXECUTING
        self.since = self.execution.host.time()

    def become_idle(self) -> None:
        """Note that nothing of the step executes until `become_active`."""
        self.state = StepState.IDLE

    @contextmanager
    def waiting_until(self, due: float) -> Iterator[None]:
        """Let the run be released while the step waits for a time of the store's clock."""
        self.due = due
        try:
            yield
        finally:
            self.due = None

    def end(self) -> None:
        """Note that the step has ended. What its threads still do publishes nothing more."""
        self.execution.steps.discard(self.task)
        # The task's context holds this object.
        self.task = None
        self.publishers = OVER

    def add_thread(self, thread: asyncio.Future[Any]) -> None:
        """Count a thread that executes this step, or a step within it, until the thread ends."""
        self.threads += 1
        thread.add_done_callback(self._thread_ended)

    def _thread_ended(self, _: asyncio.Future[Any]) -> None:
        self.threads -= 1

    # -- attempts

    def prepare_attempt(self, number: int) -> None:
        """Number the next attempt. It numbers its own calls, and has published nothing."""
        self.attempt = number
        self.error_text = None
        self.calls.clear()
        self.publishers = None

    def number_call(self, call: str) -> int:
        """Return the number of this call among the equal calls of the attempt, from 1."""
        self.calls[call] = number = self.calls.get(call, 0) + 1
        return number

    def own_publishers(self) -> dict[tuple[str, str], Publisher]:
        """Return what this attempt publishes, to add to it. Return OVER once it has ended."""
        if self.publishers is None:
            self.publishers = {}
        return self.publishers

    def end_publishing(self) -> dict[tuple[str, str], Publisher]:
        """Return what this attempt publishes, and let it publish to nothing else."""
        publishers, self.publishers = self.publishers or {}, OVER
        return publishers

    # -- effects

    def prepare_act(self, number: int) -> None:
        """Number the next attempt of an effect, which begins with the intent to act."""
        self.attempt = number
        self.become_active()

    def begin_act(self, key: str) -> None:
        """Note that the effect acts from now on. Its intent is durable."""
        assert self.effect is not None
        self.effect.begin_act(key)
        self.since = self.execution.host.time()
        self.error_text = None

    def end_act(self) -> None:
        """Note that the effect does not act now, or that it did not begin to."""
        assert self.effect is not None
        self.effect.end_act()
        self.become_idle()

    def note_error(self, error_text: str) -> None:
        """Keep the recorded error of an act, of `verify`, or of the code around them."""
        self.error_text = error_text

    # -- limiters and budgets

    @property
    def uses(self) -> StepUses:
        """Return what the step uses of limiters and budgets. It is attached on first use."""
        if self._uses is None:
            self._uses = StepUses()
        return self._uses

    @property
    def postponed(self) -> Postponement | None:
        """Return why and until when the step ends, to continue later. None if it does not."""
        return None if self._uses is None else self._uses.postponed

    def enter_use(self, use: OpenUse) -> None:
        """Note a use that waits or is in its block."""
        self.uses.enter(use)
        self._follow_uses()

    def leave_use(self, use: OpenUse) -> None:
        """Note that a use has ended. A repeat is harmless."""
        self.uses.leave(use)
        self._follow_uses()

    def block_use(self, use: OpenUse, around: tuple[OpenUse, ...]) -> None:
        """Note that a use waits for a person or other uses. `around` are the uses around it."""
        self.uses.block(use, around)
        self._follow_uses()

    def unblock_use(self, use: OpenUse) -> None:
        """Note that a use no longer waits."""
        self.uses.unblock(use)
        self._follow_uses()

    @contextmanager
    def open_part(self) -> Iterator[None]:
        """Keep the step from being parked while a nested step or an item executes.

        The step may be parked when that part waits for a person itself.
        """
        part, outer = OpenUse(), self.outer
        outer.enter_use(part)
        begin_block(part)
        try:
            yield
        finally:
            end_block(part)
            outer.leave_use(part)

    def _follow_uses(self) -> None:
        """Let the run be parked if the step only waits for budgets."""
        if self.state is StepState.EXECUTING and self.uses.all_blocked:
            self.state = StepState.BLOCKED
            self.execution.settled()
        elif self.state is StepState.BLOCKED and not self.uses.all_blocked:
            self.state = StepState.EXECUTING

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Let the run be parked while the step waits for a person, between two attempts."""
        self.state = StepState.BLOCKED
        try:
            yield
        finally:
            self.state = StepState.EXECUTING

    def continue_later(self) -> None:
        """Prepare the attempt that continues a postponed one, under the same number."""
        self._uses = None
        self.forget_listeners()
        self.prepare_attempt(self.attempt)

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
        """Return the state that concerns drains. It is attached on first use."""
        if self._drain is None:
            self._drain = DrainRequest()
        return self._drain

    @property
    def leaving(self) -> str | None:
        """Return why a drain asked the step to stop, or None."""
        return None if self._drain is None else self._drain.leaving

    @property
    def is_cut(self) -> bool:
        """Return whether the step's result may be cut short by a drain."""
        return self._drain is not None and self._drain.is_cut

    @property
    def must_stop(self) -> bool:
        """Return whether a drain asked the step to stop and could not cancel it yet."""
        return self._drain is not None and self._drain.must_stop

    @property
    def can_save(self) -> bool:
        """Return whether the step saves progress, and so loses little when asked to stop."""
        drain = self.outer._drain
        return drain is not None and bool(drain.progress)

    def call_listeners(self, why: str) -> None:
        """Call every listener once, and log the listeners that fail."""
        if self._drain is None:
            return
        for listener in self._drain.take_listeners():
            try:
                listener(why)
            except Exception as error:
                log.error(
                    "An on_drain callback of step %s failed.",
                    self.key,
                    exc_info=self.execution.services.redact(error),
                    extra=self.execution.log_fields(self.key, self.attempt),
                )

    def forget_listeners(self) -> None:
        """Remove this step's listeners at the end of an attempt. See `DrainRequest`."""
        drain = self.outer._drain
        if drain is not None:
            drain.forget_listeners(self)

    def leave(self, why: str) -> None:
        """Ask the step to stop because of a drain. Cancel it as soon as no thread executes it."""
        drain = self.drain
        drain.ask_to_stop(why)
        for progress in list(drain.progress):
            progress.flush()
        self.call_listeners(why)
        self.cancel()

    def cancel(self) -> None:
        """Cancel the step on behalf of a drain, unless a thread executes it or an effect acts."""
        if self.task is not None and not self.threads and not self.is_shielded:
            self.drain.note_cut()
            self.task.cancel(self.leaving)

    # -- outcomes

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
