from contextlib import closing

import pytest
from fleet_tools import Fleet
from fleet_work import fresh  # noqa: F401 - a fixture


@pytest.fixture
def fleet(place, tmp_path):
    """Worker processes on a store of this test's own, of each kind. What still lives at the end is killed, by its pid."""
    with closing(Fleet(tmp_path, place)) as fleet:
        yield fleet


@pytest.fixture
def file_fleet(tmp_path):
    """The same on SQLite's file, for tests that do something to the file itself."""
    with closing(Fleet(tmp_path, f"sqlite:///{tmp_path}/outlast.db")) as fleet:
        yield fleet
