"""Fork while Outlast is open: `forks.py FOLDER HOW`."""

import asyncio
import json
import os
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path

from outlast import Outlast, current, run, step, workflow

warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)

folder, how = sys.argv[1:]
STORE = f"sqlite:///{folder}/outlast.db"
LOG = os.open(f"{folder}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def log(when: str, pid: int) -> None:
    me = current()
    os.write(LOG, f"{when}\t{pid}\t{me.id}\t{me.step}\t{me.attempt}\n".encode())


@step
async def tick(n: int) -> int:
    return n + 1


@workflow
async def counting(steps: int) -> int:
    total = 0
    for _ in range(steps):
        total = await tick(total)
    return total


@step
async def leave_behind() -> str:
    log("before", os.getpid())
    if not Path(folder, "release").exists():
        if how == "outlives":
            pid = os.fork()
            if not pid:
                time.sleep(600)
                os._exit(0)
        else:
            pid = subprocess.Popen(["/bin/sleep", "600"], close_fds=False).pid
        log("left behind", pid)
        await asyncio.Event().wait()
    return "went on"


@workflow
async def leaving() -> str:
    return await leave_behind()


@step
def in_a_child(n: int) -> int:
    pid = os.fork()
    if not pid:
        code = 1
        try:
            code = 0 if run(counting(n), id=f"child-{n}", store=STORE) == n else 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@workflow
async def nesting(count: int) -> list[int]:
    return list(await asyncio.gather(*(in_a_child.aio(n + 5) for n in range(count))))


def fork_and_exit() -> int:
    pid = os.fork()
    if not pid:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def main() -> None:
    async with Outlast(STORE, lease=600, heartbeat=0.1) as app:
        if how == "exits":
            runs = [await app.start(counting(50), id=f"r{n}") for n in range(4)]
            codes = []
            for _ in range(10):
                codes.append(fork_and_exit())
                await asyncio.sleep(0.005)
            results = [await one.result() for one in runs]
            after = await (await app.start(counting(3), id="after")).result()
            print(json.dumps([codes, results, after]), flush=True)
        elif how == "uses":
            runs = [await app.start(counting(30), id=f"r{n}") for n in range(3)]
            codes = await (await app.start(nesting(3), id="nesting")).result()
            print(json.dumps([codes, [await one.result() for one in runs]]), flush=True)
        else:
            print(json.dumps(await (await app.start(leaving(), id="r")).result()), flush=True)


asyncio.run(main())
