"""Execute a run that uses every feature: `agent.py FOLDER ID [HOLD]`. Tests kill it.

Every step writes a line to an outside log before and after its work and syncs it, so a test can compare what
was executed with what was recorded. The step whose key is HOLD never ends.
"""

import asyncio
import json
import os
import resource
import sys
from contextlib import suppress

from outlast import Outlast, WrongStatus, current, receive, sleep, step, uuid, workflow

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # SIGQUIT, SIGABRT and SIGSEGV are sent on purpose
folder, run_id = sys.argv[1:3]
hold = sys.argv[3] if sys.argv[3:] else None
LOG = os.open(f"{folder}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def log(*words: object) -> None:
    os.write(LOG, ("\t".join(map(str, words)) + "\n").encode())
    os.fsync(LOG)


def note(when: str) -> None:
    me = current()
    log(when, os.getpid(), me.id, me.step, me.attempt, me.fence)


@step
async def tick(n: int) -> int:
    note("before")
    if current().step == hold:
        await asyncio.Event().wait()
    await asyncio.sleep(0.003)
    note("after")
    return n * n


@step
def in_thread(word: str) -> str:
    note("before")
    note("after")
    return word.upper()


@step(retries=3, backoff=0.01)
async def flaky(word: str) -> str:
    note("before")
    if current().attempt < 3:
        raise OSError("not yet")
    note("after")
    return f"{word} at attempt {current().attempt}"


@step
async def outer(n: int) -> int:
    note("before")
    total = await tick(n) + await tick(n + 1)
    note("after")
    return total


@step
async def never() -> None:
    note("before")
    await asyncio.Event().wait()


@step
async def same(word: str) -> str:
    note("before")
    note("after")
    return word


@step
async def last(n: int) -> int:
    note("before")
    note("after")
    return -n


@workflow
async def child(n: int) -> int:
    first = await tick(n)
    await sleep(0.01)
    return first + await tick(first)


@workflow
async def everything(start: int) -> dict[str, object]:
    drawn = str(uuid())
    total = 0
    for n in range(4):
        total += await tick(start + n)
    spread = await asyncio.gather(
        *(tick(n) for n in range(3)), in_thread.aio("thread"), flaky("ok")
    )
    kept = await same(drawn)
    await sleep(0.02)
    nested = await outer(5)
    children = await asyncio.gather(child(2), child(3))
    words = [await receive("word", str) for _ in range(2)]
    with suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await never()
    return {
        "total": total,
        "spread": spread,
        "same": kept == drawn,
        "nested": nested,
        "children": children,
        "words": words,
        "last": await last(total),
    }


async def main() -> None:
    log("up", os.getpid())
    async with Outlast(f"sqlite:///{folder}/outlast.db", lease=600, heartbeat=0.02) as app:
        started = await app.start(everything(3), id=run_id)
        with suppress(WrongStatus):  # the run ended before this process started
            for n in range(2):
                await app.send(run_id, "word", f"word {n}", message_id=f"word {n}")
        result = await started.result()
    print(json.dumps(result, sort_keys=True), flush=True)


asyncio.run(main())
