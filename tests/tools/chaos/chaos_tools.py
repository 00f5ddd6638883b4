"""Run `outlast chaos` as a process and find the processes it started."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from support.processes import Program, clean_environment
from support.waiting import WAIT_SECONDS, wait_until

PROGRAMS = Path(__file__).parent / "programs"
EXPERIMENT_SECONDS = 5 * WAIT_SECONDS
"""How long a test waits for the end of an experiment."""
SETTLE_SECONDS = 4 * WAIT_SECONDS
"""How long an experiment waits for the end of its runs, unless a test says otherwise."""


def command(*words: object) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "outlast", "chaos", *map(str, words)]


def chaos(folder: Path, *words: object, **env: str) -> tuple[int, dict[str, Any], str]:
    """Run an experiment and wait until all its processes are gone. Return exit code, report and stderr."""
    told = command("--settle", SETTLE_SECONDS, *words, "--report", folder / "report", "--json")
    with Program(told, folder, env=clean_environment(**env)) as experiment:
        code = experiment.wait(EXPERIMENT_SECONDS)
        assert experiment.output.startswith("{"), experiment.describe()
    wait_until(lambda: processes_of(folder) == [])
    return code, json.loads(experiment.output), experiment.errors


def processes_of(folder: Path) -> list[int]:
    """Return the pids of processes whose command line names this folder, which is the test's own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if str(folder).encode() in words and state != "Z":
                found.append(int(entry.name))
    return found


def check_of(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(check for check in report["verdict"]["checks"] if check["name"] == name)


def alarms(report: dict[str, Any]) -> dict[str, list[str]]:
    return {
        check["name"]: check["evidence"]
        for check in report["verdict"]["checks"]
        if check["violations"]
    }
