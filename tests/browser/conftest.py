"""Fixtures for the journeys through the web UI."""

import pytest
from browser_tools import Site, Visit, chromium


@pytest.fixture(scope="session")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture
def site(tmp_path):
    found = Site(tmp_path)
    yield found
    found.close()


@pytest.fixture
def visit(browser, site):
    """Sign in, and fail at the end if anything was wrong on a page."""
    opened = []

    def start(**options):
        opened.append(Visit(browser, site, **options))
        return opened[-1]

    yield start
    for one in opened:
        one.close()
