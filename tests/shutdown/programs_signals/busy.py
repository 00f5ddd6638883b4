"""busy.py WHERE [GRACE]: keep the main thread busy until a signal comes. With GRACE there is a guard."""

import asyncio
import itertools
import re
import sqlite3
import sys
import threading
import time

from said import begin, say

from outlast.shutdown.signal_handlers import SignalReceiver
from outlast.shutdown.watchdog import WatchdogProcess

where = sys.argv[1]
guard = WatchdogProcess(float(sys.argv[2])) if len(sys.argv) > 2 else None
if guard is not None:
    assert guard.start()
    say("guard", guard._process.pid)
signals = SignalReceiver(begin, watchdog=guard)


def regex() -> None:
    re.match(r"(a+)+$", "a" * 40 + "b")


def in_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def in_sqlite(rows: int = 10**9) -> None:
    sqlite3.connect(":memory:").execute(
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) SELECT sum(i) FROM n"
    ).fetchall()


def in_sqlite_and_out() -> None:
    in_sqlite(10**6)
    say("out")
    time.sleep(60)


def in_thread(work) -> None:
    threading.Thread(target=work, daemon=True).start()
    time.sleep(60)


async def in_loop() -> None:
    assert signals.install()
    say("ready")
    await asyncio.sleep(60)


async def in_callback() -> None:
    assert signals.install()
    asyncio.get_running_loop().call_soon(time.sleep, 60)
    say("ready")
    await asyncio.sleep(60)


if where == "loop":
    asyncio.run(in_loop())
elif where == "callback":
    asyncio.run(in_callback())
elif where in {"uvloop", "uvloop-callback"}:
    import uvloop

    uvloop.run(in_loop() if where == "uvloop" else in_callback())
else:
    assert signals.install()
    say("ready")
    {
        "sleep": lambda: time.sleep(60),
        "lock": in_lock,
        "sqlite": in_sqlite,
        "sqlite-and-out": in_sqlite_and_out,
        "regex": regex,
        "regex-in-thread": lambda: in_thread(regex),
        "sum": lambda: sum(itertools.repeat(1, 10**11)),
        "sum-in-thread": lambda: in_thread(lambda: sum(itertools.repeat(1, 10**11))),
    }[where]()
