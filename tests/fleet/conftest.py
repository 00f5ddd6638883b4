import pytest
from fleet_tools import Fleet


@pytest.fixture
def fleet(tmp_path):
    """Worker processes on a store in this test's folder. What still lives at the end is killed, by its pid."""
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.close()
