"""Start the demo, in this process and as another one."""

import os
import re
import subprocess
import sys
from pathlib import Path

from outlast.demo import play
from outlast.demo.facts import Facts, facts_of
from outlast.demo.play import AGENT, Play
from outlast.demo.view import View
from support.processes import Program

PACE = "8"
PLAY_SECONDS = 500
"""How long a whole play may take on a machine that is ten times slower than a developer's."""
STARTED = re.compile(r"worker [ABC] starts \(process (\d+)\)")
PLAY = """
import sys
import outlast.demo.play
from outlast.cli import main

outlast.demo.play.START_SECONDS = 3600.0
main(sys.argv[1:])
"""
"""`outlast demo`, which does not give up on a slow machine."""
HOSTILE_ENV_FILE = "OUTLAST_CONCURRENCY=50\nOUTLAST_NO_SUCH_SETTING=1\nOUTLAST_LEASE=0.1\n"
HOSTILE = {
    "OUTLAST_QUEUES": "others", "OUTLAST_HTTP": "127.0.0.1:1", "OUTLAST_STORE": "redis://127.0.0.1:1/0", "OUTLAST_SECRETS_DIR": "/nowhere",
    "DATABASE_URL": "postgresql://127.0.0.1:1/none", "SHUTDOWN_TIMEOUT": "1", "http_proxy": "http://127.0.0.1:1", "outlast_grace": "x",
}  # fmt: skip


def clean(**env: str) -> dict[str, str]:
    """Return the environment without what decides how the demo is drawn."""
    without = ("NO_COLOR", "CI", "FORCE_COLOR")
    return {name: value for name, value in os.environ.items() if name not in without} | env


def demo(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", PLAY, "demo", "--pace", PACE, *words],
        capture_output=True, text=True, timeout=PLAY_SECONDS, check=False, cwd=folder, env=clean(**env),
    )  # fmt: skip


def played(folder: Path, agent: str = AGENT) -> Facts:
    play.START_SECONDS = 3600.0
    return facts_of(Play(folder / "outlast-demo.db", View(), pace=float(PACE), agent=agent).run())


def started(folder: Path) -> Program:
    return Program.python("-c", PLAY, "demo", "--pace", PACE, folder=folder, env=clean())


def lines_until(process: Program, text: str) -> list[str]:
    """Wait for a line that has this text, and return the lines so far."""
    process.wait_until(lambda: any(text in line for line in process.lines))
    return process.lines


def pids_in(lines: list[str]) -> list[int]:
    return [int(found[1]) for line in lines if (found := STARTED.search(line))]
