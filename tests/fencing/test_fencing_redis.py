"""A Redis guard compares the fence and writes in one script."""

import asyncio

import pytest
import redis
import redis.asyncio

from outlast import StaleFence, fencing
from outlast.fencing import guard_redis, guard_redis_async


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def test_older_claim_is_refused_once_a_younger_one_has_written(client, prefix):
    key = f"{prefix}:state"
    assert text(guard_redis(client, "SET", key, "old", resource=prefix, fence=41)) == "OK"
    assert text(guard_redis(client, "SET", key, "young", resource=prefix, fence=42)) == "OK"
    with pytest.raises(StaleFence) as refused:
        guard_redis(client, "SET", key, "late", resource=prefix, fence=41)
    assert (refused.value.resource, refused.value.fence, refused.value.newest) == (prefix, 41, 42)
    assert text(client.get(key)) == "young"
    assert text(client.get(f"outlast:fence:{{{prefix}}}")) == "42"


def test_nine_is_older_than_ten_and_the_largest_fence_is_kept_exactly(client, prefix):
    for older, younger in ((9, 10), (fencing.FENCE_MAX - 1, fencing.FENCE_MAX)):
        guard_redis(client, "SET", f"{prefix}:k", "a", resource=prefix, fence=younger)
        with pytest.raises(StaleFence) as refused:
            guard_redis(client, "SET", f"{prefix}:k", "b", resource=prefix, fence=older)
        assert refused.value.newest == younger


def test_guarded_command_returns_its_own_reply(client, prefix):
    def do(*command, **options):
        return guard_redis(client, *command, resource=prefix, fence=7, **options)

    assert do("HSET", f"{prefix}:h", "paid", 1, "été", b"\x00\xff") == 2
    assert do("INCRBY", f"{prefix}:n", 5) == 5
    assert do("SET", f"{prefix}:n", "x", "NX") is None
    assert [text(one) for one in do("LRANGE", f"{prefix}:list", 0, -1)] == []
    assert do("RPUSH", f"{prefix}:list", "a", "b") == 2
    assert [text(one) for one in do("LRANGE", f"{prefix}:list", 0, -1)] == ["a", "b"]
    keys = [f"{prefix}:a", f"{prefix}:b"]
    assert text(do("MSET", keys[0], "1", keys[1], "2", keys=keys)) == "OK"


def test_failed_command_raises_the_redis_error_and_keeps_the_fence(client, prefix):
    client.set(f"{prefix}:k", "text")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        guard_redis(client, "HSET", f"{prefix}:k", "a", 1, resource=prefix, fence=42)
    with pytest.raises(StaleFence):
        guard_redis(client, "SET", f"{prefix}:k", "late", resource=prefix, fence=41)
    assert text(client.get(f"{prefix}:k")) == "text"


def test_fence_is_kept_forever_or_for_its_ttl(client, prefix):
    fence_key = f"outlast:fence:{{{prefix}}}"
    guard_redis(client, "SET", f"{prefix}:k", "a", resource=prefix, fence=1)
    assert client.ttl(fence_key) == -1
    guard_redis(client, "SET", f"{prefix}:k", "a", resource=prefix, fence=1, ttl_seconds=90_000)
    assert 80_000 < client.ttl(fence_key) <= 90_000
    with pytest.raises(ValueError, match="ttl_seconds"):
        guard_redis(client, "SET", f"{prefix}:k", "a", resource=prefix, fence=1, ttl_seconds=0)


def test_asyncio_client_is_guarded_the_same_way(redis_server, prefix):
    async def main():
        async with redis.asyncio.Redis.from_url(redis_server.url) as client:
            assert (
                await guard_redis_async(client, "INCR", f"{prefix}:n", resource=prefix, fence=42)
                == 1
            )
            with pytest.raises(StaleFence) as refused:
                await guard_redis_async(client, "INCR", f"{prefix}:n", resource=prefix, fence=41)
            assert refused.value.newest == 42
            assert await client.get(f"{prefix}:n") == b"1"
            with pytest.raises(TypeError, match="guard_redis_async"):
                guard_redis(client, "INCR", f"{prefix}:n", resource=prefix, fence=43)

    asyncio.run(main())


def test_racing_writers_leave_the_youngest_value(redis_server, prefix):
    async def main():
        async with redis.asyncio.Redis.from_url(redis_server.url) as client:

            async def write(fence):
                try:
                    await guard_redis_async(
                        client, "SET", f"{prefix}:k", fence, resource=prefix, fence=fence
                    )
                except StaleFence:
                    return 0
                return 1

            order = [(n * 37) % 101 for n in range(1, 101)]
            written = await asyncio.gather(*map(write, order))
            assert int(await client.get(f"{prefix}:k")) == 100
            assert 1 <= sum(written) <= 100

    asyncio.run(main())


def test_pipelines_and_incomplete_commands_are_refused(client, prefix):
    with client.pipeline() as pipeline, pytest.raises(TypeError, match="not a pipeline"):
        guard_redis(pipeline, "SET", f"{prefix}:k", "a", resource=prefix, fence=1)
    with pytest.raises(TypeError, match="a command and its key"):
        guard_redis(client, "PING", resource=prefix, fence=1)


def test_keys_named_by_the_resource_share_the_fences_slot_in_a_cluster(client):
    from redis.crc import key_slot

    assert (
        key_slot(b"outlast:fence:{order-7}") == key_slot(b"{order-7}:state") == key_slot(b"order-7")
    )
