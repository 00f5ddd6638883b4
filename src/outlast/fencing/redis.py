"""Check fences in Redis, in the script that writes."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol

from outlast.errors import StaleFence
from outlast.fencing.claim import claim_of

_LUA_GUARD = """\
local newest = redis.call('GET', KEYS[1])
if newest and tonumber(newest) > tonumber(ARGV[1]) then
  return {0, newest}
end
if ARGV[2] == '' then
  redis.call('SET', KEYS[1], ARGV[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
end
return {1, redis.call(unpack(ARGV, 3))}
"""
# The script stores the fence first. A command that fails leaves a fence without a write, never a
# write without its fence.


class RedisClient(Protocol):
    """A client of redis-py: sync or asyncio, single or cluster. Nothing of redis-py is imported."""

    def eval(self, script: str, numkeys: int, *keys_and_args: Any) -> Any: ...


def guard_redis(
    client: RedisClient,
    *command: str | bytes | float,
    resource: str | None = None,
    fence: int | None = None,
    keys: Sequence[str | bytes] | None = None,
    ttl_seconds: int | None = None,
) -> Any:
    """Execute one Redis command in one script with the fence check and return its reply.

        fencing.guard_redis(client, "HSET", "{order-7}:state", "paid", 1)

    Raise StaleFence, and write nothing, if a younger claim has written to the resource. The reply
    is what a script gets (b"OK", not True).

    The fence is kept at `outlast:fence:{RESOURCE}`, forever or until `ttl_seconds` after the last
    write. Choose a time longer than any stale writer can live. `keys` are the keys of the command,
    by default its first argument.

    In Redis Cluster, a script's keys must share a slot, and the fence's slot is that of its hash
    tag, the resource. So put the resource into your keys: `{order-7}:state` for the resource
    `order-7`. Such a resource must not contain braces. When Redis loses data (see `appendfsync`,
    and a failover to a lagging replica), it loses fences as well.
    """
    claim = claim_of(resource, fence)
    reply = client.eval(*_script(command, claim, keys, ttl_seconds))
    if inspect.isawaitable(reply):
        if inspect.iscoroutine(reply):
            reply.close()
        raise TypeError(
            "guard_redis() was given an asyncio client: use `await guard_redis_async(...)`."
        )
    return _reply(reply, claim)


async def guard_redis_async(
    client: RedisClient,
    *command: str | bytes | float,
    resource: str | None = None,
    fence: int | None = None,
    keys: Sequence[str | bytes] | None = None,
    ttl_seconds: int | None = None,
) -> Any:
    """Execute `guard_redis` on a redis.asyncio client, with the same guarantees and errors."""
    claim = claim_of(resource, fence)
    reply: Awaitable[Any] = client.eval(*_script(command, claim, keys, ttl_seconds))
    return _reply(await reply, claim)


def _script(
    command: tuple[str | bytes | float, ...],
    claim: tuple[str, int],
    keys: Sequence[str | bytes] | None,
    ttl_seconds: int | None,
) -> tuple[Any, ...]:
    if len(command) < 2:
        raise TypeError('pass a command and its key: guard_redis(client, "SET", key, value).')
    if ttl_seconds is not None and ttl_seconds < 1:
        raise ValueError(f"ttl_seconds must be 1 or more, not {ttl_seconds!r}.")
    all_keys = [f"outlast:fence:{{{claim[0]}}}", *(command[1:2] if keys is None else keys)]
    ttl = "" if ttl_seconds is None else int(ttl_seconds)
    return (_LUA_GUARD, len(all_keys), *all_keys, claim[1], ttl, *command)


def _reply(reply: Any, claim: tuple[str, int]) -> Any:
    if not isinstance(reply, list):
        raise TypeError("the guard needs its reply immediately. Pass a client, not a pipeline.")
    written, value = reply
    if not written:
        raise StaleFence(*claim, int(value))
    return value
