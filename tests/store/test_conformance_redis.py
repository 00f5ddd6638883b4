"""The Redis store keeps every promise of a store."""

from uuid import uuid4

import pytest

from outlast.store.address import store_at
from outlast.testing.conformance import DurableStoreConformance, MakeStore
from outlast.testing.servers import Server


class TestRedis(DurableStoreConformance):
    @pytest.fixture
    def make_store(self, redis_server: Server) -> MakeStore:
        place = f"{redis_server.url}?prefix={uuid4().hex}"
        return lambda clock: store_at(place, clock=clock)
