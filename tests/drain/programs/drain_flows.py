"""What the pods execute. Every body writes to the outside log, which is the file `log` of the folder it is in: with a write of its
own for each line, which a SIGKILL cannot take back."""

import asyncio
import itertools
import os
import re
import time
from pathlib import Path

from outlast import current, sleep, step, sync, workflow


def log(*words: object) -> None:
    fd = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, ("\t".join(map(str, words)) + "\n").encode())
    os.close(fd)


def note(when: str) -> None:
    me = current()
    log(when, os.getpid(), me.id, me.step or "", me.attempt if me.step else 0, me.fence)


# -- good steps


@step
async def add(n: int, pause: float) -> int:
    note("before")
    await asyncio.sleep(pause)
    note("after")
    return n + 1


@step
def add_in_thread(n: int, pause: float) -> int:
    note("before")
    time.sleep(pause)
    note("after")
    return n + 1


@workflow
async def chain(n: int, steps: int, pause: float) -> int:
    for _ in range(steps):
        n = await add(n, pause)
    return n


@workflow
async def chain_in_threads(n: int, steps: int, pause: float) -> int:
    for _ in range(steps):
        n = await add_in_thread.aio(n, pause)
    return n


@workflow
async def sleeper(n: int, seconds: float) -> int:
    n = await add(n, 0.0)
    await sleep(seconds)
    return await add(n, 0.0)


@step(retries=2, backoff=0.1)
async def flaky(n: int) -> int:
    note("before")
    await asyncio.sleep(0.1)
    if current().attempt == 1:
        note("after")
        raise OSError("not yet")
    note("after")
    return n + 1


@step
async def outer(n: int) -> int:
    """Two steps within a step."""
    note("before")
    n = await add(n, 0.1)
    n = await add(n, 0.15)
    note("after")
    return n


@workflow
async def mixed(n: int, rounds: int) -> int:
    """Side by side, in a thread, in children, after a sleep, at a second attempt: n + 10 a round."""
    for _ in range(rounds):
        n = await add(n, 0.1 + n % 20 * 0.05)
        parts = await asyncio.gather(add(n, 0.05), add(n, 0.3), add_in_thread.aio(n, 0.2))
        n = await chain(parts[2], 2, 0.15)
        parts = await asyncio.gather(chain(n, 2, 0.1), chain(n, 2, 0.25), flaky(n))
        await sleep(0.4)
        n = await flaky(parts[1])
        n = await outer(n)
        await sleep(0.1)
        n = await add(n, 0.1)
    return n


@sync.workflow
def in_a_thread(n: int, rounds: int) -> int:
    """A sync one: n + 3 a round."""
    for _ in range(rounds):
        n = add_in_thread(n, 0.1 + n % 20 * 0.02)
        sync.sleep(0.2)
        n = sync.run(chain_in_threads_sync(n))
    return n


@sync.workflow
def chain_in_threads_sync(n: int) -> int:
    return add_in_thread(add_in_thread(n, 0.1), 0.15)


@step
async def wait_for(name: str) -> str:
    note("before")
    while not Path(name).exists():
        await asyncio.sleep(0.01)
    note("after")
    return name


@workflow
async def gated(name: str) -> str:
    """A step before and one after one that takes until a file is there."""
    await add(0, 0.0)
    word = await wait_for(name)
    await add(1, 0.0)
    return word


# -- steps that do not stop, in the first life of their run


def is_first(word: str) -> bool:
    note("before")
    mark = Path(f"{word}-{current().id}")
    if mark.exists():
        note("after")
        return False
    mark.touch()
    return True


@step
async def block_the_loop(seconds: float) -> str:
    if is_first("blocked"):
        time.sleep(seconds)
        note("after")
    return "blocked"


@step
async def swallow_cancellation() -> str:
    if is_first("swallowed"):
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                note("swallowed")
    return "swallowed"


@step
def hang_in_a_thread() -> str:
    if is_first("hung"):
        time.sleep(1000)
    return "hung"


@step
def match_for_ever() -> str:
    if is_first("matched"):
        re.match(r"(a+)+$", "a" * 64 + "b")
    return "matched"


@step
def sum_for_ever() -> str:
    if is_first("summed"):
        sum(itertools.repeat(1, 10**12))
    return "summed"


@workflow
async def blocks(seconds: float = 1000.0) -> str:
    await add(0, 0.0)
    return await block_the_loop(seconds)


@workflow
async def blocks_itself(seconds: float) -> str:
    """In the workflow's own code, from its first line on: whatever was claimed with it cannot begin."""
    note("blocked")
    time.sleep(seconds)
    return "blocked"


@workflow
async def swallows() -> str:
    await add(0, 0.0)
    return await swallow_cancellation()


@workflow
async def hangs() -> str:
    await add(0, 0.0)
    return await hang_in_a_thread.aio()


@workflow
async def matches() -> str:
    await add(0, 0.0)
    return await match_for_ever.aio()


@workflow
async def sums() -> str:
    await add(0, 0.0)
    return await sum_for_ever.aio()
