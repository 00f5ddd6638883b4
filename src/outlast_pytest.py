"""Provide the fixtures `outlast_app` and `outlast_clock`, and replay every run of a test.

    def test_the_report_names_its_topic(outlast_app):
        outlast_app.stub(research, returns="notes on tides")
        assert "tides" in outlast_app.run(report("tides"))

pytest loads this plugin in every environment that has Outlast. It is therefore a module of its own
outside the package, and imports nothing of Outlast before a test uses it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from outlast.testing.app import App
    from outlast.testing.clock import VirtualClock

NO_REPLAY = "outlast_no_replay"

# Only by its name: the package is not imported.
pytest.register_assert_rewrite("outlast.testing.conformance")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option that turns the replay off."""
    parser.addini(
        "outlast_replay", "Replay every run of an outlast.testing.App.", type="bool", default=True
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", f"{NO_REPLAY}: do not replay the Outlast runs of this test")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol() -> Generator[None, Any, None]:
    """Forget the apps of a test when it is over."""
    yield
    testing = sys.modules.get("outlast.testing.app")
    if testing is not None:
        testing.opened.clear()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    """Replay the runs of the test's apps. A run that ends differently fails the test."""
    result = yield
    testing = sys.modules.get("outlast.testing.app")
    if testing is None or not testing.opened or result.excinfo is not None:
        return
    if not item.config.getini("outlast_replay") or item.get_closest_marker(NO_REPLAY):
        return
    from outlast.testing.replay import ReplayDiffers

    try:
        for app in testing.opened:
            app.check_replay()
    except ReplayDiffers as error:
        # The fault is in the user's code, and Outlast's traceback would only hide it.
        result.force_exception(pytest.fail.Exception(str(error), pytrace=False))
    except BaseException as error:
        result.force_exception(error)


@pytest.fixture
def outlast_clock() -> VirtualClock:
    """Return a clock that jumps over every wait."""
    from outlast.testing.clock import VirtualClock

    return VirtualClock()


@pytest.fixture
def outlast_app(outlast_clock: VirtualClock) -> App:
    """Return an app in memory on the virtual clock.

    OUTLAST_TEST_SEED shuffles what is ready at once.
    """
    from outlast.testing.app import App

    seed = os.environ.get("OUTLAST_TEST_SEED")
    return App(clock=outlast_clock, seed=int(seed) if seed else None)
