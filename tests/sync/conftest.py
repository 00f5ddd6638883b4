"""Fixtures for the tests of the sync API."""

import threading

import pytest

from outlast.sync import Outlast


@pytest.fixture
def store(address):
    """Return the address of a store in memory or in a file."""
    return address


@pytest.fixture
def app(store):
    """Yield an open sync app. Leaving its block must join the portal's thread."""
    with Outlast(store) as app:
        yield app
    left = [thread.name for thread in threading.enumerate() if thread.name == "outlast-sync"]
    assert left == [], "leaving the block joins the thread of the portal"
