import checkpoint_tools
import drain_tools
import pytest
from kubelet import Node


@pytest.fixture(autouse=True)
def _clear():
    """Forget what the workflows of earlier tests wrote down."""
    for log in (drain_tools.begun, drain_tools.ended, checkpoint_tools.seen):
        log.clear()


@pytest.fixture
def node(place, tmp_path):
    """Pods on a store of this test's own, of each kind."""
    with Node(tmp_path, place) as node:
        yield node


@pytest.fixture
def file_node(tmp_path):
    """Pods on a SQLite file, for tests that do something to the file itself."""
    with Node(tmp_path, f"sqlite:///{tmp_path}/outlast.db") as node:
        yield node
