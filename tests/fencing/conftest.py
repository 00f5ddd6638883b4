"""Provide each test with databases and Redis keys of its own."""

import sqlite3
from uuid import uuid4

import psycopg
import pytest
import redis

from outlast import fencing


@pytest.fixture
def postgres(postgres_server):
    """The address of a new schema with the fences and a table to write to."""
    schema = f"fencing_{uuid4().hex}"
    with psycopg.connect(postgres_server.url, autocommit=True) as db:
        db.execute(f"CREATE SCHEMA {schema}")
    url = f"{postgres_server.url}{'&' if '?' in postgres_server.url else '?'}options=-csearch_path%3D{schema}"
    with psycopg.connect(url) as db:
        fencing.create_table(db)
        db.execute("CREATE TABLE notes (note TEXT)")
    yield url
    with psycopg.connect(postgres_server.url, autocommit=True) as db:
        db.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def sqlite(tmp_path):
    """The path of a new file with the fences and a table to write to."""
    path = tmp_path / "notes.db"
    db = sqlite3.connect(path)
    fencing.create_table(db)
    db.execute("CREATE TABLE notes (note TEXT)")
    db.commit()
    db.close()
    return path


@pytest.fixture
def prefix(redis_server):
    """Keys of this test start with it, and are gone after it; a resource too, for the fence's key has it inside."""
    prefix = f"test-{uuid4().hex}"
    yield prefix
    with redis.Redis.from_url(redis_server.url) as client:
        for key in client.scan_iter(f"*{prefix}*"):
            client.delete(key)


@pytest.fixture(params=[False, True], ids=["bytes", "decoded"])
def client(request, redis_server):
    with redis.Redis.from_url(redis_server.url, decode_responses=request.param) as client:
        yield client
