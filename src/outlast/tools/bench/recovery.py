"""Measure recovery: kill the worker that holds a run, and wait until another one continues it.

Two workers are up. The measurement ends when the other worker begins a step of that run.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from outlast.store.commands import Submit
from outlast.tools.bench.figures import Recovery
from outlast.tools.bench.flows import LEDGER, Note, notes
from outlast.tools.bench.guest import Guest
from outlast.tools.bench.names import QUEUE, RECOVERY, new_id
from outlast.tools.chaos.fleet import Fleet, Member

KILLS = 3
UP_SECONDS = 30.0
"""How long workers may take to come up."""
TAKEN_SECONDS = 45.0
"""How long a run may wait: longer than the default lease."""
AT_WORK_SECONDS = 0.3
"""How long a worker has held the run before it is killed."""
TICK = 0.002
T = TypeVar("T")


class _NotMeasured(Exception):
    """Why recovery could not be measured."""


def recovery(guest: Guest, address: str) -> Recovery:
    """Measure recovery.

    The calling thread must stay alive until the end: the workers end with it.
    """
    if address.startswith("memory:"):
        return Recovery(not_measured="a memory: store ends with its process.")
    if address.startswith("file:"):
        return Recovery(
            not_measured="a file: store is for one process at a time: no other can take over."
        )
    if sys.platform == "win32":
        return Recovery(not_measured="it needs the signals of POSIX systems.")
    with TemporaryDirectory(prefix="outlast-bench-") as name:
        folder = Path(name)
        ledger = folder / "ledger"
        ledger.touch()
        command = (
            "worker",
            "outlast.tools.bench.flows",
            "--queue",
            QUEUE,
            "--concurrency",
            "1",
            "--log",
            "json",
        )
        fleet = Fleet(2, command, _environ(address, ledger), folder, followed=False)
        try:
            return Recovery(tuple(_kills(guest, fleet, ledger)))
        except _NotMeasured as why:
            return Recovery(not_measured=str(why))
        finally:
            fleet.end_all()
            guest.see_off(frozenset(member.pid for member in fleet.members))


def _environ(address: str, ledger: Path) -> dict[str, str]:
    """Return the workers' environment: the user's, so that the user's lease and heartbeat count.

    The store's address is not on the command line, where other users could read it.
    """
    own = {
        "STORE": address,
        "HTTP": "",
        "CHAOS_KILLS_PER_HOUR": "0",
        "JOURNAL_ENTRIES_MAX": "1000000",
    }
    return {
        **os.environ,
        **{f"OUTLAST_{name}": value for name, value in own.items()},
        LEDGER: str(ledger),
    }


def _kills(guest: Guest, fleet: Fleet, ledger: Path) -> list[float]:
    fleet.start_all()
    _until_up(fleet)
    guest.write(
        [Submit(new_id(), RECOVERY, "{}", secrets.token_hex(8), secrets.token_hex(16), queue=QUEUE)]
    )
    laps = [_kill(guest, fleet, ledger)]
    while len(laps) < KILLS:
        fleet.start(_empty_lane(fleet))
        _until_up(fleet)
        laps.append(_kill(guest, fleet, ledger))
    return laps


def _kill(guest: Guest, fleet: Fleet, ledger: Path) -> float:
    """Kill the worker that holds the run. Return the seconds until another worker continues it."""
    holder = _until(lambda: _at_work(fleet, ledger), TAKEN_SECONDS, "no worker takes the run")
    guest.register()
    killed = time.monotonic()
    fleet.kill(holder)
    note = _until(
        lambda: _other(ledger, holder.pid, killed),
        TAKEN_SECONDS,
        "no other worker takes the run over",
    )
    return note.at - killed


def _empty_lane(fleet: Fleet) -> int:
    return next(iter(set(range(fleet.size)) - {member.lane for member in fleet.there()}))


def _until_up(fleet: Fleet) -> None:
    def are_up() -> bool:
        fleet.check()
        if fleet.surprises:
            raise _NotMeasured(f"a worker did not start: {fleet.surprises[0].splitlines()[-1]}")
        return len(fleet.there("alive")) == fleet.size

    _until(are_up, UP_SECONDS, "the workers do not start")


def _at_work(fleet: Fleet, ledger: Path) -> Member | None:
    """Return the worker that has held the run for a while."""
    found = notes(ledger)
    if not found:
        return None
    own = [note.at for note in found if note.pid == found[-1].pid]
    if own[-1] - own[0] < AT_WORK_SECONDS:
        return None
    return next((member for member in fleet.there("alive") if member.pid == found[-1].pid), None)


def _other(ledger: Path, pid: int, since: float) -> Note | None:
    return next((note for note in notes(ledger) if note.pid != pid and note.at > since), None)


def _until(found: Callable[[], T | None], seconds: float, otherwise: str) -> T:
    until = time.monotonic() + seconds
    while not (it := found()):
        if time.monotonic() > until:
            raise _NotMeasured(f"{otherwise}, in {seconds:g} s.")
        time.sleep(TICK)
    return it
