import pytest
from process_tools import Program

from support.processes import kill_quietly


@pytest.fixture
def spawn(tmp_path):
    """Start programs of `programs/` in the test's folder. The fixture kills what still runs at the end."""
    started = []

    def start(name, *args, env=None):
        started.append(Program(name, tmp_path, *args, env=env))
        return started[-1]

    yield start
    for program in started:
        program.kill()


@pytest.fixture
def orphans():
    """Collect the pids of processes that a program leaves behind. The fixture kills them at the end."""
    pids = []
    yield pids
    for pid in pids:
        kill_quietly(pid)
