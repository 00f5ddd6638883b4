"""Start the demo, in this process and as another one."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outlast.tools.demo import monitor, scenario
from outlast.tools.demo.facts import Facts
from outlast.tools.demo.scenario import AGENT, run_scenario
from outlast.tools.demo.view import State
from outlast.tools.demo.workspace import isolated_environment
from support.processes import Program

PACE = "8"
DEMO_SECONDS = 500
"""How long a whole demo may take on a machine that is ten times slower than a developer's."""
STARTED = re.compile(r"worker [ABC] starts \(process (\d+)\)")
DEMO = """
import sys
import outlast.tools.demo.monitor
from outlast.cli import main

outlast.tools.demo.monitor.START_SECONDS = 3600.0
main(sys.argv[1:])
"""
"""The program of `outlast`. Its demo does not give up on a slow machine."""
QUICK = {"OUTLAST_LINGER": "0.1", "OUTLAST_EFFECT_MARGIN": "0.5"}
"""Settings of the workers that shorten waits, where a test is not about the defaults."""
QUICK_DEMO = f"""
import os
from contextlib import contextmanager
import outlast.tools.demo.scenario as scenario
from outlast.tools.demo.workspace import isolated_environment

@contextmanager
def quick_environment():
    with isolated_environment():
        os.environ.update({QUICK})
        yield

scenario.isolated_environment = quick_environment
{DEMO}"""
"""The same as DEMO, with the settings of QUICK."""
DEMO_WITH_DOCUMENT = f"""
import json
from pathlib import Path
from outlast.tools.demo import claims

def check(facts):
    checked = check_facts(facts)
    document = claims.document(facts, checked, Path("outlast-demo.db"))
    Path("document.json").write_text(json.dumps(document))
    return checked

check_facts, claims.check = claims.check, check
{DEMO}"""
"""The same as DEMO. It also writes what `--json` would print into a file."""
AGENT_TEXT = (Path(__file__).parents[3] / "src/outlast/tools/demo/agent.py").read_text()
POST = 'await post(f"{OUTBOX}/send", to=to, text=text, key=key)'
LOSES_A_REPLY = (
    f"return int({POST})",
    f"""number = int({POST})
    if number == 1:
        raise ConnectionError("the reply was lost")
    return number""",
)
LOST_REPLY = (LOSES_A_REPLY, ("@effect(timeout=10)", "@effect(timeout=2)"))
"""The reply to the first message is lost, and the agent may soon verify it."""
HOSTILE_ENV_FILE = "OUTLAST_CONCURRENCY=50\nOUTLAST_NO_SUCH_SETTING=1\nOUTLAST_LEASE=0.1\n"
HOSTILE = {
    "OUTLAST_QUEUES": "others", "OUTLAST_HTTP": "127.0.0.1:1", "OUTLAST_STORE": "redis://127.0.0.1:1/0", "OUTLAST_SECRETS_DIR": "/nowhere",
    "DATABASE_URL": "postgresql://127.0.0.1:1/none", "SHUTDOWN_TIMEOUT": "1", "http_proxy": "http://127.0.0.1:1", "outlast_grace": "x",
}  # fmt: skip


def clean(**env: str) -> dict[str, str]:
    """Return the environment without what decides how the demo is drawn."""
    without = ("NO_COLOR", "CI", "FORCE_COLOR")
    return {name: value for name, value in os.environ.items() if name not in without} | env


def quick_demo(
    folder: Path, agent: str = AGENT, show: Callable[[State], None] = lambda _: None
) -> Facts:
    """Run the scenario in this process, with the settings of QUICK and any time to start."""

    @contextmanager
    def quick_environment() -> Iterator[None]:
        with isolated_environment():
            os.environ.update(QUICK)
            yield

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(monitor, "START_SECONDS", 3600.0)
        patch.setattr(scenario, "isolated_environment", quick_environment)
        return run_scenario(folder / "outlast-demo.db", show, pace=float(PACE), agent=agent)


def started(folder: Path) -> Program:
    return Program.python("-c", QUICK_DEMO, "demo", "--pace", PACE, folder=folder, env=clean())


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
