"""A run that starts under one version of a framework finishes under another.

Only `make integrations` runs this file. It says which agent to run, and where the other version is.
"""

import os
import signal
import sys
from pathlib import Path

import pytest

from support.agent_programs import AgentProgram, calls_of

PROGRAM = AgentProgram.at(Path(os.environ["OUTLAST_TEST_AGENT"]))
PYTHONS = (sys.executable, os.environ["OUTLAST_TEST_OTHER_PYTHON"])
ALL_BUT_THE_LAST = len(calls_of(PROGRAM.plan)) - 1


@pytest.mark.parametrize("calls", [[2], [2, 3, 3], [ALL_BUT_THE_LAST]], ids=str)
def test_killed_run_finishes_under_the_other_version(tmp_path, calls):
    store = f"sqlite:///{tmp_path}/outlast.db"
    lives = PROGRAM.interrupted(store, tmp_path, signal.SIGKILL, calls, PYTHONS)
    PROGRAM.check_kills(lives)


def test_drained_run_finishes_under_the_other_version(tmp_path):
    store = f"sqlite:///{tmp_path}/outlast.db"
    PROGRAM.check_once(PROGRAM.interrupted(store, tmp_path, signal.SIGTERM, [1, 3], PYTHONS))
