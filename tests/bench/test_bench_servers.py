"""The stores of a bench: empty, apart from each other, and gone when they are cleared."""

from __future__ import annotations

from pathlib import Path

import psycopg
import redis
from bench.contest.servers import stores


def test_every_store_is_empty_and_cleared_away(tmp_path: Path) -> None:
    with stores(tmp_path, {"postgres", "redis"}) as opened:
        first, second = (opened.fresh("postgres") for _ in range(2))
        with psycopg.connect(first) as db:
            db.execute("CREATE TABLE a (b int)")
        with psycopg.connect(second) as db:
            assert db.execute("SELECT to_regclass('a')").fetchone() == (None,)
            assert db.execute("SHOW fsync").fetchone() == ("on",)
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
        assert opened.postgres
        with psycopg.connect(opened.postgres.url) as db:
            assert db.execute("SELECT count(*) FROM pg_database WHERE datname LIKE 'bench%'").fetchone() == (
                0,
            )
        assert opened.server("postgres") == opened.postgres.pid
        assert opened.server("sqlite") is None
        assert "PostgreSQL 1" in opened.versions() and "Redis " in opened.versions()
