"""Research a topic with a model, write a report, and send it to the reader.

The model chooses what to look up until it knows enough.

This is the program that `outlast demo` stops and kills. Nothing in it is about stopping or killing.
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
from outlast.tools.demo.web import NotFound, events, get, post

MODEL = os.environ.get("MODEL_URL", "http://127.0.0.1:8765")
OUTBOX = os.environ.get("OUTBOX_URL", "http://127.0.0.1:8766")


@step(retries=3)
async def think(topic: str, notes: list[str]) -> str:
    """Ask the model what to look up next. Empty means that it knows enough."""
    answer = await post(f"{MODEL}/think", topic=topic, notes=notes)
    current().cost(tokens=answer["tokens"])
    return str(answer["search"])


@step(retries=3)
async def search(question: str) -> str:
    """Search, as the agent's tool."""
    found = await post(f"{MODEL}/search", question=question)
    return str(found["text"])


@step(retries=3)
async def write(topic: str, notes: list[str]) -> str:
    """Stream the report. What has arrived is saved, and the next execution continues from there."""
    async with resume_stream(tokens, topic, notes, by="cursor", stall=60) as stream:
        report = await stream.read()
    current().cost(tokens=len(report.split()))
    return report


async def tokens(
    cursor: str | None, topic: str, notes: list[str]
) -> AsyncIterator[tuple[str, str]]:
    """Stream the model's answer after `cursor`: each token with the id of its event."""
    try:
        async with aclosing(
            events(f"{MODEL}/answer", topic=topic, notes=notes, after=cursor)
        ) as stream:
            async for event in stream:
                yield event.data, event.id
    except NotFound as error:
        raise CannotResume("the model has forgotten this answer") from error


@effect(timeout=10)
async def send(to: str, text: str, *, key: str = KEY) -> str:
    """Send a message that must not arrive twice.

    Its key is the same in every execution of the run.
    """
    receipt = await post(f"{OUTBOX}/messages", to=to, text=text, key=key)
    return str(receipt["number"])


@send.verify
async def was_sent(*, key: str = KEY) -> Happened[str] | None:
    """Return the receipt if the message was sent.

    Used after a death between sending and recording.
    """
    try:
        receipt = await get(f"{OUTBOX}/messages/{key}")
    except NotFound:
        return None
    return Happened(str(receipt["number"]))


@workflow
async def research(topic: str, ask_first: bool = False) -> str:
    await send("reader", f"I look into {topic}.")
    if ask_first:
        await send("editor", f"May I spend tokens on {topic}?")
        # This may take a day. No worker holds the run meanwhile.
        if not await receive("approved", bool):
            return "not approved"
    notes: list[str] = []
    while question := await think(topic, notes):
        notes.append(await search(question))
    report = await write(topic, notes)
    await send("reader", report)
    return report
