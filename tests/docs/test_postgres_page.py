"""What docs/postgres.md tells a DBA to do, done on a server that asks for passwords."""

import asyncio
import os
import re
from pathlib import Path

import psycopg
import pytest

from outlast import Outlast, session, step, workflow
from outlast.errors import SettingsError
from outlast.store.postgres.store import PostgresStore
from outlast.testing import servers
from support.cli import answer_of

PAGE = (Path(__file__).parents[2] / "docs/postgres.md").read_text()
OWNER = re.search(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]
COMMAND = re.search(r"^    outlast (migrate --sql .*?) \| psql", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def server():
    """The superuser needs no password; all others do."""
    with servers.postgres_server() as server:
        with psycopg.connect(server.url, autocommit=True) as db:
            (rules,) = db.execute("SHOW hba_file").fetchone()
            Path(rules).write_text("local all postgres trust\nlocal all all scram-sha-256\n")
            db.execute("SELECT pg_reload_conf()")
        yield server.url


@pytest.fixture
def database(server):
    """Of the superuser."""
    with psycopg.connect(server, autocommit=True) as db:
        db.execute("CREATE DATABASE agents")
        yield server.replace("/postgres?", "/agents?")
        db.execute("DROP DATABASE agents WITH (FORCE)")
        db.execute("DROP ROLE outlast")


def execute(database: str, script: str) -> None:
    with psycopg.connect(database, autocommit=True) as db:
        db.execute(script)


@step
async def remember(label: str) -> int:
    return await session("s").append("labels", label)


@workflow
async def remembering() -> int:
    await asyncio.gather(child("a"), child("b"))
    count = await remember("c")
    await session("s").clear()
    return count


@workflow
async def child(label: str) -> None:
    await remember(label)


async def use(address: str) -> None:
    async with Outlast(address) as app:
        assert await (await app.start(remembering(), id="r")).result() == 3
        assert [item async for item in app.each(["x"], id="e")] == ["x"]
        assert await app.prune(0) == 4


def of_the_role(database: str, words: str = "") -> str:
    return database.replace("postgres@", "outlast:change%20me@") + words


def test_a_role_that_may_create_in_the_database_makes_the_schema_by_itself(database):
    execute(database, OWNER)
    asyncio.run(use(of_the_role(database)))


def test_what_is_printed_for_psql_may_be_executed_again(database, capsys):
    execute(database, OWNER)
    command = COMMAND[1].replace("'", "").split()
    made = answer_of(command, capsys).out
    owned = of_the_role(database)
    execute(owned, made)
    asyncio.run(use(f"{owned}&migrate=no"))
    execute(owned, made)
    asyncio.run(use(f"{owned}&migrate=no"))


def test_the_password_comes_from_libpqs_variables_and_files(database, tmp_path, monkeypatch):
    execute(database, OWNER)
    bare = database.replace("postgres@", "outlast@")
    with pytest.raises(SettingsError, match="no password supplied"):
        PostgresStore.at(bare).open()
    secrets, service = tmp_path / "pgpass", tmp_path / "service.conf"
    secrets.write_text("*:*:agents:outlast:change me\n")
    secrets.chmod(0o600)
    host = database.partition("host=")[2]
    service.write_text(f"[agents]\nhost={host}\ndbname=agents\nuser=outlast\npassword=change me\n")
    everything = {
        "PGHOST": host,
        "PGDATABASE": "agents",
        "PGUSER": "outlast",
        "PGPASSWORD": "change me",
    }
    for address, variables in (
        (bare, {"PGPASSWORD": "change me"}),
        (bare, {"PGPASSFILE": str(secrets)}),
        ("postgresql:///?service=agents", {"PGSERVICEFILE": str(service)}),
        ("postgresql://", everything),
    ):
        with monkeypatch.context() as environment:
            for name in [name for name in os.environ if name.startswith("PG")]:
                environment.delenv(name)
            for name, value in variables.items():
                environment.setenv(name, value)
            store = PostgresStore.at(address)
            store.open()
            assert store.queues() == []
            store.close()
