"""Each alert's state, brought about by real workers: what the runbook says to look with finds it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from uncertain import UNCERTAIN

from outlast.explain.texts import find
from support.cli import answer_in
from support.spawned import Spawned, spawn
from support.waiting import WAIT_SECONDS, wait_until

PROGRAM = """
import asyncio
import pathlib

from outlast import effect, step, workflow


@step
async def hold() -> None:
    pathlib.Path("held").touch()
    await asyncio.sleep(300)


@workflow
async def holding() -> None:
    await hold()
"""


SHORT_STEPS = {"grace": "60", "checkpoint_reserve": "50", "exit_reserve": "9.6"}
"""A drain in which steps have a tenth of a second, and everything after them has a minute."""


class Folder:
    """A user's folder: a program, a store, workers, and the command line."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path, self._capsys, self.workers = path, capsys, []
        (path / "agent.py").write_text(PROGRAM + UNCERTAIN)
        self.env = {"OUTLAST_STORE": f"sqlite:///{path}/outlast.db", "OUTLAST_EFFECT_MARGIN": "0.1"}

    def _env(self, settings: dict[str, str]) -> dict[str, str]:
        return {
            **self.env,
            **{f"OUTLAST_{name.upper()}": value for name, value in settings.items()},
        }

    def outlast(self, *words: str, **settings: str) -> str:
        """What it says, on either stream."""
        answer = answer_in(self.path, words, self._capsys, **self._env(settings))
        return answer.out + answer.err

    def worker(self, **settings: str) -> Spawned | subprocess.Popen[str]:
        env = {**os.environ, **self._env(settings)}
        command = [sys.executable, "-m", "outlast", "worker", "agent.py"]
        with (self.path / f"worker-{len(self.workers)}.log").open("wb") as log:
            process = spawn(command, cwd=self.path, env=env, stdout=log, stderr=log)
        self.workers.append(process)
        return process

    def until(self, seen: Callable[[], bool], what: str) -> None:
        wait_until(seen, what, pause=0.05)  # to ask a command takes longer than a usual pause

    def until_status(self, id: str, status: str) -> None:
        self.until(
            lambda: self.outlast("show", id).startswith(f"{id}  {status}\n"),
            f"{id} is not {status}",
        )

    def holding(
        self, id: str, *, worker: dict[str, str], **settings: str
    ) -> Spawned | subprocess.Popen[str]:
        """A worker in the middle of a step of this run."""
        self.outlast("submit", "agent.py:holding", "--id", id, **settings)
        process = self.worker(**worker)
        self.until((self.path / "held").exists, "the step did not begin")
        return process

    def look(self, alert: str, **names: str) -> str:
        """What all of its commands show, with names for what stands for one."""
        entry = find(alert)
        assert entry is not None
        lines = re.findall(r"^    outlast (.+)$", entry.parts["Look"], re.MULTILINE)
        assert lines
        return "\n".join(
            self.outlast(*(names.get(word, word) for word in line.split())) for line in lines
        )


@pytest.fixture
def folder(tmp_path, capsys) -> Iterator[Folder]:
    made = Folder(tmp_path, capsys)
    yield made
    for process in made.workers:
        process.kill()
        process.wait(WAIT_SECONDS)


def test_compensations_that_are_stuck(folder):
    folder.outlast("submit", "agent.py:trip", "--id", "trip-7")
    folder.worker()
    folder.until_status("trip-7", "parked")
    seen = folder.look("OutlastCompensationsStuck", ID="trip-7")
    assert re.search(r"^trip-7 +parked", seen, re.MULTILINE)
    assert "the hotel is closed" in seen
    assert "outlast retry trip-7" in seen
    assert "outlast decide trip-7 'undo:book#1' --happened null" in seen
    assert "For more, run `outlast explain stuck`." in seen
    decided = folder.outlast("decide", "trip-7", "undo:book#1", "--happened", "null")
    assert "trip-7" in decided
    folder.until_status("trip-7", "failed")


def test_runbook_finds_a_parked_run_and_its_effect(folder):
    folder.outlast("submit", "agent.py:posting", "--id", "letter-1")
    folder.worker()
    folder.until_status("letter-1", "parked")
    seen = folder.look("OutlastRunsParked", ID="letter-1")
    assert re.search(r"^letter-1 +parked", seen, re.MULTILINE)
    assert "outlast decide letter-1 'post#1' --did-not" in seen
    assert "For more, run `outlast explain unknown`." in seen
    log = (folder.path / "worker-0.log").read_text()
    assert '"explain": "unknown"' in log


def test_runbook_finds_a_dead_letter_and_its_cause(folder):
    limits = {"interruptions_max": "1"}
    process = folder.holding("r-1", worker=SHORT_STEPS, **limits)
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_SECONDS) == 0
    folder.until_status("r-1", "dead")
    seen = folder.look("OutlastDeadLetters", ID="r-1")
    assert re.search(r"^r-1 +dead", seen, re.MULTILINE)
    assert "interrupted once without recording anything" in seen
    assert "outlast retry r-1" in seen
    assert "For more, run `outlast explain RunDead`." in seen
    folder.outlast("cancel", "r-1")
    assert "r-1" not in folder.outlast("runs", "--status", "dead"), "that is how it is acknowledged"


def test_runbook_finds_interrupted_runs_that_no_worker_resumes(folder):
    process = folder.holding("r-1", worker=SHORT_STEPS)
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_SECONDS) == 0
    for alert in ("OutlastRecoveryQueueGrowing", "OutlastRecoverySlow"):
        seen = folder.look(alert)
        assert "no process has this store open" in seen, seen
        assert re.search(r"\b1 (run )?.*after an interruption", seen), seen
        assert re.search(r"^\d{4}-.* SIGTERM", seen, re.MULTILINE), "the drain that has cut it off"


def test_a_drain_that_was_cut_short(folder):
    process = folder.holding("r-1", worker={"grace": "60"})
    process.send_signal(signal.SIGTERM)
    folder.until(lambda: "draining" in folder.outlast("workers"), "it does not drain")
    process.kill()
    process.wait(WAIT_SECONDS)
    folder.worker()  # who sweeps after it
    folder.until(lambda: "cut short" in folder.outlast("drains"), "nobody has noticed")
    worker = re.search(
        r'"worker":"(\w+)"|"worker": "(\w+)"', (folder.path / "worker-0.log").read_text()
    )
    assert worker is not None
    id = worker[1] or worker[2]
    seen = folder.look("OutlastDrainCutShort", WORKER=id)
    assert "cut short" in seen
    assert id in seen


def test_a_store_that_cannot_be_reached(folder):
    folder.env["OUTLAST_STORE"] = "postgresql://127.0.0.1:1/agents"
    seen = folder.look("OutlastStoreUnreachable")
    assert seen.count("cannot connect") >= 2
    assert "For more, run `outlast explain StoreUnavailable`." in seen


def test_runbook_explains_a_store_without_workers(folder):
    folder.outlast("submit", "agent.py:holding", "--id", "r-1")
    seen = folder.look("OutlastNobodyWorks")
    assert "no process has this store open" in seen, seen
    assert re.search(r"^default +1 ", seen, re.MULTILINE), seen
    assert re.search(r"warning +workers", seen), seen
    assert "For more, run `outlast explain workers`." in seen
