"""A forked child does not use the Postgres sessions of its parent."""

import os
from collections.abc import Iterator

import psycopg
import pytest

from outlast.errors import StoreUnavailable
from outlast.store.commands import Record, RegisterWorker, Submit
from outlast.store.postgres.store import PostgresStore
from support.postgres_schemas import emptied, schema_of_this_process


@pytest.fixture(scope="module")
def schema(postgres_server) -> Iterator[str]:
    with schema_of_this_process(postgres_server.url, "fork") as address:
        yield address


def in_child(work) -> int:
    """Its exit code: 0 if the work was done."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_leaves_the_sessions_of_its_parent_alone(schema) -> None:
    """Outlast's own chaos found it: a server ended, and a process forked before anything had connected again."""
    emptied(schema)
    store = PostgresStore.at(schema, heartbeat=0.05)
    store.open()
    store.commit([RegisterWorker("w", "host", 1, 60.0)])
    session = store._reader.db().info.backend_pid
    lost = store._writer.db()
    with pytest.raises(psycopg.OperationalError):
        lost.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    assert not store._writer.is_usable and store._writer._db is lost, "nobody has connected again"

    def child() -> None:
        assert store._reader._db is None, "it would speak in its parent's session, and end it"
        assert store._listener._connection._db is None
        with pytest.raises(StoreUnavailable, match="fork"):
            store.run("r")

    assert in_child(child) == 0
    assert store._reader.db().info.backend_pid == session
    assert [worker.id for worker in store.workers()] == ["w"]
    store.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_must_open_the_store_again_and_its_parent_goes_on(schema) -> None:
    emptied(schema)
    store = PostgresStore.at(schema, heartbeat=0.05)
    store.open()
    store.acquire_liveness("w")
    store.commit(
        [RegisterWorker("w", "host", 1, 60.0), Submit("r", "flow", "[]", "t", "s", worker="w")]
    )
    row = store.run("r")
    assert row is not None
    sessions = [store._writer.db().info.backend_pid, store._reader.db().info.backend_pid]

    def child() -> None:
        for refused in (
            lambda: store.run("r"),
            lambda: store.commit([RegisterWorker("w2", "host", 1, 60.0)]),
        ):
            with pytest.raises(StoreUnavailable, match="fork"):
                refused()
        store.open()
        assert store.run("r") == row
        store.commit([Record(row.pk, 1, row.fence, "step", "k", 1.0)])
        store.close()

    for _ in range(3):
        assert in_child(child) == 0
    assert in_child(lambda: None) == 0
    assert store.commit([Record(row.pk, 2, row.fence, "step", "k", 1.0)]) == [None]
    assert [entry.seq for entry in store.journal(row.pk)] == [1, 2]
    assert [store._writer.db().info.backend_pid, store._reader.db().info.backend_pid] == sessions, (
        "they are the same sessions"
    )
    other = PostgresStore.at(schema)
    other.open()
    assert other.dead_workers() == []
    other.close()
    store.close()
