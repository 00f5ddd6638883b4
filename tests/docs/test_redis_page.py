"""The user that docs/redis.md tells an administrator to make: Outlast works as it, and it reaches nothing else."""

from __future__ import annotations

import asyncio
import logging
from importlib import resources

import pytest
import redis
from redis.exceptions import NoPermissionError

from outlast import Outlast, session, step, workflow
from outlast.store.address import store_at
from outlast.testing import servers
from support.redis_tenants import PASSWORD, RULE, redis_tenant, rule_for


@pytest.fixture(scope="module")
def server():
    with servers.redis_server(None, "--appendonly", "yes", "--appendfsync", "no") as server:
        yield server


@step
async def remember(label: str) -> int:
    return await session("s").append("labels", label)


@workflow
async def remembering() -> int:
    await asyncio.gather(child("a"), child("b"))
    return await remember("c")


@workflow
async def child(label: str) -> None:
    await remember(label)


async def use(address: str) -> None:
    async with Outlast(address, worker=True, workflows=[remembering, child]) as app:
        assert await (await app.submit(remembering(), id="r")).result() == 3
        assert [item async for item in app.each(["x"], id="e")] == ["x"]
        assert len(await app.workers()) == 1
        assert await app.prune(0) == 4


def test_a_user_with_the_rights_of_the_page_runs_workflows_queues_and_sessions(server) -> None:
    with redis_tenant(server.url) as address:
        asyncio.run(use(address))


def test_what_cannot_be_checked_without_config_is_said(server, caplog) -> None:
    caplog.set_level(logging.INFO, "outlast.store")
    with redis_tenant(server.url) as address:
        store = store_at(address)
        store.open()
        store.close()
    assert "Could not check appendfsync" in caplog.text


BEYOND = """
KEYS * | SCAN 0 | RANDOMKEY | DBSIZE | FLUSHALL | FLUSHDB | SWAPDB 0 1 | CONFIG GET requirepass | CONFIG SET save x | MONITOR
ACL LIST | ACL WHOAMI | CLIENT LIST | CLIENT KILL TYPE normal | DEBUG SLEEP 0 | SAVE | BGSAVE | BGREWRITEAOF | SHUTDOWN NOSAVE
REPLICAOF NO ONE | SLOWLOG GET | LATENCY LATEST | MEMORY STATS | MODULE LIST | SCRIPT FLUSH | SCRIPT KILL | COMMAND | SYNC | LASTSAVE
PUBSUB CHANNELS | PSUBSCRIBE * | SUBSCRIBE {other}:notify:0 | PUBLISH {other}:notify:0 x
GET {other}:x | SET {other}:x 1 | HGETALL {other}:x | DEL {other}:x | UNLINK {other}:x | RENAME {mine}:x {other}:x | GET x | EXISTS {other}:x
SORT {mine}:x BY {other}:* | MOVE {mine}:x 1 | MIGRATE h 1 {mine}:x 0 1 | DUMP {mine}:x | RESTORE {mine}:x 0 x | COPY {mine}:x {other}:x
"""


@pytest.mark.parametrize("command", [one.strip() for line in BEYOND.split("\n") for one in line.split("|") if one.strip()])  # fmt: skip
def test_a_user_with_the_rights_of_the_page_is_refused_everything_else(server, command) -> None:
    words = command.split()
    with redis.Redis.from_url(server.url) as admin:
        admin.execute_command(*rule_for("mine"))
        admin.set("{other}:x", "theirs")
    path = server.url.removeprefix("unix://")
    with redis.Redis(unix_socket_path=path, username="mine", password=PASSWORD) as tenant:
        with pytest.raises(NoPermissionError):
            tenant.execute_command(*words)
        inside = f"return redis.call({', '.join(map(repr, words))})"
        with pytest.raises(
            redis.ResponseError,
            match=r"(?i)permission|not allowed|The user executing the script can't",
        ):
            tenant.eval(inside, 0)


def test_the_terminal_explains_the_same_rights(server) -> None:
    explained = resources.files("outlast.explain").joinpath("checks.md").read_text()
    assert RULE in explained
