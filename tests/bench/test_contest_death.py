"""Kill a real worker of Outlast, and check what the section on deaths says of it."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench.contest.contenders import OUTLAST, Contender
from bench.contest.death import Entrant, Scenario, measure, trial
from bench.contest.deathpage import tables
from bench.contest.takeover import takeovers
from bench.contest.workers import worker

from support.shared import FULL
from support.waiting import WAIT_SECONDS, wait_until

RUNS = Entrant("Outlast, runs (SQLite)", OUTLAST, "sqlite", "runs")
BROKEN = Entrant("nobody (SQLite)", Contender("nobody", "no_such_driver.py", ("sqlite",)), "sqlite")
KILLED = Scenario("killed", signal.SIGKILL, stages=3, stage_seconds=0.3)
TOLD = Scenario("fits", signal.SIGTERM, stages=3, stage_seconds=0.3)


def quiet(_: str) -> None: ...


@pytest.fixture(autouse=True)
def no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a worker as soon as it says `ready`: only other contenders need longer."""
    monkeypatch.setitem(worker.__wrapped__.__kwdefaults__, "settle", 0.0)  # type: ignore[attr-defined]


def test_after_a_kill_another_worker_continues_with_the_steps_that_were_not_recorded(
    tmp_path: Path,
) -> None:
    found = trial(RUNS, KILLED, f"sqlite:///{tmp_path / 'store.db'}", tmp_path, quiet, jobs=2)
    assert found["exit_status"] == -signal.SIGKILL and not found["killed"]
    assert found["unfinished"] == 0 and found["left"] == 0
    assert found["taken"] == 2 and found["taken_last"] is not None
    assert found["done_twice"] == 0 and found["redone_seconds"] >= 0


def test_section_has_results_and_failures_and_repeats_no_long_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.contest.death.REPEATED_SECONDS_MAX", 0.0)
    found = measure(tmp_path, 2, quiet, entrants=(RUNS, BROKEN), scenarios=(TOLD,), kills=0)
    (ours,), (theirs, again) = found["trials"]["fits"].values()  # what failed is tried again
    assert ours["exit_status"] == 0 and not ours["killed"] and ours["begun_after"] == 0
    assert (
        ours["unfinished"] == 0
        and ours["done_twice"] == 0
        and ours["redone_seconds"] == pytest.approx(0)
    )
    assert "no_such_driver.py" in theirs["failed"] and "no_such_driver.py" in again["failed"]
    assert "failed: nobody: its worker does not start" in tables(found)


def test_each_kill_is_timed_until_another_worker_begins_a_step_of_the_run(tmp_path: Path) -> None:
    kills = 2 if FULL else 1
    found = takeovers(OUTLAST, f"sqlite:///{tmp_path / 'store.db'}", tmp_path, kills, quiet)
    assert "failed" not in found and len(found["seconds"]) == kills
    assert all(0 < seconds < WAIT_SECONDS for seconds in found["seconds"])


MEASURE = """
import sys
from pathlib import Path
from bench.contest.__main__ import end_once
from bench.contest.death import ENTRANTS, SCENARIOS, measure

end_once()
ours = [one for one in ENTRANTS if one.name == "Outlast, runs (SQLite)"]
measure(Path(sys.argv[1]), 1, print, entrants=ours, scenarios=SCENARIOS, kills=0)
"""


def test_two_interrupts_leave_no_worker_behind(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MEASURE, str(tmp_path)], stderr=subprocess.PIPE
    ) as bench:
        wait_until(lambda: len(_naming(tmp_path)) > 3)  # itself, and workers of several trials
        for _ in range(2):
            bench.send_signal(signal.SIGINT)
            time.sleep(0.1)  # two signals at once would be one
        _, said = bench.communicate(timeout=WAIT_SECONDS)
    assert b"KeyboardInterrupt" in said and bench.returncode
    wait_until(lambda: not _naming(tmp_path))


def _naming(folder: Path) -> list[str]:
    """Return the command lines that name this folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_text()
        except OSError:
            continue  # it has ended since
        if str(folder) in words:
            found.append(words)
    return found
