"""The model, the screen and the workflow that the tests of streams share."""

import pytest
from stream_model import Model, Screen

from outlast import (
    resume_stream,
    step,
    workflow,
)

WAYS = ["restart", "prefill", "cursor"]
GOING_ON = ["prefill", "cursor"]
model, screen = Model(), Screen()
seen: list = []


@pytest.fixture(autouse=True)
def fresh():
    for kept in (model, screen):
        vars(kept).clear()
        kept.__init__()
    seen.clear()


def opener(by: str):
    return {"restart": model.restart, "prefill": model.prefill, "cursor": model.cursor}[by]


@step(retries=5, backoff=0.001)
async def answer(by: str) -> str:
    async with resume_stream(opener(by), by=by) as stream:
        screen.begin(stream)
        async for chunk in stream:
            screen.append(chunk)
        return stream.text


@workflow
async def ask(by: str) -> str:
    return await answer(by)
