"""`outlast chaos` as a process, and who is there of its processes."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"


def environ(**more: str) -> dict[str, str]:
    """Without the settings of whoever runs the tests."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")}
    return {**outer, **more}


def command(*words: object) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "outlast", "chaos", *map(str, words)]


def chaos(
    folder: Path, *words: object, timeout: float = 110.0, **env: str
) -> tuple[int, dict[str, Any], str]:
    """Exit code, report and what was said beside it. Nothing of it is left then."""
    done = subprocess.run(
        command(*words, "--report", folder / "report", "--json"), cwd=folder, env=environ(**env), capture_output=True, text=True,
        timeout=timeout, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("{"), done.stderr
    until(lambda: processes_of(folder) == [], 5.0)
    return done.returncode, json.loads(done.stdout), done.stderr


def processes_of(folder: Path) -> list[int]:
    """Processes whose command line names this folder, which is the test's own. Only looked at."""
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


def until(condition: Any, seconds: float = 30.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"it did not come about in {seconds} s"
        time.sleep(0.02)
    return found


def check_of(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(check for check in report["verdict"]["checks"] if check["name"] == name)


def alarms(report: dict[str, Any]) -> dict[str, list[str]]:
    return {check["name"]: check["evidence"] for check in report["verdict"]["checks"] if check["violations"]}
