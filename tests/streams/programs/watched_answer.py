"""Publish one long answer, or watch it: `watched_answer.py work STORE WAY TOKENS` and `… view STORE [CURSOR]`.

The provider sends no more tokens than the file `budget` allows. It writes each call into the file
`ledger`, which stands for the provider's bill. A viewer prints one event per line.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from outlast import Outlast, StoreUnavailable, resume_stream, step, workflow

BUDGET, LEDGER = Path("budget"), Path("ledger")


def note_call(begin: int) -> int:
    """Write a call to the provider and return its number."""
    with LEDGER.open("ab") as ledger:
        number = ledger.tell() // 16
        os.write(ledger.fileno(), b"%-7d %-7d\n" % (number, begin))
    return number


async def tokens(begin: int, voice: str, total: int):
    for number in range(begin, total):
        while number >= int(BUDGET.read_text() or "0"):
            await asyncio.sleep(0.01)
        yield f"{voice}-{number} "
        await asyncio.sleep(0)


async def from_prefill(so_far: str, total: int):
    words = so_far.split(" ")[:-1]
    number = note_call(len(words))
    voice = words[0].partition("-")[0] if words else f"{number:x}"
    async for token in tokens(len(words), voice, total):
        yield token


async def from_start(total: int):
    async for token in tokens(0, f"{note_call(0):x}", total):
        yield token


def whole_words(text: str) -> str:
    return text[: text.rfind(" ") + 1]


@step(retries=1000, backoff=0.01)
async def answer(way: str, total: int) -> str:
    if way == "prefill":
        call = resume_stream(from_prefill, total, by="prefill", trim=whole_words, publish="answer")
    else:
        call = resume_stream(from_start, total, publish="answer")
    async with call as stream:
        return await stream.read()


@workflow
async def ask(way: str, total: int) -> str:
    return await answer(way, total)


async def work(store: str, way: str, total: str) -> None:
    async with Outlast(store, worker=True, workflows=[ask]) as app:
        await app.submit(ask(way, int(total)), id="run")
        print("ready", flush=True)
        await app.wait_drain()


async def view(store: str, cursor: str | None = None) -> None:
    async with Outlast(store) as app:
        while True:
            try:
                async for event in app.watch("run", "answer", after=cursor):
                    cursor = event.cursor
                    print(json.dumps(event.document()), flush=True)
            except StoreUnavailable:
                continue
            return


asyncio.run({"work": work, "view": view}[sys.argv[1]](*sys.argv[2:]))
