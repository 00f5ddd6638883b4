"""The workflows of the pods.

Every body writes to the outside log, the file `log` of its folder, with one write per line, so that SIGKILL
loses none.
"""

import asyncio
import itertools
import os
import re
import time
from pathlib import Path

import passing_grace  # noqa: F401 - a clock for the drain, where a test wants it

from outlast import current, receive, sleep, step, sync, workflow


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
async def sleeper(n: int, seconds: float) -> int:
    n = await add(n, 0.0)
    await sleep(seconds)
    return await add(n, 0.0)


@workflow
async def receiver(n: int) -> int:
    n = await add(n, 0.0)
    n += await receive("go", int)
    return await add(n, 0.0)


@step
async def beat(pause: float) -> bool:
    note("before")
    await asyncio.sleep(pause)
    note("after")
    return Path("enough").exists()


@workflow
async def beats(pause: float) -> int:
    """Execute steps until there is a file `enough`, and return how many."""
    count = 1
    while not await beat(pause):
        count += 1
    return count


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
        await asyncio.sleep(0.02)
    note("after")
    return name


@step
def wait_in_thread(name: str) -> str:
    note("before")
    while not Path(name).exists():
        time.sleep(0.02)
    note("after")
    return name


@workflow
async def gated(name: str) -> str:
    """Execute three steps, of which the second waits for a file."""
    await add(0, 0.0)
    word = await wait_for(name)
    await add(1, 0.0)
    return word


@workflow
async def gated_in_thread(name: str) -> str:
    await add(0, 0.0)
    word = await wait_in_thread.aio(name)
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


def block_until(name: str) -> None:
    """Block this thread, and with it the event loop, until there is a file."""
    while not Path(name).exists():
        time.sleep(0.02)


@step
async def block_the_loop(name: str) -> str:
    if is_first("blocked"):
        block_until(name)
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
async def blocks(name: str = "never") -> str:
    await add(0, 0.0)
    return await block_the_loop(name)


@workflow
async def blocks_itself(name: str) -> str:
    """Block the loop in the workflow's own code: what was claimed with it cannot begin."""
    note("blocked")
    block_until(name)
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
