"""The store is found in variables that other tools define, such as DATABASE_URL and REDIS_HOST."""

import asyncio
import logging
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from settings_tools import found

from outlast import Outlast, SettingsError
from outlast.settings.load import load
from outlast.testing import servers


@pytest.mark.parametrize(
    ("variables", "address", "by"),
    [
        ({"DATABASE_URL": "postgresql://u:p@h/db"}, "postgresql://u:p@h/db", "DATABASE_URL"),
        ({"DATABASE_URL": "postgres://h"}, "postgres://h", "DATABASE_URL"),
        ({"DATABASE_URL": "postgresql+psycopg://u:p@h/db"}, "postgresql://u:p@h/db", "DATABASE_URL"),
        ({"DATABASE_URL": "postgresql+asyncpg://h/db?ssl=true"}, "postgresql://h/db?sslmode=require", "DATABASE_URL"),
        ({"DATABASE_URL": "postgresql://h/db?ssl=verify-full"}, "postgresql://h/db?sslmode=verify-full", "DATABASE_URL"),
        (
            {"DATABASE_URL": "postgresql://h/db?schema=public&sslmode=require&connection_limit=5&pgbouncer=true"},
            "postgresql://h/db?sslmode=require&pooler=yes", "DATABASE_URL",
        ),
        ({"DATABASE_URL": "mysql://h/db", "REDIS_URL": "rediss://h:1"}, "rediss://h:1?strict=yes", "REDIS_URL"),
        ({"DATABASE_URL": "sqlite:///theirs.db", "STATE_DB_PATH": "/data/a b?.db"}, "sqlite:////data/a%20b%3F.db", "STATE_DB_PATH"),
        ({"REDIS_URL": "rediss://:p@h?db=2&ssl_cert_reqs=none&max_connections=9"}, "rediss://:p@h?db=2&ssl_cert_reqs=none&strict=yes", "REDIS_URL"),
        ({"REDIS_HOST": "h"}, "redis://h:6379/0?strict=yes", "REDIS_HOST"),
        (
            {"REDIS_HOST": "h", "REDIS_PORT": "7", "REDIS_PASSWORD": "p@/:", "REDIS_DB": "3"},
            "redis://:p%40%2F%3A@h:7/3?strict=yes", "REDIS_HOST",
        ),
        ({"REDIS_HOST": "::1"}, "redis://[::1]:6379/0?strict=yes", "REDIS_HOST"),
        ({"REDIS_HOST": "h", "REDIS_PORT": "tcp://10.0.0.1:6380"}, "redis://h:6380/0?strict=yes", "REDIS_HOST"),
        ({"STATE_DB_PATH": "state.db"}, "sqlite:///state.db", "STATE_DB_PATH"),
        ({"STATE_DB_PATH": "sqlite:///state.db"}, "sqlite:///state.db", "STATE_DB_PATH"),
        ({"REDIS_PORT": "tcp://10.0.0.1:6379"}, "sqlite:///outlast.db", "default"),
    ],
)  # fmt: skip
def test_a_store_is_found_in_variables_of_other_tools(setenv, variables, address, by):
    setenv(**variables)
    assert found("store") == (address, by)


def test_the_first_of_several_store_variables_wins(setenv):
    setenv(STATE_DB_PATH="s.db")
    assert found("store")[1] == "STATE_DB_PATH"
    setenv(REDIS_HOST="h")
    assert found("store")[1] == "REDIS_HOST"
    setenv(REDIS_URL="redis://h")
    assert found("store")[1] == "REDIS_URL"
    setenv(DATABASE_URL="postgres://h/db")
    assert found("store")[1] == "DATABASE_URL"
    setenv(OUTLAST_STORE="sqlite:///mine.db")
    assert found("store") == ("sqlite:///mine.db", "OUTLAST_STORE")


def test_a_driver_in_the_scheme_of_the_store_is_removed(setenv):
    setenv(OUTLAST_STORE="postgresql+psycopg2://h/db?schema=x")
    assert found("store")[0] == "postgresql://h/db?schema=x"


def opened(*args, **given):
    async def main():
        async with Outlast(*args, **given):
            pass

    asyncio.run(main())


def test_a_store_found_by_another_variable_is_logged_once_when_opened(setenv, caplog, tmp_path):
    setenv(STATE_DB_PATH="state.db")
    app = Outlast()
    assert caplog.records == []
    opened()
    [record] = [record for record in caplog.records if record.name == "outlast.settings"]
    assert record.levelno == logging.WARNING
    assert "sqlite:///state.db" in record.getMessage()
    assert "STATE_DB_PATH" in record.getMessage()
    assert "OUTLAST_STORE" in record.getMessage()
    assert (tmp_path / "state.db").exists()
    caplog.clear()
    opened(app.settings.store)
    assert [record for record in caplog.records if record.name == "outlast.settings"] == []


def test_the_password_of_a_store_found_by_another_variable_is_not_logged(setenv, caplog):
    setenv(REDIS_HOST="h", REDIS_PASSWORD="s3cr3t")
    assert "s3cr3t" in load({}).address()
    assert "redis://:***@h:6379/0" in caplog.text
    assert "s3cr3t" not in caplog.text


def test_another_variable_beside_an_existing_default_store_is_refused(setenv, tmp_path):
    """Who upgrades must not find the runs of outlast.db gone, and a schema in the database of the web shop."""
    (tmp_path / "outlast.db").touch()
    setenv(DATABASE_URL="postgresql://u:s3cr3t@h/shop")
    with pytest.raises(
        SettingsError, match=r"two stores are possible: outlast.db.*OUTLAST_STORE"
    ) as raised:
        opened()
    assert "postgresql://u:***@h/shop from DATABASE_URL" in str(raised.value)
    assert "s3cr3t" not in str(raised.value)
    opened("memory:")
    setenv(OUTLAST_STORE="sqlite:///named.db")
    opened()


def test_another_variable_may_name_the_default_store(setenv, tmp_path):
    opened()
    setenv(STATE_DB_PATH=str(tmp_path / "outlast.db"))
    opened()


@pytest.mark.parametrize(
    ("name", "text"), [("REDIS_PORT", "six"), ("REDIS_PORT", "70000"), ("REDIS_DB", "-1")]
)
def test_an_invalid_redis_number_is_an_error_only_if_it_is_used(setenv, name, text):
    setenv(REDIS_HOST="h", **{name: text})
    with pytest.raises(SettingsError, match=f"{name}='{text}' .*OUTLAST_STORE"):
        opened()
    opened("memory:")


@pytest.mark.parametrize(
    "variables",
    [
        {"REDIS_HOST": "cache", "REDIS_PORT": "redis://:s3cr3t@x:abc"},
        {"REDIS_HOST": "redis://:s3cr3t@cache:6379"},
        {"REDIS_HOST": "s3cr3t@cache"},
    ],
)
def test_an_address_in_place_of_a_redis_host_or_port_is_refused_unseen(setenv, variables):
    setenv(**variables)
    loaded = load({})
    with pytest.raises(SettingsError, match="REDIS_") as raised:
        loaded.address()
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize("path", [":memory:", "postgresql://u:s3cr3t@h/db"])
def test_a_state_path_that_names_no_file_is_ignored(setenv, path):
    setenv(STATE_DB_PATH=path)
    assert found("store") == ("sqlite:///outlast.db", "default")


def test_an_invalid_database_url_is_an_error_only_if_it_is_used(setenv):
    setenv(DATABASE_URL="postgresql://u:s3/cr3t@h/db")
    app = Outlast()
    app.configure("memory:")
    with pytest.raises(SettingsError, match="Percent-encode"):
        asyncio.run(Outlast().__aenter__())


def test_a_redis_cache_is_refused_if_found_and_warned_of_if_named(setenv, caplog):
    with servers.redis_server() as cache:
        setenv(REDIS_URL=cache.url)
        with pytest.raises(SettingsError, match="set OUTLAST_STORE to its address"):
            opened()
        setenv(OUTLAST_STORE=cache.url)
        opened()
    assert "appendonly" in caplog.text


def test_a_shared_database_is_used_in_a_separate_schema(setenv, postgres_server):
    name = f"shop_{uuid4().hex}"
    with psycopg.connect(postgres_server.url, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        try:
            parts = urlsplit(postgres_server.url)._replace(
                scheme="postgresql+asyncpg", path=f"/{name}"
            )
            options = f"{parts.query}&" if parts.query else ""
            setenv(
                DATABASE_URL=parts._replace(
                    query=f"{options}schema=public&connection_limit=5"
                ).geturl()
            )
            opened()
            where = parts._replace(scheme="postgresql").geturl()
            with psycopg.connect(where) as shop:
                schemas = shop.execute(
                    "SELECT DISTINCT schemaname FROM pg_tables WHERE tablename = 'runs'"
                ).fetchall()
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")
    assert schemas == [("outlast",)]
