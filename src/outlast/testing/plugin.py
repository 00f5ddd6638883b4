"""The pytest plugin: `outlast_app` and `outlast_clock`.

def test_the_report_names_its_topic(outlast_app):
    outlast_app.stub(research, returns="notes on tides")
    assert "tides" in outlast_app.run(report("tides"))
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from outlast.testing.app import App
    from outlast.testing.clock import VirtualClock


@pytest.fixture
def outlast_clock() -> VirtualClock:
    """A clock that jumps over every wait."""
    from outlast.testing.clock import VirtualClock

    return VirtualClock()


@pytest.fixture
def outlast_app(outlast_clock: VirtualClock) -> App:
    """An app in memory, on the virtual clock. OUTLAST_TEST_SEED shuffles what is ready at the same time."""
    from outlast.testing.app import App

    seed = os.environ.get("OUTLAST_TEST_SEED")
    return App(clock=outlast_clock, seed=int(seed) if seed else None)
