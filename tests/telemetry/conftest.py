import sys

import pytest
from telemetry_tools import PROGRAMS, Worker

sys.path.insert(0, str(PROGRAMS))


@pytest.fixture
def start(tmp_path):
    """`start()`: another worker, gone after the test."""
    workers: list[Worker] = []

    def start(**options) -> Worker:
        workers.append(Worker(tmp_path, **options))
        return workers[-1]

    yield start
    for worker in workers:
        worker.kill()
