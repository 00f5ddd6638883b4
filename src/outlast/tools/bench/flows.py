"""Define what a bench's workers execute: `outlast worker outlast.tools.bench.flows`.

Each step notes in a ledger which process began it, and when.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import NamedTuple

from outlast.api.step import step
from outlast.api.workflow import workflow
from outlast.tools.bench.names import RECOVERY

LEDGER = "BENCH_LEDGER"
"""The environment variable with the ledger's path."""
STEP_SECONDS = 0.005
STEPS_MAX = 100_000


class Note(NamedTuple):
    pid: int
    at: float
    """By `time.monotonic`, one clock for all processes of a host."""


@step(name="note")
async def note() -> None:
    ledger = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND)
    try:
        # A single call writes the whole line.
        os.write(ledger, f"{os.getpid()} {time.monotonic()!r}\n".encode())
    finally:
        os.close(ledger)
    await asyncio.sleep(STEP_SECONDS)


note.is_measured = False


@workflow(name=RECOVERY)
async def noting() -> None:
    for _ in range(STEPS_MAX):
        await note()


def notes(ledger: Path) -> list[Note]:
    found = []
    for line in ledger.read_text().splitlines():
        pid, at = line.split()
        found.append(Note(int(pid), float(at)))
    return found
