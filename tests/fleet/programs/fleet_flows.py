"""What the fleet executes. Every body writes to the outside log, which is the file `log` of the folder it is in."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from outlast import Evicted, Item, RunDead, budget, current, limiter, receive, sleep, step, workflow
from outlast.engine.limiter_state import margin_of

APP: Any = None
"""The worker's own, once it is open."""


def log(*words: object) -> None:
    fd = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(fd, ("\t".join(map(str, words)) + "\n").encode())
    os.close(fd)


def note(when: str) -> None:
    me = current()
    log(when, os.getpid(), me.id, me.step or "", me.attempt if me.step else 0, me.fence)


async def until_there(name: str) -> None:
    while not Path(name).exists():
        await asyncio.sleep(0.005)


# -- a provider with a limit

PROVIDER = limiter("provider", requests="8/1s", hold=0.2)


@step
async def ask_provider() -> None:
    async with PROVIDER.use() as used:
        now = time.time()
        # Nobody can prevent that a process is held up after it was let in. Such a call counts when
        # it was let in.
        log("asked", os.getpid(), current().id, min(now, used._grant.at + margin_of(1.0)))


@workflow
async def limited(calls: int) -> None:
    for _ in range(calls):
        await ask_provider()


# -- a provider that is paid

SPEND = budget("fleet", usd=12, per="key")


@step
async def pay_provider(cents: int) -> None:
    async with SPEND.use(usd=1) as used:
        log("paid", os.getpid(), current().id, cents)
        await asyncio.sleep(0.01)
        used.actual(usd=cents / 100)


@workflow
async def paid(calls: int) -> None:
    for number in range(calls):
        await pay_provider(50 + 10 * (number % 6))


# -- plain work


@step
async def add(n: int, pause: float = 0.0) -> int:
    note("before")
    await asyncio.sleep(pause)
    note("after")
    return n + 1


@step
def add_in_thread(n: int) -> int:
    note("before")
    time.sleep(0.002)
    note("after")
    return n + 1


@workflow
async def one_step(n: int, pause: float = 0.0) -> int:
    return await add(n, pause)


@workflow
async def chain(n: int, steps: int, pause: float = 0.0) -> int:
    for _ in range(steps):
        n = await add(n, pause)
    return n


@workflow
async def mixed(n: int) -> int:
    """Steps one after another, side by side, in a thread, in a child, and a sleep in between: n + 7."""
    n = await add(n, 0.02)
    if n % 4 == 0:
        await sleep(0.6)  # longer than a run that only waits stays in a worker's hands
    parts = await asyncio.gather(add(n, 0.01), add(n, 0.03))
    n = await add_in_thread.aio(parts[0])
    n = await chain(n, 2, 0.01) if n % 3 == 0 else await add(n, 0.01) + 1
    return await add(n) + 1


@step
async def wait_for(name: str) -> str:
    note("before")
    await until_there(name)
    note("after")
    return name


@workflow
async def gated(name: str) -> str:
    """Holds its slot until a file is there."""
    try:
        return await wait_for(name)
    except Evicted as evicted:
        note(f"evicted: {evicted.reason}")
        raise


@step
async def wait_for_mine(name: str) -> str:
    note("before")
    await until_there(f"{name}-{os.getpid()}")
    note("after")
    return name


@workflow
async def gated_here(name: str) -> str:
    """The same, and the file has this process's number in its name."""
    try:
        return await wait_for_mine(name)
    except Evicted as evicted:
        note(f"evicted: {evicted.reason}")
        raise


@workflow
async def three_gated_here(name: str) -> list[str]:
    return list(await asyncio.gather(*(wait_for_mine(name) for _ in range(3))))


# -- poison


@step
async def strike(name: str, pause: float = 0.1, late: float = 0.0) -> str:
    note("before")
    await asyncio.sleep(late)
    if Path(name).exists():
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(pause)
    note("after")
    return "survived"


@workflow
async def may_strike(name: str, late: float = 0.0) -> str:
    """Kills its worker while a file of this name is there."""
    return await strike(name, late=late)


@workflow
async def parent(name: str) -> str:
    before = await add(0)
    try:
        word = await may_strike(name)
    except RunDead as dead:
        word = f"{dead.id} is dead"
    return f"{before} {word} {await add(before)}"


# -- items


async def handle(item: Item) -> None:
    log("before", os.getpid(), item.id, "item", item.attempts, item.fence)
    if item.payload == "poison" and Path("poison").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    if item.payload == "failing":
        raise OSError("it cannot be done")
    if item.payload == "gated":
        await until_there("gate")
    await asyncio.sleep(0.2 + item.fence % 5 * 0.1 if item.payload == "slow" else 0.02)
    log("after", os.getpid(), item.id, "item", item.attempts, item.fence)


async def handle_and_tidy(item: Item) -> None:
    """Takes a while to end when it is cancelled."""
    log("before", os.getpid(), item.id, "item", item.attempts, item.fence)
    try:
        await until_there("gate")
    except asyncio.CancelledError:
        await asyncio.sleep(0.5)
        raise
    finally:
        log("after", os.getpid(), item.id, "item", item.attempts, item.fence)


def handle_in_thread(item: Item) -> None:
    """Cannot be cancelled, and takes a while."""
    log("before", os.getpid(), item.id, "item", item.attempts, item.fence)
    while not Path("stopping").exists():
        time.sleep(0.005)
    time.sleep(0.5)
    log("after", os.getpid(), item.id, "item", item.attempts, item.fence)


# -- stalls and forks


@step
def hang(name: str) -> str:
    """In a thread, where nobody can stop it."""
    note("before")
    while not Path(name).exists():
        time.sleep(0.005)
    note("after")
    return name


@workflow
async def hanging(name: str) -> str:
    return await hang.aio(name)


@workflow
async def tidy_gated(name: str) -> str:
    try:
        return await wait_for(name)
    except asyncio.CancelledError:
        note("told")
        raise


@step
async def block(name: str) -> str:
    """Blocks the event loop of the first worker that executes it until a file is there."""
    note("before")
    if not Path("blocked").exists():
        Path("blocked").touch()
        while not Path(name).exists():
            time.sleep(0.005)
    note("after")
    return name


@workflow
async def blocking(name: str) -> str:
    try:
        return await block(name)
    except Evicted as evicted:
        note(f"evicted: {evicted.reason}")
        raise


@step
async def fork() -> str:
    """Forks, the first time, and waits to be killed; the child tries to go on with what it has inherited."""
    note("before")
    if not Path("forked").exists():
        pid = os.fork()
        if not pid:
            use_what_was_inherited()
        log("child", pid)
        Path("forked").touch()
        await asyncio.Event().wait()
    note("after")
    return "went on"


def use_what_was_inherited() -> None:
    try:
        APP._open.store.workers()
        word = "it read"
    except Exception as error:
        word = type(error).__name__
    Path("inherited.new").write_text(word)
    Path("inherited.new").rename("inherited")
    time.sleep(600)
    os._exit(0)


@workflow
async def forking() -> str:
    return await fork()


# -- waiting


@workflow
async def sleeper(n: int, seconds: float) -> int:
    n = await add(n)
    await sleep(seconds)
    return await add(n)


@workflow
async def receiver(n: int) -> str:
    n = await add(n)
    word = await receive("word", str)
    return f"{word} {await add(n)}"


@workflow
async def waiting_parent(n: int, seconds: float) -> int:
    return await sleeper(n, seconds) + 10


@workflow
async def tidy_sleeper(seconds: float) -> None:
    try:
        await sleep(seconds)
    finally:
        note("tidied")


@workflow(timeout=900)
async def short_of_time(seconds: float) -> None:
    await sleep(seconds)
