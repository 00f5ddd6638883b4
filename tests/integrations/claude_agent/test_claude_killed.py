"""An agent that is killed or stopped at any call repeats at most the calls in flight."""

import signal
from pathlib import Path

import pytest

from support.agent_programs import AgentProgram

PROGRAM = AgentProgram.at(Path(__file__).with_name("support_claude.py"))


@pytest.mark.parametrize(
    "calls",
    [
        [2, 3, 3],
        pytest.param([1, 4, 2], marks=pytest.mark.extended),
        pytest.param([5, 2, 2], marks=pytest.mark.extended),
    ],
    ids=str,
)
def test_kill_repeats_at_most_the_calls_in_flight(place, tmp_path, calls):
    PROGRAM.check_kills(PROGRAM.interrupted(place, tmp_path, signal.SIGKILL, calls))


def test_sigterm_repeats_nothing(place, tmp_path):
    """A drain lets the calls in flight end, and stops at the next one."""
    calls = [1, 3]
    PROGRAM.check_drains(PROGRAM.interrupted(place, tmp_path, signal.SIGTERM, calls), calls)
