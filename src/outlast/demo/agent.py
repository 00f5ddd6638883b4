"""A research agent: it lets a model choose what to look up, looks it up, has the answer written, and sends it to its reader.

This is the program that `outlast demo` stops and kills. There is nothing in it about stopping or killing.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import aclosing

from outlast import (
    KEY,
    CannotResume,
    Happened,
    current,
    effect,
    receive,
    resume_stream,
    step,
    workflow,
)
from outlast.demo.web import NotFound, events, get, post

MODEL = os.environ.get("MODEL_URL", "http://127.0.0.1:8765")
OUTBOX = os.environ.get("OUTBOX_URL", "http://127.0.0.1:8766")


@step(retries=3)
async def think(topic: str, notes: list[str]) -> str | None:
    """What to look up next, as the model sees it. None: it knows enough."""
    answer = await post(f"{MODEL}/think", topic=topic, notes=notes)
    current().cost(tokens=answer["tokens"])
    question: str | None = answer["search"]
    return question


@step(retries=3)
async def search(question: str) -> str:
    """The agent's tool."""
    found = await post(f"{MODEL}/search", question=question)
    return str(found["text"])


async def answer(cursor: str | None, topic: str, notes: list[str]) -> AsyncIterator[tuple[str, str]]:
    """The model's answer, word by word, each with the id of its event: it can go on after any of them."""
    try:
        async with aclosing(events(f"{MODEL}/answer", topic=topic, notes=notes, after=cursor)) as said:
            async for event in said:
                yield event.data, event.id
    except NotFound as error:
        raise CannotResume("the model has forgotten this answer") from error


@step(retries=3)
async def write(topic: str, notes: list[str]) -> str:
    """The report. What has arrived of it is saved as it comes."""
    async with resume_stream(answer, topic, notes, by="cursor", stall=60) as stream:
        report = await stream.read()
    current().cost(tokens=len(report.split()))
    return report


@effect(timeout=10)
async def send(to: str, text: str, *, key: str = KEY) -> str:
    """A message that must not arrive twice. The key is the same in every life of the run."""
    receipt = await post(f"{OUTBOX}/messages", to=to, text=text, key=key)
    return str(receipt["number"])


@send.verify
async def was_sent(to: str, text: str, *, key: str = KEY) -> Happened[str] | None:  # noqa: ARG001 - they are the effect's
    """Asked only if a process died between sending and recording that."""
    try:
        return Happened(str((await get(f"{OUTBOX}/messages/{key}"))["number"]))
    except NotFound:
        return None


@workflow
async def research(topic: str, ask_first: bool = False) -> str:
    await send("reader", f"I look into {topic}.")
    if ask_first:
        await send("editor", f"May I spend tokens on {topic}?")
        await receive("approved", bool)  # for a day, if need be: no worker holds the run meanwhile
    notes: list[str] = []
    while question := await think(topic, notes):
        notes.append(await search(question))
    report = await write(topic, notes)
    await send("reader", report)
    return report
