"""Test that the stores of a bench are empty, apart from each other, and gone when they are cleared."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
import redis
from bench.contest.servers import DURABLE_REDIS, Stores, stores

from outlast.testing.servers import redis_server


def test_every_store_is_empty_and_cleared(tmp_path: Path, postgres_server) -> None:
    with redis_server(tmp_path, *DURABLE_REDIS) as server:
        opened = Stores(tmp_path, postgres_server, server)
        first, second = (opened.fresh("postgres") for _ in range(2))
        with psycopg.connect(first) as db:
            db.execute("CREATE TABLE a (b int)")
        with psycopg.connect(second) as db:
            assert db.execute("SELECT to_regclass('a')").fetchone() == (None,)
        with redis.Redis.from_url(opened.fresh("redis")) as client:
            client.set("a", "b")
            assert client.config_get("appendonly")["appendonly"] == "yes"
            opened.set_fsync("always")
            assert client.config_get("appendfsync")["appendfsync"] == "always"
            file = Path(opened.fresh("sqlite").removeprefix("sqlite:///"))
            file.touch()
            Path(f"{file}.d").mkdir()
            opened.clear()
            assert client.get("a") is None
        assert not list(tmp_path.glob("store-*"))
        with psycopg.connect(postgres_server.url) as db:
            left = db.execute(
                "SELECT count(*) FROM pg_database WHERE datname LIKE 'bench%'"
            ).fetchone()
        assert left == (0,)
        assert opened.server("postgres") == postgres_server.pid
        assert opened.server("sqlite") is None
        assert "PostgreSQL 1" in opened.versions() and "Redis " in opened.versions()


@pytest.mark.extended
def test_servers_of_a_bench_are_durable(tmp_path: Path) -> None:
    with stores(tmp_path, {"postgres", "redis"}) as opened:
        with psycopg.connect(opened.fresh("postgres")) as db:
            assert db.execute("SHOW fsync").fetchone() == ("on",)
        with redis.Redis.from_url(opened.fresh("redis")) as client:
            assert client.config_get("appendonly")["appendonly"] == "yes"
