"""Share a store with other processes.

`crowd.py FOLDER own COUNT` executes runs of its own. `crowd.py FOLDER same` starts the run that all of them
start. Both print "ready" and wait for the file `go`.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from outlast import Outlast, StoreError, current, step, workflow
from outlast.store.sqlite import connection
from outlast.store.sqlite.store import SQLiteStore

folder, mode, *rest = sys.argv[1:]
connection.BUSY_SECONDS = 60.0  # the holder of the lock may get no CPU for a while
LOG = os.open(f"{folder}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


class Watched(SQLiteStore):
    """A store that keeps the errors of failed attempts, which the writer would hide by trying again."""

    trouble: list[str] = []  # noqa: RUF012

    def commit(self, commands: Any) -> list[Any]:
        try:
            return super().commit(commands)
        except StoreError as error:
            self.trouble.append(repr(error))
            raise

    def _read(self, statement: str, values: Any = ()) -> list[Any]:
        try:
            return super()._read(statement, values)
        except StoreError as error:
            if self._opened:  # a read that a close interrupts is expected to fail
                self.trouble.append(repr(error))
            raise


def say(word: object) -> None:
    print(json.dumps(word), flush=True)


def log(when: str) -> None:
    me = current()
    os.write(LOG, f"{when}\t{os.getpid()}\t{me.id}\t{me.step}\t{me.attempt}\n".encode())


async def until_there(name: str) -> None:
    while not Path(folder, name).exists():
        await asyncio.sleep(0.002)


@step
async def small(n: int) -> int:
    return n + 1


@workflow
async def own(steps: int) -> int:
    total = 0
    for n in range(steps):
        total = await small(total + n)
    return total


@step
async def note(n: int) -> int:
    log("before")
    return n * 2


@step
async def hold() -> str:
    log("before")
    await until_there("release")
    return "held"


@workflow
async def same(steps: int) -> list[Any]:
    first = [await note(n) for n in range(steps)]
    return [*first, await hold(), *await asyncio.gather(*(note(n) for n in range(steps)))]


async def main() -> None:
    store = Watched(Path(folder, "outlast.db"))
    async with Outlast(store, lease=600, store_patience=120) as app:
        say("ready")
        await until_there("go")
        if mode == "own":
            count = int(rest[0])
            for number in range(count):
                started = await app.start(own(5), id=f"{os.getpid()}-{number}")
                assert await started.result() == 15
            result: Any = {"runs": count}
        else:
            result = {"result": await (await app.start(same(5), id="same")).result()}
    say({**result, "trouble": store.trouble})


asyncio.run(main())
