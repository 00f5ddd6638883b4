"""`outlast workers` and `outlast doctor` after a worker has ended: which step blocked its event loop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

from outlast.store.commands import UpdateSession
from outlast.store.fleet import STALLS

BLOCKING = """
import time
from outlast import run, step, workflow

@step
async def fetch() -> None:
    time.sleep(1000)

@workflow
async def agent() -> None:
    await fetch()

run(agent(), id="r1", stall_warn=0.1)
"""


def recorded(outlast, worker: str, step: str = "fetch", ago: float = 60.0) -> None:
    said = json.dumps(
        {"count": 3, "seconds": 12.04, "at": time.time() - ago, "line": "flows.py:12"}
    )
    outlast.commit(UpdateSession(worker, f"t-{worker}-{step}", {step: said}, 1e6, space=STALLS))


def blocked(outlast) -> list[str]:
    return [line for line in outlast("workers").out.splitlines() if "blocked" in line]


def on_record(outlast) -> bool:
    """Return whether the step is. The child may not have made the store yet; a slow machine may have other stalls."""
    answer = outlast("workers", "--json")
    return answer.code == 0 and any(one["step"] == "fetch" for one in answer.json["stalls"])


def test_a_step_that_blocked_an_ended_worker_is_shown_after_those_of_living_ones(outlast):
    outlast.registered("w1")
    recorded(outlast, "gone", ago=10)
    recorded(outlast, "w1", ago=100)
    first, second = blocked(outlast)
    assert first.startswith(
        "worker w1: `fetch` blocked the event loop 3 times, the last time for 12.0 s"
    )
    assert second.startswith("worker gone, which has ended: `fetch` blocked the event loop 3 times")
    stalls = outlast("workers", "--json").json["stalls"]
    assert [(one["worker"], one["ended"]) for one in stalls] == [("gone", True), ("w1", False)]
    out = outlast("doctor").out
    assert "[worker gone, which has ended]" in out
    assert "[worker w1]" in out


def test_latest_stalls_are_shown_when_no_worker_is_alive(outlast):
    for number in range(7):
        recorded(outlast, f"w{number}", ago=number)
    lines = outlast("workers").out.splitlines()
    assert lines[0] == "no process has this store open."
    assert [line.split(",")[0] for line in lines[1:6]] == [
        f"worker w{number}" for number in range(5)
    ]
    assert lines[6:] == ["2 older ones of ended workers: see --json."]
    assert len(outlast("workers", "--json").json["stalls"]) == 7


def test_a_worker_that_was_killed_while_it_was_blocked_has_it_on_record(outlast):
    (outlast.folder / "blocking.py").write_text(BLOCKING)
    env = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")}
    child = subprocess.Popen([sys.executable, "blocking.py"], cwd=outlast.folder, env=env)
    try:
        while not on_record(outlast):
            assert child.poll() is None
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    [line] = [
        line for line in blocked(outlast) if ": `fetch` blocked the event loop once, for " in line
    ]
    assert "blocking.py:7" in line
