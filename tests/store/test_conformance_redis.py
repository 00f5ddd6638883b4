"""The Redis store keeps every promise of a store."""

from collections.abc import Iterator

import pytest

from outlast.store.address import store_at
from outlast.testing.conformance import DurableStoreConformance, MakeStore
from outlast.testing.servers import Server
from places import redis_place


class TestRedis(DurableStoreConformance):
    @pytest.fixture
    def make_store(self, redis_server: Server) -> Iterator[MakeStore]:
        with redis_place(redis_server.url) as place:
            yield lambda clock: store_at(place, clock=clock)
