"""An outside world for crash tests: it does a repeated act twice, unless it knows the key."""

import asyncio

from outlast import KEY, Happened, effect, step


class Bank:
    """The world outside. It outlives every life, and forgets nothing."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []

    def apply(self, what: str, key: str, *, once: bool = False) -> None:
        """What comes twice is there twice, unless it is known by its key."""
        if not once or (what, key) not in self.log:
            self.log.append((what, key))

    def has(self, what: str, key: str) -> bool:
        return (what, key) in self.log

    @property
    def order(self) -> list[str]:
        return [what for what, _ in self.log]


bank = Bank()


@effect(timeout=10, failed_on=LookupError)
async def pay(who: str, seconds: float = 1.0, key: str = KEY) -> str:
    """Done twice it is there twice: only verify helps."""
    await asyncio.sleep(seconds / 2)
    if who == "nobody":
        raise LookupError(who)
    bank.apply(f"+{who}", key)
    await asyncio.sleep(seconds / 2)
    return f"paid {who}"


@pay.verify
async def is_paid(who: str, key: str) -> Happened[str] | None:
    await asyncio.sleep(0.1)
    return Happened(f"paid {who}") if bank.has(f"+{who}", key) else None


@pay.compensate(idempotent=False)
async def refund(receipt: str, who: str, effect_key: str, key: str = KEY) -> None:
    """Done twice it is there twice, too."""
    assert receipt == f"paid {who}"
    assert bank.has(f"+{who}", effect_key)
    bank.apply(f"-{who}", key)
    await asyncio.sleep(0.5)


@refund.verify
async def is_refunded(who: str, key: str) -> Happened[None] | None:
    return Happened(None) if bank.has(f"-{who}", key) else None


@effect(timeout=10, idempotent=True)
async def hold(what: str, key: str = KEY) -> str:
    """The other side knows its keys."""
    bank.apply(f"+{what}", key, once=True)
    await asyncio.sleep(0.5)
    return what


@hold.compensate
async def free(held: str, key: str = KEY) -> None:
    bank.apply(f"-{held}", key, once=True)
    await asyncio.sleep(0.5)


@effect(timeout=10, idempotent=True)
async def unlock(what: str, key: str = KEY) -> None:
    bank.apply(f"-{what}", key, once=True)


@effect(timeout=10)
def spay(who: str, key: str = KEY) -> str:
    bank.apply(f"+{who}", key)
    return f"paid {who}"


@spay.verify
def is_spaid(who: str, key: str) -> Happened[str] | None:
    return Happened(f"paid {who}") if bank.has(f"+{who}", key) else None


@spay.compensate
def srefund(receipt: str, who: str, key: str = KEY) -> None:
    bank.apply(f"-{who}", key, once=True)


@step
async def work(label: str, seconds: float = 1.0) -> str:
    await asyncio.sleep(seconds)
    return label


@step
async def fail(label: str = "no") -> str:
    raise ValueError(label)


@step
async def lock(what: str) -> None:
    """A plain step, so it may be done twice."""
    bank.apply(f"+{what}", "", once=True)
