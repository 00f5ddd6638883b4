"""A Postgres server that is cut off, stopped, full or read-only loses no acknowledged commit."""

import asyncio
import signal
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest
from postgres_fault_tools import held, opened

from outlast import Outlast, step, workflow
from outlast.errors import StoreUnavailable
from outlast.store.commands import (
    DeleteSession,
    Record,
    Refused,
    RegisterWorker,
    Settle,
    SetWaiting,
    UpdateSession,
)
from outlast.store.postgres import migrate
from outlast.store.postgres import store as store_module
from outlast.store.postgres.dispatch import record_values
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import CommitUnknown
from outlast.testing import servers
from support.postgres_schemas import connected
from support.waiting import WAIT_SECONDS, wait_until

UNHURRIED = 60.0
"""A heartbeat in seconds. A worker that beats so rarely is not dead while a slow machine reconnects it."""
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND application_name = 'outlast'"


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.postgres_server() as server:
        yield server


@pytest.fixture
def address(server, request) -> Iterator[str]:
    name = f"faults_{abs(hash(request.node.name))}"
    yield f"{server.url}&schema={name}"
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def persist(store: PostgresStore, command, patience: float = WAIT_SECONDS):
    """As the writer does it: until it is definite."""
    deadline, unknown = time.monotonic() + patience, False
    while True:
        try:
            if unknown:
                store.recover()
            return store.commit([command])[0]
        except (StoreUnavailable, CommitUnknown) as error:
            unknown = unknown or isinstance(error, CommitUnknown)
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


class Recording(threading.Thread):
    """Records one entry after another, and counts those that were acknowledged."""

    def __init__(self, store: PostgresStore, row) -> None:
        super().__init__(daemon=True)
        self.store, self.row, self.stop, self.acknowledged, self.refused = store, row, False, 0, []

    def run(self) -> None:
        while not self.stop:
            seq = self.acknowledged + 1
            outcome = persist(
                self.store,
                Record(self.row.pk, seq, self.row.fence, "step", f"s#{seq}", 1.0, value=str(seq)),
            )
            if outcome is not None:
                self.refused.append(outcome)
                return
            self.acknowledged = seq

    def until(self, count: int) -> None:
        wait_until(lambda: self.acknowledged >= count or not self.is_alive())


def assert_no_loss_and_no_death(store: PostgresStore, recording: Recording) -> None:
    recording.stop = True
    recording.join(WAIT_SECONDS)
    assert not recording.is_alive()
    assert recording.refused == []
    journal = store.journal(recording.row.pk)
    assert [entry.seq for entry in journal] == [*range(1, len(journal) + 1)]
    assert len(journal) >= recording.acknowledged
    assert all(entry.kind == "step" and entry.value == str(entry.seq) for entry in journal)
    row = store.run(recording.row.id)
    assert row is not None
    assert (row.status, row.worker, row.deaths, row.interruptions) == ("running", "w", 0, 0)
    assert [worker.id for worker in store.workers()] == ["w"]


def test_cut_connections_lose_no_commit_and_count_no_death(server, address) -> None:
    with (
        opened(address, heartbeat=UNHURRIED) as store,
        opened(address) as other,
        psycopg.connect(server.url, autocommit=True) as db,
    ):
        recording = Recording(store, held(store))
        recording.start()
        for turn in range(1, 6):
            recording.until(turn * 20)
            db.execute(CUT)
            assert "w" not in other.dead_workers()
        assert_no_loss_and_no_death(store, recording)


def test_immediate_server_restart_loses_no_commit_and_counts_no_death(server, address) -> None:
    with opened(address, heartbeat=UNHURRIED) as store:
        recording = Recording(store, held(store))
        recording.start()
        for turn in (1, 2):
            recording.until(turn * 20)
            server.stop(signal.SIGQUIT)  # as `pg_ctl stop -m immediate`
            with pytest.raises(StoreUnavailable):
                store.run("r")
            server.start()
            assert store.dead_workers() == []
        recording.until(60)
        assert store.dead_workers() == []
        assert_no_loss_and_no_death(store, recording)


def test_recover_waits_until_a_lost_commit_is_over(address) -> None:
    """Its backend waits for a lock when the connection is lost: it may still commit. Recovering waits until it has given up."""
    with opened(address) as store, connected(address) as db:
        row = held(store)
        command = Settle(row.pk, row.fence, "done", "1")
        with db.transaction():
            db.execute("SELECT 1 FROM runs FOR UPDATE")
            cut = threading.Thread(
                target=lambda: (wait_until_blocked(address, store), _shut(store))
            )
            cut.start()
            with pytest.raises(CommitUnknown):
                store.commit([command])
            cut.join()
            store.recover()
        assert store.run("r").status == "running"
        assert store.commit([command]) == [None]
        found = store.run("r")
        assert found is not None
        assert found.status == "done"


def wait_until_blocked(address: str, store: PostgresStore) -> None:
    """Wait until the store's commit waits for a lock on the server."""
    pid = store._writer._db.info.backend_pid
    with connected(address) as db:
        blocked = "SELECT cardinality(pg_blocking_pids(%s)) > 0"
        wait_until(lambda: db.execute(blocked, (pid,)).fetchone()[0])


def _shut(store: PostgresStore) -> None:
    import socket

    with socket.socket(fileno=store._writer.db().fileno()) as own:
        own.shutdown(socket.SHUT_RDWR)
        own.detach()


def test_call_of_an_old_epoch_is_refused(address) -> None:
    with opened(address) as store, connected(address) as db:
        row = held(store)
        late = (
            store._committer.id,
            store._committer.epoch,
            None,
            None,
            f"{{{row.pk}}}",
            None,
            f'[["Record",[[{row.pk},1,{row.fence},"step","k",1]]]]',
        )
        store.recover()
        with pytest.raises(psycopg.Error) as refused:
            db.execute(f"SELECT commit_{migrate.version()}(%s, %s, %s, %s, %s, %s, %s)", late)
        assert refused.value.sqlstate == "OL001"
        assert store.journal(row.pk) == []
        assert store.commit([Record(row.pk, 1, row.fence, "step", "k", 1.0)]) == [None]


def test_single_entry_of_an_old_epoch_is_refused(address) -> None:
    with opened(address) as store, connected(address) as db:
        row = held(store)
        assert store._writer.is_prepared

        def short(seq: int) -> bool:
            entry = Record(
                row.pk, seq, row.fence, "step", "käse", 1.5, value='"x"', asked=True, attempt=2
            )
            return store._writer.record(
                record_values(entry, store._committer.id, store._committer.epoch)
            )

        assert short(1)
        with pytest.raises(psycopg.errors.UniqueViolation):
            short(1)
        assert not short(3), "it would leave a hole"
        with db.transaction():
            db.execute("UPDATE writers SET epoch = epoch + 1")
            assert not short(2), "nobody waits for who shuts others out"
        assert not short(2)
        assert [(entry.seq, entry.key, entry.asked) for entry in store.journal(row.pk)] == [
            (1, "käse", True)
        ]
        assert store.commit([Record(row.pk, 2, row.fence, "step", "k", 1.0)]) == [None], (
            "a new epoch"
        )


def test_writer_without_a_row_starts_a_new_epoch(address) -> None:
    with opened(address) as store, connected(address) as db:
        row = held(store)
        db.execute("DELETE FROM writers")
        assert store.commit([Record(row.pk, 1, row.fence, "step", "k", 1.0)]) == [None]


def test_journal_that_lost_its_tail_refuses_entries_after_a_gap(address, monkeypatch) -> None:
    """As after a failover to a standby that had not received the last entries, while their worker lives on."""
    with opened(address) as store, connected(address) as db:
        row, other = held(store), held(store, "other")

        def step(seq: int, row=row) -> Record:
            return Record(row.pk, seq, row.fence, "step", f"s#{seq}", 1.0)

        def kept(seq: int) -> UpdateSession:
            return UpdateSession("s", f"t{seq}", {"a": "1"}, record=step(seq))

        assert store.commit([step(1), step(2), step(1, other)]) == [None] * 3
        db.execute("DELETE FROM entries WHERE run = %s AND seq = 2", (row.pk,))
        hole = Refused("fence")
        assert store.commit([step(3)]) == [hole]
        monkeypatch.setattr(store_module, "HERE_SECONDS", WAIT_SECONDS)
        assert store.try_commit([step(3)]) == [hole]
        assert store.commit([step(3), step(2, other)]) == [hole, None], "one of each run"
        assert store.commit([step(3), step(4), step(3, other)]) == [hole, hole, None], (
            "several of a run"
        )
        assert store.commit([step(4), SetWaiting(row.pk, row.fence, ())]) == [hole, None], (
            "beside another command"
        )
        assert store.commit([kept(3)]) == [hole]
        assert store.commit([DeleteSession("s", "f", record=step(3))]) == [hole]
        assert store.session("s") is None
        assert [entry.seq for entry in store.journal(row.pk)] == [1]
        assert store.commit([step(1), step(2), step(3), step(3, other)]) == [None] * 4, (
            "some of it repeated"
        )
        assert store.commit([kept(4), step(5), step(7)]) == [1, None, hole]
        assert [entry.seq for entry in store.journal(row.pk)] == [1, 2, 3, 4, 5]
        assert [entry.seq for entry in store.journal(other.pk)] == [1, 2, 3]


def test_run_whose_journal_lost_its_tail_resumes_from_the_rest(address) -> None:
    ledger: list[int] = []

    @step
    async def told(number: int) -> int:
        ledger.append(number)
        return number

    @workflow
    async def count() -> int:
        total = await told(1) + await told(2)
        if len(ledger) == 2:
            with connected(address) as db:
                db.execute("DELETE FROM entries WHERE seq = 2")
        return total + await told(3) + await told(4)

    async def main() -> int:
        async with Outlast(address, poll=0.2) as app:
            run = await app.start(count(), id="r")
            return await run.result(timeout=WAIT_SECONDS)

    assert asyncio.run(main()) == 10
    assert ledger == [1, 2, 3, 2, 3, 4], "the third was not recorded: it did not follow the first"


def test_missing_server_is_unavailable(tmp_path) -> None:
    store = PostgresStore.at(f"postgresql://me:secret@/db?host={tmp_path}")
    with pytest.raises(StoreUnavailable, match=str(tmp_path)) as error:
        store.open()
    assert "secret" not in str(error.value)
    store = PostgresStore.at("postgresql://me@127.0.0.1:1/db?connect_timeout=2")
    with pytest.raises(StoreUnavailable):
        store.open()
    with pytest.raises(StoreUnavailable):
        store.run("r")


def test_read_only_database_can_be_read_and_refuses_writes_with_a_reason(address) -> None:
    with opened(address) as store:
        row = held(store)
    with opened(f"{address}&options=-c%20default_transaction_read_only%3Don") as store:
        assert store.run(row.id) is not None
        with pytest.raises(StoreUnavailable, match="read-only"):
            store.commit([RegisterWorker("w2", "host", 1, 60.0)])
        assert store.run(row.id) is not None


def test_server_without_a_free_connection_is_unavailable_and_says_so(server, address) -> None:
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("CREATE ROLE crowded LOGIN CONNECTION LIMIT 0")
        try:
            store = PostgresStore.at(address.replace("postgres@", "crowded@"))
            with pytest.raises(StoreUnavailable, match="too many connections"):
                store.open()
        finally:
            db.execute("DROP ROLE crowded")


def test_error_for_missing_rights_names_the_command_to_run(server, address) -> None:
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("CREATE ROLE humble LOGIN")
        try:
            with pytest.raises(StoreUnavailable, match="outlast migrate --sql"):
                PostgresStore.at(address.replace("postgres@", "humble@")).open()
        finally:
            db.execute("DROP ROLE humble")


def test_cancelled_statement_writes_nothing(address) -> None:
    with opened(address) as store, connected(address) as db, connected(address) as another:
        row = held(store)
        pid = store._writer.db().info.backend_pid
        with another.transaction():
            another.execute("SELECT 1 FROM runs FOR UPDATE")
            cancel = threading.Thread(
                target=lambda: (
                    wait_until_blocked(address, store),
                    db.execute("SELECT pg_cancel_backend(%s)", (pid,)),
                )
            )
            cancel.start()
            with pytest.raises(StoreUnavailable, match="Nothing was written"):
                store.commit([Record(row.pk, 1, row.fence, "step", "k", 1.0)])
            cancel.join()
        assert store.journal(row.pk) == []
        assert store.commit([Record(row.pk, 1, row.fence, "step", "k", 1.0)]) == [None]
