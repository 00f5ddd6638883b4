"""An outside world for the tests of undoing: what was done to it, under which key, and a few effects on it."""

import asyncio
from collections import defaultdict

from outlast import KEY, Happened, effect, step

SECONDS = 2.0
"""How long an act takes until it has happened, and how much longer until it returns."""
TAIL = 0.5


class Outside:
    """`log` has what happened, in order: "+a" was done, "-a" undone, "?a" asked for."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.keys: dict[str, list[str]] = defaultdict(list)
        """The keys under which each thing was done, in order; what is done again under its key is not done twice."""
        self.broken: set[str] = set()
        """What raises, and does not happen."""
        self.lost: set[str] = set()
        """What happens, and raises all the same."""
        self.attempts: dict[str, int] = defaultdict(int)
        self.told: list = []

    def clear(self) -> None:
        self.__init__()

    def apply(self, what: str, key: str = "") -> None:
        """Once a key."""
        if what in self.broken:
            raise ConnectionError(what)
        if not key or key not in self.keys[what]:
            self.log.append(what)
            self.keys[what].append(key)
        if what in self.lost:
            raise ConnectionResetError(what)

    async def act(self, what: str, key: str = "") -> None:
        """Act, and answer the caller some time later."""
        self.apply(what, key)
        await asyncio.sleep(TAIL)

    @property
    def done(self) -> list[str]:
        return [one for one in self.log if one[0] == "+"]

    @property
    def undone(self) -> list[str]:
        return [one for one in self.log if one[0] == "-"]

    @property
    def left(self) -> list[str]:
        """What was done and not undone."""
        there: list[str] = []
        for one in self.log:
            if one[0] == "+":
                there.append(one[1:])
            elif one[0] == "-":
                there.remove(one[1:])
        return there


outside = Outside()


class Refused(Exception):
    """It did not happen."""


@step
async def work(label: str, seconds: float = 0.0) -> str:
    outside.log.append(label)
    await asyncio.sleep(seconds)
    return label


@step
async def fail(label: str = "no") -> str:
    raise ValueError(label)


@effect(timeout=10, failed_on=Refused)
async def book(label: str, seconds: float = SECONDS, key: str = KEY) -> str:
    """It can be verified, and undone."""
    outside.attempts[label] += 1
    await asyncio.sleep(seconds)
    if label.startswith("refused"):
        raise Refused(label)
    await outside.act(f"+{label}", key)
    return f"ticket {label}"


@book.verify
async def is_booked(label: str, key: str) -> Happened[str] | None:
    outside.log.append(f"?{label}")
    if f"?{label}" in outside.broken:
        raise ConnectionError(label)
    return Happened(f"ticket {label}") if key in outside.keys[f"+{label}"] else None


@book.compensate
async def unbook(ticket: str, label: str, effect_key: str, key: str = KEY) -> None:
    await asyncio.sleep(SECONDS)
    assert ticket == f"ticket {label}"
    outside.told.append((ticket, effect_key, key))
    outside.apply(f"-{label}", key)


@effect(timeout=10, idempotent=True)
async def put(label: str, seconds: float = SECONDS, key: str = KEY) -> str:
    """It may be done again under its key, and be undone."""
    outside.attempts[label] += 1
    await asyncio.sleep(seconds)
    await outside.act(f"+{label}", key)
    return f"put {label}"


@put.compensate(retries=2)
async def take(it: str, label: str, key: str = KEY) -> None:
    outside.attempts[f"-{label}"] += 1
    await asyncio.sleep(SECONDS)
    outside.apply(f"-{label}", key)


@effect(timeout=10, idempotent=True, undo=None)
async def say(label: str, seconds: float = SECONDS, key: str = KEY) -> str:
    """It may be done again under its key, and need not be undone."""
    outside.attempts[label] += 1
    await asyncio.sleep(seconds)
    await outside.act(f"+{label}", key)
    return f"said {label}"


@effect(timeout=10)
async def wire(label: str, seconds: float = SECONDS) -> str:
    """Nobody can tell whether it happened; it can be undone."""
    outside.attempts[label] += 1
    await asyncio.sleep(seconds)
    await outside.act(f"+{label}")
    return f"wired {label}"


@wire.compensate
async def unwire(receipt: str, label: str) -> None:
    outside.told.append(receipt)
    outside.apply(f"-{label}")


@effect(timeout=10, idempotent=True)
def sput(label: str, key: str = KEY) -> str:
    """A sync one."""
    outside.attempts[label] += 1
    outside.apply(f"+{label}", key)
    return f"put {label}"


@sput.compensate
def stake(it: str, label: str, key: str = KEY) -> None:
    outside.apply(f"-{label}", key)
