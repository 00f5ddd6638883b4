"""The stores of one bench: one Postgres and one Redis for all contenders, each of which gets a database of its own; SQLite is a file a contender."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.contest.contenders import Store
from outlast.testing.servers import Server, postgres_server, redis_server

DURABLE_REDIS = ("--appendonly", "yes", "--appendfsync", "everysec", "--databases", "1000")

FLUSH_SECONDS_MAX = 300.0
"""A million runs are some millions of keys."""


class Stores:
    """`fresh(kind)` is the URL of an empty store on the same disk, server and settings as every other one."""

    def __init__(self, folder: Path, postgres: Server | None, redis: Server | None) -> None:
        self.folder, self.postgres, self.redis = folder, postgres, redis
        self._numbers = count(1)

    def fresh(self, kind: Store) -> str:
        """As `sqlite:///path`, `postgresql://…/database` or `unix://socket?db=N` (redis-py's form); drivers make of it what their contender wants."""
        number = next(self._numbers)
        if kind == "sqlite":
            return f"sqlite:///{self.folder / f'store-{number}.db'}"
        if kind == "postgres":
            assert self.postgres is not None
            return _database(self.postgres.url, f"bench_{number}")
        assert self.redis is not None
        return f"{self.redis.url}?db={number}"

    def clear(self) -> None:
        """Remove what `fresh` gave until now and wait for the disk, so that the next case has an idle server."""
        for path in self.folder.glob("store-*.db*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if self.postgres:
            _drop_all(self.postgres.url)
        if self.redis:
            self._ask_redis("flushall")
        os.sync()

    def set_fsync(self, policy: str) -> None:
        """Redis' `appendfsync`, from now on."""
        self._ask_redis("config_set", "appendfsync", policy)

    def _ask_redis(self, command: str, *words: str) -> Any:
        import redis

        assert self.redis is not None
        with redis.Redis.from_url(self.redis.url, socket_timeout=FLUSH_SECONDS_MAX) as client:
            return getattr(client, command)(*words)

    def versions(self) -> str:
        """Of the servers, as they say themselves."""
        words = []
        if self.postgres:
            import psycopg

            with psycopg.connect(self.postgres.url) as db:
                words.append(f"PostgreSQL {db.info.parameter_status('server_version')}")
        if self.redis:
            words.append(f"Redis {self._ask_redis('info', 'server')['redis_version']}")
        return ", ".join(words)

    def server(self, kind: Store) -> int | None:
        """The pid of the server."""
        server = {"postgres": self.postgres, "redis": self.redis}.get(kind)
        return server.pid if server else None


@contextmanager
def stores(folder: Path, kinds: set[Store]) -> Iterator[Stores]:
    """The servers that these kinds need, started and at the end stopped."""
    with ExitStack() as stack:
        postgres = redis = None
        if "postgres" in kinds:
            postgres = stack.enter_context(postgres_server(folder, durable=True))
        if "redis" in kinds:
            redis = stack.enter_context(redis_server(folder, *DURABLE_REDIS))
        yield Stores(folder, postgres, redis)


def _database(url: str, name: str) -> str:
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f'CREATE DATABASE "{name}"')
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def _drop_all(url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        for (name,) in db.execute(
            "SELECT datname FROM pg_database WHERE datname LIKE 'bench_%'"
        ).fetchall():
            db.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        db.execute("CHECKPOINT")
