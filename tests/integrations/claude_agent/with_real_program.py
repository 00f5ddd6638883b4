"""The adapter works with the program that the SDK ships, which `make test` does not install.

`make integrations` runs this file. The model stays scripted. `OUTLAST_TEST_CLAUDE` names another
program than the SDK's own.
"""

import os
import signal
from pathlib import Path

import claude_agent_sdk
import pytest

from support.agent_programs import AgentProgram

SHIPPED = Path(claude_agent_sdk.__file__).parent / "_bundled/claude"
CLAUDE = os.environ.get("OUTLAST_TEST_CLAUDE", SHIPPED)
PROGRAM = AgentProgram.at(Path(__file__).with_name("support_claude.py"), CLAUDE)


@pytest.mark.parametrize("calls", [[2, 3], [1, 4], [5, 2]], ids=str)
def test_kill_of_an_agent_repeats_at_most_the_calls_in_flight(place, tmp_path, calls):
    PROGRAM.check_kills(PROGRAM.interrupted(place, tmp_path, signal.SIGKILL, calls))


def test_sigterm_of_an_agent_repeats_nothing(place, tmp_path):
    PROGRAM.check_once(PROGRAM.interrupted(place, tmp_path, signal.SIGTERM, [1, 3]))
