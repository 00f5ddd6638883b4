"""Fixtures for the tests of the HTTP API."""

import asyncio

import pytest
from server_tools import serving


@pytest.fixture
def served():
    """Run a coroutine function with a `Served`, on an event loop of its own."""

    def run(scenario, **options):
        async def main():
            async with serving(**options) as found:
                return await scenario(found)

        return asyncio.run(main())

    return run
