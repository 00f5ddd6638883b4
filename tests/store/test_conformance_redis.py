"""The Redis store keeps every promise of a store, as a user with the rights that docs/redis.md gives."""

from collections.abc import Iterator

import pytest
import redis

from outlast.store.address import store_at
from outlast.testing.conformance import DurableStoreConformance, MakeStore
from outlast.testing.servers import Server
from support.redis_tenants import redis_tenant, remove_keys


@pytest.fixture(scope="module")
def admin(redis_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_server.url) as admin:
        yield admin


@pytest.fixture(scope="module")
def tenant(redis_server: Server) -> Iterator[str]:
    """The address of a tenant for all tests of this process."""
    with redis_tenant(redis_server.url) as address:
        yield address


class TestRedis(DurableStoreConformance):
    @pytest.fixture
    def make_store(self, tenant: str, admin: redis.Redis) -> MakeStore:
        remove_keys(admin, tenant.rpartition("prefix=")[2])
        return lambda clock: store_at(tenant, clock=clock)
