"""What a workflow may ask for besides steps: `current`, `now`, `uuid`, `random`, `sleep`, `receive`.

They raise NotInRun outside a run. Each gives the same answer in every life of the run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar, overload
from uuid import UUID

from outlast.codec.codecs import codec_for
from outlast.codec.cost import Cost
from outlast.codec.exceptions import SEQ
from outlast.codec.identifiers import check_name
from outlast.errors import NotInRun, Unrecordable
from outlast.execution.progress import Progress, body_of
from outlast.execution.refusal import refused
from outlast.execution.run_loop import RunLoop
from outlast.execution.step_execution import BODY, StepExecution
from outlast.execution.threads import THREAD

if TYPE_CHECKING:
    from decimal import Decimal

    from outlast.execution.run_execution import RunExecution

T = TypeVar("T")


class Current:
    """The run, and within a step's body the step, that executes now."""

    __slots__ = ("_body", "_execution")

    def __init__(self, execution: RunExecution, body: StepExecution | None) -> None:
        self._execution, self._body = execution, body

    @property
    def id(self) -> str:
        """The run's id."""
        return self._execution.id

    @property
    def workflow(self) -> str:
        """The name of the run's workflow."""
        return self._execution.workflow.name

    @property
    def fence(self) -> int:
        """The number of this claim of the run. It only grows: hand it to outside systems, so that they can refuse an
        older one. It differs from life to life: a workflow must not decide by it."""
        return self._execution.fence

    @property
    def step(self) -> str | None:
        """The key of the step that executes, None in the workflow's own code."""
        return self._body.key if self._body else None

    @property
    def attempt(self) -> int:
        """Which attempt of the step this is, from 1. NotInRun in the workflow's own code."""
        if self._body is None:
            raise refused(
                NotInRun(
                    "current().attempt is a step's: a workflow's own code is executed anew in every life."
                )
            )
        return self._body.attempt

    @property
    def draining(self) -> bool:
        """Whether this process is on its way out. In a workflow's own code it differs from life to life: decide nothing by it."""
        if self._body is not None:
            self._body.outer.aware = True
        return self._execution.engine.draining

    @property
    def seconds_left(self) -> float | None:
        """In a drain: seconds until this step is told to stop, or, once it was, until it must have. None otherwise."""
        if self._body is not None:
            self._body.outer.aware = True
        return (
            self._execution.engine.drain.step_seconds_left
            if self._execution.engine.drain.layer is not None
            else None
        )

    def on_drain(self, fn: Callable[[str], object]) -> None:
        """Have `fn(why)` called when a drain begins, or now if one has. On the event loop, once, and in the step's own attempt
        only: it must not block. NotInRun in a workflow's own code."""
        if self._body is None:
            raise refused(
                NotInRun(
                    "current().on_drain() is a step's: a workflow stops at its next call by itself."
                )
            )
        if not callable(fn) or inspect.iscoroutinefunction(fn):
            raise TypeError(
                f"current().on_drain() takes a plain function, which must not block, not {fn!r}."
            )
        body, drain = self._body.outer, self._execution.engine.drain
        body.aware = True
        body.listeners.append((self._body, fn))
        if drain.started.done():
            self._execution.host.call_soon_threadsafe(body.tell, drain.reason)

    def cost(
        self, /, *, tokens: float = 0, usd: float | Decimal = 0.0, **more: float | Decimal
    ) -> None:
        """Say what the step has cost: `current().cost(tokens=1200, usd=0.018)`, and by other names (`seconds_gpu=3`). Several
        calls add up, exactly. It is recorded with the step, with each failed attempt, and with a step in a step's body.

        Unrecordable if an amount is no number, negative or not finite, or a name is none; nothing is added then. NotInRun in a
        workflow's own code. From any thread.
        """
        if self._body is None:
            raise refused(
                NotInRun(
                    "current().cost() is a step's: a workflow's own code is executed anew in every life, and records nothing itself."
                )
            )
        cost = Cost.said({"tokens": tokens, "usd": usd, **more})
        if cost:
            self._body.spend(cost)

    def __repr__(self) -> str:
        return f"<current run={self.id!r} step={self.step!r} fence={self.fence}>"


def current() -> Current:
    """The run that executes here, in a workflow or in a step."""
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
    """In a step: what it has saved of itself, for an attempt after a death, a drain or a failure to go on from.

        async with progress(str) as p:
            text = p.value or ""
            async for token in stream(after=text):
                text += token
                p.save(text)

    Saving is cheap: the last value is written now and then (`progress_interval`), and at once when a drain stops the step.
    """
    return Progress(body_of("progress"), codec_for(Any if type is object else type))


def now() -> datetime:
    """The run's time (UTC): when the last thing that reached it was recorded. It stands still in between."""
    return datetime.fromtimestamp(_workflow("now").wall, UTC)


def uuid() -> UUID:
    """In a workflow: a random UUID (version 4), the same in every life. It follows from the run's seed and the place of the call."""
    return UUID(bytes=_chance("uuid", 16), version=4)


def random() -> float:
    """A random number, 0 <= x < 1, the same in every life."""
    return (int.from_bytes(_chance("random", 8), "big") >> 11) / (1 << 53)


async def sleep(seconds: float) -> None:
    """Sleep durably: the time goes on while no process is alive."""
    _workflow("sleep").check()
    await asyncio.sleep(seconds)


@overload
async def receive(name: str, *, timeout: float | None = None) -> Any: ...
@overload
async def receive(name: str, type: type[T], *, timeout: float | None = None) -> T: ...
async def receive(name: str, type: type[Any] = object, *, timeout: float | None = None) -> Any:
    """Wait for a message of this name, sent with `app.send(id, name, value)` before or after; oldest first.

    It is read as `type`; Unrecordable if it does not fit (a retry of a run that this ended leaves the message out). TimeoutError after `timeout` seconds.
    """
    execution = _workflow("receive")
    execution.check()
    check_name(name, execution.engine.settings.name_length_max, "message name")
    codec = codec_for(Any if type is object else type)
    async with asyncio.timeout(timeout):
        message, seq = await execution.mailbox.take(name)
    try:
        return codec.decode(message.value)
    except Unrecordable as error:
        unfit = Unrecordable(
            f"message {name!r} ({message.value[:80]}) is not what receive() asked for: {error}"
        )
        unfit.__dict__[SEQ] = seq  # a retry leaves this message out
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
        where = "a step's body" if BODY.get() is not None else "code outside any run"
        elsewhere = f" Elsewhere: app.{what}(..., id=...)." if what in ("each", "map") else ""
        raise NotInRun(f"{what}() is for a workflow's own code, and this is {where}.{elsewhere}")
    return execution


def _chance(what: str, size: int) -> bytes:
    execution = _workflow(what)
    key = execution.loop.scope().key(f"({what})")
    return blake2b(key.encode(), key=bytes.fromhex(execution.row.seed), digest_size=size).digest()
