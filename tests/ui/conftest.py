"""Fixtures for the tests of the web UI."""

import asyncio

import pytest
from ui_tools import visiting


@pytest.fixture
def visited():
    """Run a coroutine function with a `Visited`, on an event loop of its own."""

    def run(scenario, **options):
        async def main():
            async with visiting(**options) as found:
                return await scenario(found)

        return asyncio.run(main())

    return run
