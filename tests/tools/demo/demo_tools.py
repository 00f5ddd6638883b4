"""Start the demo, in this process and as another one."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outlast.tools.demo import scenario
from outlast.tools.demo.facts import Facts, facts_of
from outlast.tools.demo.scenario import AGENT, Scenario
from outlast.tools.demo.view import View
from outlast.tools.demo.workspace import environ_of
from support.processes import Program

PACE = "8"
PLAY_SECONDS = 500
"""How long a whole play may take on a machine that is ten times slower than a developer's."""
STARTED = re.compile(r"worker [ABC] starts \(process (\d+)\)")
PLAY = """
import sys
import outlast.tools.demo.scenario
from outlast.cli import main

outlast.tools.demo.scenario.START_SECONDS = 3600.0
main(sys.argv[1:])
"""
"""`outlast demo`, which does not give up on a slow machine."""
QUICK = {"OUTLAST_LINGER": "0.1", "OUTLAST_EFFECT_MARGIN": "0.5"}
"""Settings of the workers, where a test is not about their defaults: nothing waits for long."""
QUICK_PLAY = f"""
import outlast.tools.demo.scenario as play
from outlast.tools.demo.workspace import environ_of

play.environ_of = lambda environ, **more: environ_of(environ, **more) | {QUICK}
{PLAY}"""
"""The same with workers that have these settings."""
KEEPING_PLAY = f"""
import json
import outlast.tools.demo.summary as texts

def summary(facts, checked, file):
    with open("found.json", "w") as found:
        json.dump(texts.document(facts, checked, file), found)
    return written(facts, checked, file)

written, texts.summary = texts.summary, summary
{PLAY}"""
"""The same as PLAY. It also writes what `--json` would print."""
AGENT_TEXT = (Path(__file__).parents[3] / "src/outlast/tools/demo/agent.py").read_text()
POST = 'receipt = await post(f"{OUTBOX}/messages", to=to, text=text, key=key)'
LOSES_AN_ANSWER = (
    POST,
    f"{POST}\n    if receipt['number'] == 1:\n        raise ConnectionError('the answer was lost')",
)
HOSTILE_ENV_FILE = "OUTLAST_CONCURRENCY=50\nOUTLAST_NO_SUCH_SETTING=1\nOUTLAST_LEASE=0.1\n"
HOSTILE = {
    "OUTLAST_QUEUES": "others", "OUTLAST_HTTP": "127.0.0.1:1", "OUTLAST_STORE": "redis://127.0.0.1:1/0", "OUTLAST_SECRETS_DIR": "/nowhere",
    "DATABASE_URL": "postgresql://127.0.0.1:1/none", "SHUTDOWN_TIMEOUT": "1", "http_proxy": "http://127.0.0.1:1", "outlast_grace": "x",
}  # fmt: skip


def clean(**env: str) -> dict[str, str]:
    """Return the environment without what decides how the demo is drawn."""
    without = ("NO_COLOR", "CI", "FORCE_COLOR")
    return {name: value for name, value in os.environ.items() if name not in without} | env


def quick_play(folder: Path, agent: str = AGENT, view: View | None = None) -> Scenario:
    """Return a play whose workers have QUICK's settings, to be run within `quick_workers`."""
    return Scenario(folder / "outlast-demo.db", view or View(), pace=float(PACE), agent=agent)


@contextmanager
def quick_workers() -> Iterator[None]:
    """Give the workers of plays in this process QUICK's settings, and any time to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scenario, "START_SECONDS", 3600.0)
        patch.setattr(
            scenario, "environ_of", lambda environ, **more: environ_of(environ, **more) | QUICK
        )
        yield


def played(folder: Path, agent: str = AGENT) -> Facts:
    with quick_workers():
        return facts_of(quick_play(folder, agent).run())


def started(folder: Path) -> Program:
    return Program.python("-c", QUICK_PLAY, "demo", "--pace", PACE, folder=folder, env=clean())


def agent(folder: Path, *changes: tuple[str, str]) -> str:
    """Write the agent with something else in it, and return its file."""
    text = AGENT_TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "agent.py").write_text(text)
    return str(folder / "agent.py")


def lines_until(process: Program, text: str) -> list[str]:
    """Wait for a line that has this text, and return the lines so far."""
    process.wait_until(lambda: any(text in line for line in process.lines))
    return process.lines


def pids_in(lines: list[str]) -> list[int]:
    return [int(found[1]) for line in lines if (found := STARTED.search(line))]
