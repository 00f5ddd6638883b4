"""Provide one workflow per kind of step, an outside world that counts, and a way to interrupt a process at one moment.

A moment is `before KIND KEY` or `after KIND KEY` (the commit that writes such an entry; KEY may be `*`), `later KIND KEY` (a while
after it), or `in PLACE` (a line of the code below).
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from outlast import KEY, Happened, current, effect, progress, receive, sleep, step, unit, workflow
from outlast.errors import StoreUnavailable
from outlast.store.commands import Record
from outlast.testing import VirtualClock

SLEEP_SECONDS = 60.0
"""How long the run of kind `timer` sleeps."""
LATER_SECONDS = 3.0
"""What "a while" is. Shorter than the time-out of an effect."""
TIMEOUT_SECONDS = 10.0
FOREVER = 1e6


class Refused(Exception):
    """The outside world has seen a younger claim."""


@dataclass(frozen=True)
class Request:
    run: str
    fence: int
    key: str
    what: str
    once: bool


@dataclass
class Outside:
    """The outside world. It outlives every process, counts what it does, and compares fences."""

    clock: VirtualClock
    counts: Counter[str] = field(default_factory=Counter)
    keys: set[str] = field(default_factory=set)
    newest: dict[str, int] = field(default_factory=dict)
    """The highest fence of each run."""
    in_flight: list[tuple[float, Request]] = field(default_factory=list)
    """Requests that have been accepted and take effect at a later time."""

    def send(self, request: Request) -> None:
        self._check_fence(request.run, request.fence)
        self._apply(request)

    def accept(self, request: Request, seconds: float) -> None:
        """Take a request that nothing can stop any more. It takes effect after this many seconds."""
        self._check_fence(request.run, request.fence)
        self.in_flight.append((self.clock() + seconds, request))

    def has(self, run: str, fence: int, key: str) -> bool:
        self._check_fence(run, fence)
        self._let_time_pass()
        return key in self.keys

    def seen(self) -> dict[str, int]:
        """Return how often each thing was done."""
        self._let_time_pass()
        return dict(self.counts)

    def _check_fence(self, run: str, fence: int) -> None:
        if fence < self.newest.get(run, 0):
            raise Refused(run)
        self.newest[run] = fence

    def _let_time_pass(self) -> None:
        due = [one for one in self.in_flight if one[0] <= self.clock()]
        for one in due:
            self.in_flight.remove(one)
            self._apply(one[1])

    def _apply(self, request: Request) -> None:
        if not request.once or request.key not in self.keys:
            self.counts[request.what] += 1
        self.keys.add(request.key)


class Interruption:
    """Interrupts one process at one moment, once, by calling `strike`."""

    def __init__(
        self,
        moment: str = "",
        strike: Callable[[], None] = lambda: None,
        *,
        pause_seconds: float = 0.0,
    ) -> None:
        self.moment, self._strike, self._pause_seconds = moment, strike, pause_seconds
        self.has_struck = False

    def strike(self) -> None:
        if not self.has_struck:
            self.has_struck = True
            self._strike()

    async def at(self, moment: str) -> None:
        """Strike if this is the moment. A process that dies stays here, and its event loop ends."""
        if moment == self.moment and not self.has_struck:
            if self._pause_seconds == FOREVER:
                asyncio.get_running_loop().call_soon(self.strike)
            else:
                self.strike()
            if self._pause_seconds:
                await asyncio.sleep(self._pause_seconds)

    def watch(self, store: Any) -> None:
        """Watch the commits of a store."""
        really = store.commit

        def commit(commands: Any) -> Any:
            records = [command for command in commands if isinstance(command, Record)]
            self._look("before", records)
            if self.has_struck and self.is_last_commit:
                raise StoreUnavailable("the store is out of reach.")
            outcomes = really(commands)
            self._look("after", records)
            self._look("later", records)
            return outcomes

        store.commit = store.try_commit = commit

    is_last_commit = False
    """Whether the store takes nothing more from this process once it was struck."""

    def _look(self, when: str, records: list[Record]) -> None:
        if any(
            self.moment in (f"{when} {one.kind} {one.key}", f"{when} {one.kind} *")
            for one in records
        ):
            if when == "later":
                asyncio.get_running_loop().call_later(LATER_SECONDS, self.strike)
            else:
                self.strike()


outside = Outside(VirtualClock())
interruption = Interruption()
"""Of the process that executes now. A test sets both."""


async def act(what: str, key: str, *, once: bool = False) -> str:
    mine = interruption  # the one of this process, also when the next process has begun
    request = Request(current().id, current().fence, key, what, once)
    if mine.moment == f"in flight {what}" and not mine.has_struck:
        outside.accept(request, LATER_SECONDS)
        await mine.at(f"in flight {what}")
    await mine.at(f"in act {what}")
    outside.send(request)
    await mine.at(f"in happened {what}")
    return what


# -- steps


@step
async def first() -> int:
    return 1


@step
async def last() -> int:
    return 2


@step
async def tell() -> str:
    return await act("x", "tell")


@step
async def outer() -> str:
    await interruption.at("in outer")
    return await tell()


@step
async def parts() -> int:
    async with progress(int) as saved:
        for number in range(saved.value or 0, 2):
            await act(f"part {number}", f"part {number}")
            saved.save(number + 1)
            await asyncio.sleep(LATER_SECONDS)  # the progress is written meanwhile
    return 2


# -- effects


@effect(timeout=TIMEOUT_SECONDS, failed_on=Refused, idempotent=True)
async def idempotent(*, key: str = KEY) -> str:
    return await act("x", key, once=True)


@effect(timeout=TIMEOUT_SECONDS, failed_on=Refused)
async def neither(*, key: str = KEY) -> str:
    return await act("x", key)


@effect(timeout=TIMEOUT_SECONDS, failed_on=Refused)
async def verified(what: str, *, key: str = KEY) -> str:
    return await act(what, key)


@verified.verify
async def was_done(what: str, *, key: str = KEY) -> Happened[str] | None:
    return Happened(what) if outside.has(current().id, current().fence, key) else None


@verified.compensate
async def undo(what: str, *, key: str = KEY) -> str:
    return await act(f"undo {what}", key, once=True)


# -- workflows


class Rain(Exception):
    pass


@workflow
async def offspring() -> str:
    return await tell()


@workflow
async def one(kind: str) -> object:
    await first()
    result = await thing(kind)
    await last()  # so that a drain leaves something to do
    return result


async def thing(kind: str) -> object:
    match kind:
        case "step":
            return await tell()
        case "progress":
            return await parts()
        case "inner":
            return await outer()
        case "verified":
            return await verified("x")
        case "idempotent":
            return await idempotent()
        case "neither":
            return await neither()
        case "compensation":
            await verified("w")
            await verified("x")
            raise Rain("no picnic")
        case "unit":
            try:
                async with unit("picnic"):
                    await verified("a")
                    await verified("b")
                    raise Rain("no picnic")
            except Rain:
                return "home"
        case "timer":
            await sleep(SLEEP_SECONDS)
        case "message":
            return await receive("go", int)
        case "child":
            return await offspring()
    return None
