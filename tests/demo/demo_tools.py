"""What the tests of the demo share."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from outlast.demo.facts import Facts, facts_of
from outlast.demo.play import AGENT, Play
from outlast.demo.view import View

PACE = "8"
STARTED = re.compile(r"worker [ABC] starts \(process (\d+)\)")


def clean(**env: str) -> dict[str, str]:
    """Without what decides how it is drawn."""
    without = ("NO_COLOR", "CI", "FORCE_COLOR")
    return {name: value for name, value in os.environ.items() if name not in without} | env


def demo(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "outlast", "demo", "--pace", PACE, *words],
        capture_output=True, text=True, timeout=100, check=False, cwd=folder, env=clean(**env),
    )  # fmt: skip


def played(folder: Path, agent: str = AGENT) -> Facts:
    return facts_of(Play(folder / "outlast-demo.db", View(), pace=float(PACE), agent=agent).run())


def started(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-P", "-m", "outlast", "demo", "--pace", PACE],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=clean(), start_new_session=True,
    )  # fmt: skip


def read_until(process: subprocess.Popen[str], text: str) -> list[str]:
    """The lines up to the one that has this text."""
    lines: list[str] = []
    assert process.stdout is not None
    while not (lines and text in lines[-1]):
        line = process.stdout.readline()
        assert line, (lines, process.stderr.read() if process.stderr else "")
        lines.append(line)
    return lines


def pids_in(lines: list[str]) -> list[int]:
    return [int(found[1]) for line in lines if (found := STARTED.search(line))]


def is_alive(pid: int) -> bool:
    """A zombie is not, where that can be told."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # it has gone since, or nothing is told of anybody here
        return not Path("/proc/self/stat").exists()


def gone_within(pids: list[int], seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while any(map(is_alive, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(is_alive, pids))
