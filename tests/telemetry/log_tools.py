"""Send a secret through everything that can happen to a run, so that tests can look for it in the logs."""

import asyncio

import pytest
from pydantic import BaseModel

from outlast import Outlast, effect, receive, session, step, workflow
from outlast.errors import RunParked

SECRET = "4111-1111-1111-1111"


BROKEN: set[str] = set()


class Card(BaseModel):
    number: int


@step
async def carry(card: str) -> str:
    return card


@step(retries=1, backoff=0.01)
async def raises(card: str) -> str:
    await carry(card)  # a step in a step has its arguments in its key
    raise ValueError(f"no such card: {card}")


@step
async def invalid(card: str) -> str:
    return str(Card.model_validate({"number": card}))


@step
async def told_to_stop(card: str) -> str:
    from outlast import current

    def listener(why: str) -> None:
        raise ValueError(card)

    current().on_drain(listener)
    await asyncio.sleep(1000)
    return card


@effect(timeout=1)
async def charge(card: str) -> str:
    raise ConnectionError(f"{card} was perhaps charged")


@charge.verify
async def charged(card: str) -> None:
    raise TimeoutError(f"cannot tell of {card}")


@effect(timeout=1)
async def book(card: str) -> str:
    return card


@book.compensate(retries=0, idempotent=False)
async def unbook(booked: str) -> None:
    raise ConnectionError(f"{booked} cannot be unbooked")


@workflow
async def fine(card: str) -> str:
    chat = session("chat")
    await chat.set("card", card)
    assert await chat.get("card") == card
    return await carry(card) + await receive("more", str)


@workflow
async def fails(card: str) -> str:
    return await raises(card)


@workflow
async def misfits(card: str) -> str:
    return await invalid(card)


@workflow
async def unknown(card: str) -> str:
    return await charge(card)


@workflow
async def stuck(card: str) -> str:
    await book(card)
    raise LookupError(card)


@workflow
async def diverges(card: str) -> str:
    if "diverges" in BROKEN:
        return await invalid(card)
    await carry(card)
    await receive("more", str)
    return card


@workflow
async def long(card: str) -> str:
    return await told_to_stop(card)


async def everything(app: Outlast) -> None:
    """A secret through all that can happen to it."""
    app._open.claim_from(("default",), 20)  # what is claimed is logged
    for flow in (fine, fails, misfits, unknown, stuck, diverges, long):
        await app.submit(flow(SECRET), id=flow.name)
    await app.send("fine", "more", SECRET)
    queue = app.queue("mail")
    await queue.put_many([SECRET, f"again {SECRET}"], ids=["one", "two"])

    async def handle(item) -> None:
        raise ValueError(f"bad payload: {item.payload}")

    consuming = asyncio.ensure_future(queue.consume(handle))
    await asyncio.sleep(60)
    consuming.cancel()
    await asyncio.wait([consuming])
    await app.queue("by-hand").put(SECRET)
    await (await app.queue("by-hand").claim()).nack(reason=f"no {SECRET}")
    await app.session("chat").append("cards", SECRET)


async def statuses(app: Outlast) -> dict[str, str]:
    return {info.id: info.status for info in await app.runs(items=None)}


def walk(world, **settings) -> None:
    settings = {
        "lease": 1e7,
        "max_attempts": 2,
        "poll": 1.0,
        "ramp": 0.0,
        "grace": 8,
        "checkpoint_reserve": 1,
        "exit_reserve": 1,
        **settings,
    }
    BROKEN.clear()
    world.settings = settings

    async def first(app):
        await everything(app)
        found = await statuses(app)
        await app.drain("test")
        return found

    found = world.do(first)
    assert (found["fine"], found["fails"], found["misfits"]) == ("done", "failed", "failed")
    assert (found["unknown"], found["stuck"], found["mail/one"]) == ("parked", "parked", "dead")
    BROKEN.add("diverges")
    world.restart(**settings)

    async def second(app):
        run = await app.start(diverges(SECRET), id="diverges")
        await app.send("diverges", "more", SECRET)
        with pytest.raises(RunParked):
            await run.result(timeout=100)
        await asyncio.sleep(0.1)  # hooks

    world.do(second)
