"""Places for crashes: a new, empty one for each story, on a server or in a folder, at the cost of milliseconds."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import pytest
import redis

sys.path.append(str(Path(__file__).parents[1] / "store"))

from file_history import quick_folder

from outlast.store.address import store_at
from outlast.testing.crash import HEARTBEAT, Place
from support.postgres_schemas import Sessions, emptied, schema_of_this_process
from support.quick_files import QuickFileStore

STORES = ("postgres", "redis", "file")
LEASE_SECONDS = 3.0
"""A lease of virtual seconds. It tells of a death where a server misses a process for a real second first, and
each virtual second until then costs CPU time."""
NewPlace: TypeAlias = Callable[[], Place]


@contextmanager
def new_places(request: pytest.FixtureRequest, kind: str) -> Iterator[NewPlace]:
    """What `crash_everywhere` takes as its store. On Postgres the places are one schema, emptied: one story at a time."""
    makers = {"postgres": _postgres_places, "redis": _redis_places, "file": _file_places}
    server = request.getfixturevalue(f"{kind}_server").url if kind != "file" else ""
    with makers[kind](server) as new_address:

        def new_place() -> Place:
            address = new_address()
            if isinstance(address, Path):
                return lambda clock: QuickFileStore(address, clock=clock)  # type: ignore[return-value]
            return lambda clock: store_at(address, clock=clock, heartbeat=HEARTBEAT)  # type: ignore[return-value]

        yield new_place


@contextmanager
def _postgres_places(server: str) -> Iterator[Callable[[], str]]:
    with schema_of_this_process(server, "crash") as address, Sessions().kept():

        def new_address() -> str:
            emptied(address)
            return address

        yield new_address


@contextmanager
def _redis_places(server: str) -> Iterator[Callable[[], str]]:
    prefix, numbers = f"t-{uuid4().hex}", count()
    try:
        yield lambda: f"{server}{'&' if '?' in server else '?'}prefix={prefix}-{next(numbers)}"
    finally:
        with redis.Redis.from_url(server) as client:
            for key in client.scan_iter(f"*{prefix}-*", count=10_000):
                client.unlink(key)


@contextmanager
def _file_places(_: str) -> Iterator[Callable[[], Path]]:
    numbers = count()
    with quick_folder() as folder:
        yield lambda: folder / str(next(numbers))
