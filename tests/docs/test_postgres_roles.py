"""The roles that docs/postgres.md tells a DBA to make: each can do its job, and is refused what is beyond it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from outlast import Outlast, session, step, workflow
from outlast.errors import SettingsError, StoreUnavailable
from outlast.store.commands import (
    Cancel,
    Prune,
    Record,
    RegisterWorker,
    Send,
    SetQueueLimits,
    Submit,
    UpdateSession,
)
from outlast.store.postgres.store import PostgresStore
from outlast.store.rows import RunQuery
from outlast.testing import servers
from support.cli import answer_in

PAGE = (Path(__file__).parents[2] / "docs/postgres.md").read_text()
BLOCKS = re.findall(r"^```sql\n(CREATE ROLE (\w+) .*?)^```", PAGE, re.MULTILINE | re.DOTALL)
ROLES = {
    role.removeprefix("outlast_"): block for block, role in BLOCKS if role.startswith("outlast_")
}


@step
async def remember(label: str) -> int:
    return await session("s").append("labels", label)


@workflow
async def remembering() -> int:
    return await remember("c")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """With a database `agents` in which the roles of the page are made, in their order."""
    with servers.postgres_server() as server:
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute("CREATE DATABASE agents")
        here = server.url.replace("/postgres?", "/agents?")
        execute(here, ROLES["migrator"])
        with closing(PostgresStore.at(as_role(here, "migrator"))) as store:
            store.migrate()
        for role in ("worker", "submitter", "reader"):
            execute(here, ROLES[role])
        yield here


def execute(address: str, statements: str) -> None:
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(statements)


def as_role(server: str, role: str) -> str:
    return server.replace("postgres@", f"outlast_{role}@")


def address_of(server: str, role: str) -> str:
    return f"{as_role(server, role)}&migrate=no&schema_owner=outlast_migrator"


@contextmanager
def opened(server: str, role: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore.at(address_of(server, role))) as store:
        store.open()
        yield store


async def work(address: str, id: str) -> None:
    async with Outlast(address, worker=True, workflows=[remembering], linger=0.01) as app:
        await (await app.submit(remembering(), id=id)).result()
        assert [item async for item in app.each(["x"], id=f"{id}-items")] == ["x"]


def test_a_worker_does_everything_but_change_the_schema(server) -> None:
    asyncio.run(work(address_of(server, "worker"), "r"))
    with opened(server, "worker") as store:
        store.commit([Prune(0.0, 10)])
    execute(server, "UPDATE outlast.meta SET timeline = 'another'")  # as after a failover
    asyncio.run(work(address_of(server, "worker"), "r2"))
    for statement in (
        "CREATE TABLE outlast.x ()",
        "DROP TABLE outlast.runs",
        "DROP SCHEMA outlast CASCADE",
    ):
        with pytest.raises(errors.InsufficientPrivilege):
            execute(as_role(server, "worker"), statement)
    execute(server, "UPDATE outlast.meta SET functions = ''")
    try:
        with pytest.raises(StoreUnavailable, match="may not do that"):
            PostgresStore.at(address_of(server, "worker")).migrate()
    finally:
        PostgresStore.at(as_role(server, "migrator")).migrate()


def test_those_who_use_the_schema_name_its_owner(server) -> None:
    with pytest.raises(SettingsError, match="schema_owner=outlast_migrator"):
        PostgresStore.at(f"{as_role(server, 'worker')}&migrate=no").open()


def test_a_reader_reads_everything_and_writes_nothing(server, tmp_path, capsys) -> None:
    asyncio.run(work(address_of(server, "worker"), "read"))
    before = contents(server)
    for words in (
        ["runs"],
        ["show", "read"],
        ["workers"],
        ["queues"],
        ["drains"],
        ["sessions"],
        ["sessions", "s"],
    ):
        answer = answer_in(
            tmp_path, [*words, "--json"], capsys, OUTLAST_STORE=address_of(server, "reader")
        )
        assert (answer.code, answer.err) == (0, ""), words
    assert answer_in(
        tmp_path, ["doctor"], capsys, OUTLAST_STORE=address_of(server, "reader")
    ).code in (0, 1)
    with opened(server, "reader") as store:
        for command in (
            RegisterWorker("w", "host", 1, 60.0),
            Submit("new", "flow", "[]", "t", "s"),
            Cancel("read", "why"),
            Prune(0.0, 10),
        ):
            with pytest.raises(StoreUnavailable, match="may not do that"):
                store.commit([command])
        assert store.run("read") is not None
    assert contents(server) == before
    assert allowed(server, "reader", "INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER, REFERENCES") == []


def test_a_submitter_submits_and_changes_no_run(server) -> None:
    asyncio.run(work(address_of(server, "worker"), "theirs"))

    async def submit() -> None:
        async with Outlast(address_of(server, "submitter")) as app:
            for _ in range(2):
                await app.submit(remembering(), id="submitted", queue="mail")
            await app.submit_many([remembering(), remembering()])
            await app.queue("items").put({"n": 1})

    asyncio.run(submit())
    with opened(server, "worker") as store:
        before = store.run("theirs")
        assert len(store.runs(RunQuery(queue="mail"))) == 1
        assert len(store.runs(RunQuery(queue="items"))) == 1
    with opened(server, "submitter") as store:
        for command in (
            Cancel("submitted", "why"),
            Send("submitted", "m", "1", "1"),
            Prune(1e12, 10),
            SetQueueLimits("mail", 1, 1),
            UpdateSession("s", "t", {"a": "1"}),
            Record(before.pk, 99, before.fence, "step", "key", 1.0),
        ):
            with pytest.raises(StoreUnavailable, match="may not do that"):
                store.commit([command])
        for read in (
            lambda: store.journal(before.pk),
            lambda: store.session("s"),
            lambda: store.messages(before.pk),
        ):
            with pytest.raises(StoreUnavailable, match="may not do that"):
                read()
    for statement in (
        "UPDATE outlast.runs SET args = '[]'",
        "UPDATE outlast.runs SET status = 'queued'",
        "DELETE FROM outlast.runs",
        "TRUNCATE outlast.runs",
        "UPDATE outlast.queues SET depth_max = 1",
        "INSERT INTO outlast.entries DEFAULT VALUES",
        "UPDATE outlast.meta SET version = 99",
    ):
        with pytest.raises(errors.InsufficientPrivilege):
            execute(as_role(server, "submitter"), statement)
    with opened(server, "worker") as store:
        assert store.run("theirs") == before


def contents(server: str) -> dict[str, list[tuple[object, ...]]]:
    with psycopg.connect(server) as db:
        names = db.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'outlast' AND tablename <> 'presence'"
        )
        return {
            name: db.execute(f"SELECT * FROM outlast.{name} t ORDER BY t::text").fetchall()
            for (name,) in names.fetchall()
        }


def allowed(server: str, role: str, rights: str) -> list[tuple[str, ...]]:
    """Return the tables on which a role has one of these rights."""
    with psycopg.connect(server) as db:
        return db.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'outlast'::regnamespace AND relkind = 'r' "
            "AND has_table_privilege(%s, oid, %s)",
            (f"outlast_{role}", rights),
        ).fetchall()
