"""The same for effects. Never executed: `test_typing.py` hands it to mypy and pyright, both strict."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import assert_type

from outlast import (
    KEY,
    Effect,
    EffectInfo,
    Happened,
    Outlast,
    SyncEffect,
    compensate_with,
    effect,
    sync,
    unit,
    workflow,
)


@dataclass
class Receipt:
    number: int


@effect(timeout=30)
async def pay(amount: int, *, to: str = "ann", key: str = KEY) -> Receipt:
    return Receipt(len(f"{amount}{to}{key}"))


@effect(
    timeout=30,
    name="file",
    retries=2,
    backoff=0.5,
    backoff_max=9,
    failed_on=(OSError, ValueError),
    undo=None,
)
def write(path: str, key: str = KEY) -> int:
    return len(path + key)


@effect(timeout=1, failed_on=OSError, idempotent=True)
async def notify(text: str) -> None:
    print(text)


# -- an effect keeps its parameters and its result

assert_type(pay.name, str)
assert_type(KEY, str)
assert_type(Happened(Receipt(3)), Happened[Receipt])
assert_type(Happened(Receipt(3)).result, Receipt)


def wants_an_effect(one: Effect[[str], None], other: SyncEffect[[str, str], int]) -> None:
    print(one, other)


# -- verify returns what it decorates


@pay.verify
async def was_paid(amount: int, key: str) -> Happened[Receipt] | None:
    return Happened(Receipt(amount)) if key else None


@write.verify
def is_written(path: str) -> Happened[int] | None:
    return Happened(3) if path else None


assert_type(is_written("x"), Happened[int] | None)


@notify.verify
async def was_told(text: str) -> Happened[None] | None:
    return Happened(None) if text else None


@effect(timeout=3)
async def find(text: str) -> str | None:
    return text or None


@find.verify
async def was_found(text: str) -> Happened[str]:
    return Happened(text)


@find.verify
def mark_unknown() -> None:
    raise TimeoutError


# -- a compensation is an effect


@pay.compensate
async def refund(receipt: Receipt, effect_key: str, key: str = KEY) -> None:
    print(receipt, effect_key, key)


@write.compensate(timeout=60, retries=1, failed_on=OSError, idempotent=False, name="unwrite")
def erase(length: int, path: str) -> bool:
    return bool(length) and bool(path)


@write.compensate
async def erase_if_known(length: int | None, *, path: str) -> None:
    print(length, path)


@notify.compensate
def take_back(nothing: None, text: str) -> str:
    return f"{nothing}{text}"


async def checks_colours() -> None:
    assert_type(await was_paid(3, "k"), Happened[Receipt] | None)
    assert_type(await refund(Receipt(3), "k"), None)
    assert_type(erase(3, "x"), bool)
    assert_type(await erase.aio(3, "x"), bool)
    assert_type(take_back(None, "x"), str)


@workflow(abandon_after=3600)
async def order(amount: int) -> int:
    assert_type(await pay(amount), Receipt)
    assert_type(await pay(amount, to="bob", key="invoice-7"), Receipt)
    assert_type(await pay(amount, key=KEY), Receipt)
    assert_type(await write.aio("x"), int)
    assert_type(await notify("x"), None)
    receipt, length = await asyncio.gather(pay(amount), write.aio("x"))
    assert_type(receipt, Receipt)
    assert_type(length, int)
    async with asyncio.TaskGroup() as group:
        assert_type(group.create_task(pay(amount)), asyncio.Task[Receipt])
    async with unit("order"):
        await pay(amount)
    assert_type(await compensate_with(notify, "gone wrong"), None)
    assert_type(await compensate_with(refund, receipt, "k"), None)
    assert_type(await compensate_with(erase, 3, path="x"), None)
    return receipt.number


@workflow
def order_in_sync(amount: int) -> int:
    assert_type(write("x"), int)
    assert_type(write("x", key="mine"), int)
    assert_type(sync.compensate_with(erase, 3, "x"), None)
    return amount


async def program() -> None:
    async with Outlast() as app:
        shown = await app.effects("r-1")
        assert_type(shown, list[EffectInfo])
        assert_type(shown[0].place, str)
        assert_type(shown[0].result, str | None)
        assert_type(shown[0].since, datetime | None)
        await app.decide("r-1", "pay", happened=Receipt(3))
        await app.decide("r-1", "pay#1", did_not=True, intent=3)
        await app.decide("r-1", "pay#1", compensate=True, result=None)


def sync_program() -> None:
    with sync.Outlast() as app:
        assert_type(app.effects("r-1"), list[EffectInfo])
        app.decide("r-1", "pay", happened=None)
