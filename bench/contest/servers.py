"""The stores of one bench: one Postgres and one Redis for all contenders, each of which gets a database of its own; SQLite is a file a contender."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from bench.contest.contenders import Store
from outlast.testing.servers import Server, postgres_server, redis_server

DURABLE_REDIS = ("--appendonly", "yes", "--appendfsync", "everysec", "--databases", "1000")


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
