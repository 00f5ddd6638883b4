"""Provide what a workflow may ask for besides steps: `current`, `now`, `sleep`, `receive` and more.

`uuid` and `random` belong here too. All of them raise NotInRun outside a run. `now`, `uuid`,
`random`, `sleep` and `receive` give the same answer in every life of the run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum, auto
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar, overload

from outlast.codec.codecs import codec_for
from outlast.codec.cost import Cost
from outlast.codec.exceptions import SEQ
from outlast.codec.identifiers import check_name
from outlast.errors import NotInRun, Unrecordable
from outlast.execution import step_start
from outlast.execution.progress import Progress, body_of
from outlast.execution.refusal import refused
from outlast.execution.run_loop import RunLoop
from outlast.execution.step_execution import BODY, StepExecution
from outlast.execution.step_uses import OPEN_USES
from outlast.execution.threads import THREAD

if TYPE_CHECKING:
    from decimal import Decimal
    from uuid import UUID

    from outlast.execution.run_execution import RunExecution

T = TypeVar("T")


class Current:
    """The run that executes now, and within a step's body the step."""

    __slots__ = ("_body", "_execution")

    def __init__(self, execution: RunExecution, body: StepExecution | None) -> None:
        self._execution, self._body = execution, body

    @property
    def id(self) -> str:
        """Return the run's id."""
        return self._execution.id

    @property
    def workflow(self) -> str:
        """Return the name of the run's workflow."""
        return self._execution.workflow.name

    @property
    def scheduled(self) -> datetime | None:
        """Return the time that a schedule started this run for, or None for any other run.

        It is part of the run's id, so it stays the same however late the run starts.
        """
        from outlast.api.schedule import scheduled_time

        return scheduled_time(self._execution.id)

    @property
    def fence(self) -> int:
        """Return the fence: the number of this claim of the run.

        It only grows. Pass it to other systems so that they can reject a writer with a lower fence.
        It differs from life to life, so a workflow must not branch on it.
        """
        return self._execution.fence

    @property
    def step(self) -> str | None:
        """Return the key of the step that executes, or None in the workflow's own code."""
        return self._body.key if self._body else None

    @property
    def key(self) -> str:
        """Return the idempotency key of the effect that acts: the value that `key = KEY` receives.

        Use it where the effect's own parameters must not contain the key, as in a tool whose
        parameters a model fills in. Raise NotInRun outside an effect's body.
        """
        effect = None if self._body is None else self._body.effect
        if effect is None or effect.key is None:
            error = NotInRun("current().key is for the body of an effect: only effects have keys.")
            raise refused(error) if self._body is None else error
        return effect.key

    @property
    def attempt(self) -> int:
        """Return the number of the step's attempt, from 1.

        Raise NotInRun in the workflow's own code.
        """
        if self._body is None:
            raise refused(
                NotInRun(
                    "current().attempt is for the body of a step: a workflow's own code executes "
                    "again in every life."
                )
            )
        return self._body.attempt

    @property
    def draining(self) -> bool:
        """Return whether this process is draining.

        In a workflow's own code the answer differs from life to life, so do not branch on it.
        """
        if self._body is not None:
            self._body.outer.drain.note_aware()
        return self._execution.services.shutdown.begun

    @property
    def seconds_left(self) -> float | None:
        """Return the seconds that a drain leaves to this step, or None if there is no drain.

        The time counts down until the step is asked to stop, and after that until it must have
        stopped.
        """
        if self._body is not None:
            self._body.outer.drain.note_aware()
        return (
            self._execution.services.shutdown.step_seconds_left
            if self._execution.services.shutdown.draining
            else None
        )

    def on_drain(self, fn: Callable[[str], object]) -> None:
        """Register `fn(why)` to be called when a drain begins, or now if one has begun.

        It is called once, on the event loop, and only during this attempt of the step. It must not
        block. Raise NotInRun in a workflow's own code.
        """
        if self._body is None:
            raise refused(
                NotInRun(
                    "current().on_drain() is for the body of a step: a workflow stops at its next "
                    "call by itself."
                )
            )
        if not callable(fn) or inspect.iscoroutinefunction(fn):
            raise TypeError(
                f"current().on_drain() takes a plain function, which must not block, not {fn!r}."
            )
        body = self._body.outer
        shutdown = self._execution.services.shutdown
        body.drain.add_listener(self._body, fn)
        if shutdown.announced.done():
            self._execution.host.call_soon_threadsafe(body.call_listeners, shutdown.reason)

    def cost(
        self, /, *, tokens: float = 0, usd: float | Decimal = 0.0, **more: float | Decimal
    ) -> None:
        """Record what the step has cost: `current().cost(tokens=1200, usd=0.018)`.

        Other names are allowed (`seconds_gpu=3`). Several calls add up exactly. The cost is
        recorded with the step, with each failed attempt, and with a step in a step's body. Any
        thread may call this.

        Raise Unrecordable, and add nothing, if an amount is not a number, negative or not finite,
        or if a name is invalid. Raise NotInRun in a workflow's own code.
        """
        if self._body is None:
            raise refused(
                NotInRun(
                    "current().cost() is for the body of a step: a workflow's own code executes "
                    "again in every life and records nothing itself."
                )
            )
        cost = Cost.of({"tokens": tokens, "usd": usd, **more})
        if cost:
            self._body.spend(cost)
            for use in OPEN_USES.get():
                use._cost_reported(cost)

    @property
    def budget_left(self) -> dict[str, int | float]:
        """Return what the budgets that the run has used have left, such as `{"usd": 3.2}`.

        For each name it is the least of them, as this process read it last. Other runs may have
        spent since. It is empty before the run's first use of a budget in this process. Raise
        NotInRun in a workflow's own code.
        """
        if self._body is None:
            raise refused(
                NotInRun(
                    "current().budget_left is for the body of a step: a workflow's own code "
                    "executes again in every life."
                )
            )
        return Cost(self._execution.steps.budgets.left).document()

    def __repr__(self) -> str:
        return f"<current run={self.id!r} step={self.step!r} fence={self.fence}>"


class Place(Enum):
    """Where code executes. Adapters for other libraries decide by it what a call becomes."""

    OUTSIDE = auto()
    WORKFLOW = auto()
    SYNC_WORKFLOW = auto()
    """The thread of a sync workflow, which cannot await a step."""
    STEP = auto()
    EFFECT = auto()


def place() -> Place:
    """Return where the current code executes."""
    if isinstance(asyncio._get_running_loop(), RunLoop):
        return Place.WORKFLOW
    body = BODY.get()
    if body is not None:
        return Place.EFFECT if body.is_effect else Place.STEP
    return Place.OUTSIDE if THREAD.get() is None else Place.SYNC_WORKFLOW


def current() -> Current:
    """Return the run that executes here, in a workflow or in a step. Raise NotInRun elsewhere."""
    execution = _execution()
    if execution is not None:
        return Current(execution, None)
    body = BODY.get()
    if body is not None:
        return Current(body.execution, body)
    raise NotInRun("current() is for the code of a workflow or a step.")


@overload
def progress() -> Progress[Any]: ...
@overload
def progress(type: type[T]) -> Progress[T]: ...
def progress(type: type[Any] = object) -> Progress[Any]:
    """Return what this step has saved, so that a later attempt continues from there.

        async with progress(str) as p:
            text = p.value or ""
            async for token in stream(after=text):
                text += token
                p.save(text)

    The saved value survives a death, a drain or a failed attempt. Saving is cheap: the last value
    is written every `progress_interval`, and at once when a drain stops the step.
    """
    return Progress(body_of("progress"), codec_for(Any if type is object else type))


async def started_before() -> bool:
    """Return whether an earlier attempt or execution of this step has made this call.

        @step(retries=3)
        async def build(name: str) -> str:
            if await started_before():
                await remove_leftovers(name)
            ...

    The call itself is recorded before it returns, which costs one write. An attempt that died
    before that counts as not started. Raise NotInRun outside a step's body.
    """
    return await step_start.started_before(body_of("started_before"))


def now() -> datetime:
    """Return the run's time (UTC): when the last event that reached the run was recorded.

    The time does not advance between two events.
    """
    return datetime.fromtimestamp(_workflow("now").clock.wall, UTC)


def uuid() -> UUID:
    """Return a random UUID (version 4) that is the same in every life. For a workflow's own code.

    It is derived from the run's seed and the call site.
    """
    from uuid import UUID

    return UUID(bytes=_chance("uuid", 16), version=4)


def random() -> float:
    """Return a random number, 0 <= x < 1, that is the same in every life."""
    return (int.from_bytes(_chance("random", 8), "big") >> 11) / (1 << 53)


async def sleep(seconds: float) -> None:
    """Sleep durably: the time passes even while no process is alive."""
    _workflow("sleep").check()
    await asyncio.sleep(seconds)


@overload
async def receive(name: str, *, timeout: float | None = None) -> Any: ...
@overload
async def receive(name: str, type: type[T], *, timeout: float | None = None) -> T: ...
async def receive(name: str, type: type[Any] = object, *, timeout: float | None = None) -> Any:
    """Wait for a message with this name and return it, oldest first.

    `app.send(id, name, value)` sends it, before or after this call. The message is read as `type`.
    Raise Unrecordable if it does not fit; if that ends the run, a retry skips the message. Raise
    TimeoutError after `timeout` seconds.
    """
    execution = _workflow("receive")
    execution.check()
    check_name(name, execution.services.settings.name_length_max, "message name")
    codec = codec_for(Any if type is object else type)
    async with asyncio.timeout(timeout):
        message, seq = await execution.mailbox.take(name, codec)
    try:
        return codec.decode(message.value)
    except Unrecordable as error:
        unfit = Unrecordable(
            f"message {name!r} ({message.value[:80]}) has the wrong type for receive(): {error}"
        )
        # A retry skips this message.
        unfit.__dict__[SEQ] = seq
        raise unfit from error


def _execution() -> RunExecution | None:
    loop = asyncio._get_running_loop()
    if isinstance(loop, RunLoop):
        return loop.execution
    thread = THREAD.get()
    if thread is None or BODY.get() is not None:
        return None
    thread.check()
    return thread._execution


def _workflow(what: str) -> RunExecution:
    execution = _execution()
    if execution is None:
        where = "in a step's body" if BODY.get() is not None else "outside a run"
        elsewhere = f" Elsewhere, use app.{what}(..., id=...)." if what in ("each", "map") else ""
        raise NotInRun(f"{what}() was called {where}. Call it in a workflow's code.{elsewhere}")
    return execution


def _chance(what: str, size: int) -> bytes:
    execution = _workflow(what)
    key = execution.loop.scope().key(f"({what})")
    return blake2b(key.encode(), key=bytes.fromhex(execution.row.seed), digest_size=size).digest()
