"""kill -9 of a worker, many times, until another one has begun a step of its run."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.contest.ask import Failed, ask
from bench.contest.contenders import Contender
from bench.contest.ledger import Attempt, Attempts
from bench.contest.workers import Worker, worker

STAGES, STAGE_SECONDS = 200, 0.05
"""What is killed is in the middle of a run of ten seconds."""
STAGES_BEFORE = 3
WAIT_SECONDS_MAX = 60.0


def takeovers(
    contender: Contender, store: str, folder: Path, kills: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """The seconds of each, sorted; `failed` if a run was not taken over in time."""
    ledger = folder / f"takeover-{time.monotonic_ns()}"
    ledger.touch()
    laps: list[float] = []
    try:
        with ExitStack() as stack:
            workers: dict[str, Worker] = {}

            def start(number: int) -> None:
                name = f"w{number}"
                workers[name] = stack.enter_context(
                    worker(
                        contender,
                        folder,
                        tell,
                        store=store,
                        kind="runs",
                        name=name,
                        longest=STAGE_SECONDS,
                    )
                )

            start(0)
            start(1)
            for number in range(kills):
                ask(contender, "submit", tell, store=store, kind="runs", jobs=1, first=number, stages=STAGES,
                    stage_seconds=STAGE_SECONDS, ledger=ledger)  # fmt: skip
                holder = _begun(ledger, number, lambda one: one.stage >= STAGES_BEFORE).worker
                killed = time.monotonic()
                workers.pop(holder).signal_all(signal.SIGKILL)
                taken = _begun(ledger, number, lambda one: one.worker != holder)  # noqa: B023 - asked at once
                laps.append(taken.began - killed)
                start(number + 2)
    except Failed as failure:
        return {"seconds": sorted(laps), "failed": str(failure)}
    return {"seconds": sorted(laps)}


def _begun(ledger: Path, job: int, is_so: Callable[[Attempt], bool]) -> Attempt:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < deadline:
        found = [one for one in Attempts(ledger.read_text()).all if one.job == job and is_so(one)]
        if found:
            return min(found, key=lambda one: one.began)
        time.sleep(0.005)
    raise Failed(f"nobody was on run {job} within {WAIT_SECONDS_MAX:.0f} s")
