import pytest
from kubelet import Node


@pytest.fixture
def node(place, tmp_path):
    """Pods on a store of this test's own, of each kind."""
    with Node(tmp_path, place) as node:
        yield node


@pytest.fixture
def file_node(tmp_path):
    """The same on SQLite's file, for tests that do something to the file itself."""
    with Node(tmp_path, f"sqlite:///{tmp_path}/outlast.db") as node:
        yield node
