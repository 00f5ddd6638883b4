"""The workflow that the workers of the fault suite execute. They start in the scenario's folder."""

import asyncio
import os
import time
from pathlib import Path

from outlast import Outlast, current, sleep, step, workflow
from outlast.store.address import store_at
from outlast.store.protocol import Store

STEP = "append_line"
"""The name of the step, as it is in every request that records one."""
STEP_SECONDS = 0.1
HEARTBEAT = 0.5
CLOCK = Path("clock")
"""Seconds to add to the time, in a scenario that steps the clock of the workers' host."""


def note(when: str) -> None:
    """Append a line to the ledger, in one write."""
    me = current()
    words = (when, os.getpid(), me.id, me.step, me.attempt, me.fence)
    ledger = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(ledger, ("\t".join(map(str, words)) + "\n").encode())
    finally:
        os.close(ledger)


@step
async def append_line(number: int) -> int:
    note("before")
    await asyncio.sleep(STEP_SECONDS)
    note("after")
    return number * 2 + 1


@workflow
async def double(number: int, steps: int, *, sleeps: bool) -> int:
    """Call a chain of steps. A run that sleeps in between is released and claimed again."""
    for done in range(steps):
        number = await append_line(number)
        if sleeps and done == steps // 2:
            await sleep(0.5)
    return number


def result_of(number: int, steps: int) -> int:
    for _ in range(steps):
        number = number * 2 + 1
    return number


def has_own_clock(address: str) -> bool:
    """Return whether the time of a store is that of its server."""
    return not address.startswith("sqlite:")


def stepped(address: str, clock: Path) -> Store:
    """Return the store of an address, with the time that the file `clock` tells."""
    return store_at(
        address, clock=lambda: time.time() + float(clock.read_text()), heartbeat=HEARTBEAT
    )


def step_own_clock(clock: Path) -> None:
    """Let `time.time` tell what the file `clock` says, as on a host whose clock is set."""
    own = time.time
    time.time = lambda: own() + float(clock.read_text())


if CLOCK.exists():
    address = os.environ["OUTLAST_STORE"]
    if has_own_clock(address):
        step_own_clock(CLOCK)
    else:
        app = Outlast(stepped(address, CLOCK))
