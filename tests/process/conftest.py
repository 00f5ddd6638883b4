import os
import signal
from contextlib import suppress

import pytest
from process_tools import Program


@pytest.fixture
def spawn(tmp_path):
    """Start a program of `programs/` in this test's folder. What still lives at the end is killed, by its pid."""
    started = []

    def start(name, *args, env=None):
        started.append(Program(name, tmp_path, *args, env=env))
        return started[-1]

    yield start
    for program in started:
        program.kill()


@pytest.fixture
def reap():
    """Pids of processes that a program left behind on purpose: killed at the end."""
    pids = []
    yield pids
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
