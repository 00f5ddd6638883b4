"""The outside world of the tests that act: a bank that keeps a book of what was asked of it, and of what it did. It outlives every process.

What comes of the acts on a label is said beforehand: `bank.comes["rent"] = ["lost", "ok"]`; the last one stays. So it is for verify, in `bank.answers`.
"""

import asyncio
import threading
from collections import defaultdict
from typing import NamedTuple

from outlast import KEY, Happened, effect, workflow
from support.waiting import WAIT_SECONDS

TIMEOUT = 10.0
"""Of every effect here."""
MARGIN = 5.0
"""The setting's default."""
SPAN = TIMEOUT + MARGIN
"""How long after its intent an effect may still happen."""
FOR_EVER = 1e6


class Refused(Exception):
    """It did not happen."""


class Line(NamedTuple):
    label: str
    key: str
    at: float


class Bank:
    def __init__(self) -> None:
        self.open(lambda: None)

    def open(self, clock) -> None:
        self.clock = clock
        self.acts: list[Line] = []
        """Every act that began."""
        self.done: list[Line] = []
        """What has happened; under one key only once."""
        self.asked: list[Line] = []
        """Every time that verify was."""
        self.said: list[dict] = []
        """What verify was given."""
        self.ended: list[str] = []
        """Labels of acts that came to their end, whatever that was."""
        self.comes: dict[str, list[str]] = defaultdict(lambda: ["ok"])
        self.answers: dict[str, list[str]] = defaultdict(lambda: ["truth"])
        self.gate = threading.Event()
        """What a thread that hangs waits for."""
        self.dies = False
        """Threads that hung raise when they go on: their process is dead."""

    def now(self) -> float:
        return round(self.clock.elapsed, 3)

    @property
    def times(self) -> list[float]:
        return [line.at for line in self.acts]

    @property
    def labels(self) -> list[str]:
        return [line.label for line in self.acts]

    @property
    def keys(self) -> list[str]:
        return [line.key for line in self.acts]

    @property
    def asked_at(self) -> list[float]:
        return [line.at for line in self.asked]

    def begin(self, label: str, key: str) -> str:
        self.acts.append(Line(label, key, self.now()))
        return _next(self.comes[label])

    def end(self, label: str, key: str, comes: str) -> str:
        self.ended.append(label)
        if comes == "refused":
            raise Refused(label)
        if comes == "broken":
            raise ConnectionError(label)
        if comes == "late":
            raise TimeoutError(label)
        if key not in [line.key for line in self.done] or key == KEY:
            self.done.append(Line(label, key, self.now()))
        if comes == "lost":
            raise ConnectionResetError(label)
        return f"receipt for {label}"

    async def act(self, label: str, seconds: float, key: str) -> str:
        comes = self.begin(label, key)
        if comes == "lost and hangs":
            self.done.append(Line(label, key, self.now()))
        await asyncio.sleep(FOR_EVER if "hangs" in comes else seconds)
        return self.end(label, key, comes)

    def act_in_thread(self, label: str, seconds: float, key: str) -> str:
        """Virtual time stands still while a thread is at work: it takes its time itself."""
        comes = self.begin(label, key)
        self.clock.advance(seconds)
        if comes == "hangs":
            self.gate.wait(WAIT_SECONDS)
        if self.dies:
            raise SystemExit
        return self.end(label, key, comes)

    def ask(self, label: str, key: str) -> str:
        self.asked.append(Line(label, key, self.now()))
        return _next(self.answers[label])

    def answer(self, label: str, key: str, answers: str):
        if answers == "raises":
            raise ConnectionError(f"no line to ask after {label}")
        if answers == "rubbish":
            return True
        if answers == "unrecordable":
            return Happened(object())
        happened = any((line.label, line.key) == (label, key) for line in self.done)
        return Happened(f"receipt for {label}") if happened else None


def _next(said: list[str]) -> str:
    return said.pop(0) if len(said) > 1 else said[0]


bank = Bank()


@effect(timeout=TIMEOUT, failed_on=Refused, retries=2, undo=None)
async def pay(label: str, seconds: float = 1.0, key: str = KEY) -> str:
    """It can be verified."""
    return await bank.act(label, seconds, key)


@pay.verify
async def was_paid(label: str, key: str) -> Happened[str] | None:
    answers = bank.ask(label, key)
    if answers in ("hangs", "slow"):
        await asyncio.sleep(FOR_EVER if answers == "hangs" else 5.0)
    return bank.answer(label, key, answers)


@effect(timeout=TIMEOUT, failed_on=Refused, retries=1, idempotent=True, undo=None)
async def push(label: str, seconds: float = 1.0, key: str = KEY) -> str:
    """Under one key it happens once."""
    return await bank.act(label, seconds, key)


@effect(timeout=TIMEOUT, failed_on=(Refused, TimeoutError), retries=2, undo=None)
async def mail(label: str, seconds: float = 1.0) -> str:
    """Nobody can tell whether it happened."""
    return await bank.act(label, seconds, KEY)


@effect(timeout=TIMEOUT, failed_on=Refused, retries=2, undo=None)
def sync_pay(label: str, seconds: float = 1.0, key: str = KEY) -> str:
    return bank.act_in_thread(label, seconds, key)


@sync_pay.verify
def was_paid_in_sync(label: str, key: str) -> Happened[str] | None:
    return bank.answer(label, key, bank.ask(label, key))


@effect(timeout=TIMEOUT, idempotent=True, undo=None)
def sync_push(label: str, seconds: float = 1.0, key: str = KEY) -> str:
    return bank.act_in_thread(label, seconds, key)


@effect(timeout=TIMEOUT, failed_on=Refused, retries=2, undo=None)
def sync_mail(label: str, seconds: float = 1.0) -> str:
    return bank.act_in_thread(label, seconds, KEY)


# -- workflows of one effect each


@workflow
async def paying(label: str = "rent", seconds: float = 1.0) -> str:
    return await pay(label, seconds)


@workflow
async def pushing(label: str = "rent", seconds: float = 1.0) -> str:
    return await push(label, seconds)


@workflow
async def mailing(label: str = "rent", seconds: float = 1.0) -> str:
    return await mail(label, seconds)


@workflow
async def paying_in_a_thread(label: str = "rent", seconds: float = 1.0) -> str:
    return await sync_pay.aio(label, seconds)


EFFECTS = {"pay": pay, "push": push, "mail": mail, "sync_pay": sync_pay.aio}
"""The effects by name, to be awaited."""
RECEIPT = "receipt for rent"
"""What paying the rent returns."""
