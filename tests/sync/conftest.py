import threading
import time

import pytest

from outlast.sync import Outlast
from outlast.testing.empty import empty_file


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    return "memory:" if request.param == "memory" else f"sqlite:///{empty_file(tmp_path / 'outlast.db')}"


@pytest.fixture
def app(store):
    with Outlast(store) as app:
        yield app
    left = [thread.name for thread in threading.enumerate() if thread.name == "outlast-sync"]
    assert left == [], "leaving the block joins the thread of the portal"


@pytest.fixture
def until():
    """Wait for what another thread or process brings about."""

    def wait(condition, seconds=20.0):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it did not come about"
            time.sleep(0.005)

    return wait
