"""Faults of a real Postgres server: cut, stopped, full, read-only or misconfigured."""

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from outlast import Outlast, step, workflow
from outlast.errors import SettingsError, StoreUnavailable
from outlast.store.commands import (
    DeleteSession,
    Record,
    Refused,
    RegisterWorker,
    Send,
    Settle,
    SetWaiting,
    Submit,
    UpdateSession,
)
from outlast.store.postgres import migrate
from outlast.store.postgres import store as store_module
from outlast.store.postgres.dispatch import record_values
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import BadValue, CommitUnknown
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


@contextmanager
def opened(address: str, heartbeat: float = 0.2) -> Iterator[PostgresStore]:
    store = PostgresStore.at(address, heartbeat=heartbeat)
    store.open()
    try:
        yield store
    finally:
        store.close()


def held(store: PostgresStore, id: str = "r"):
    """A run that a living worker executes."""
    store.acquire_liveness("w")
    store.commit([RegisterWorker("w", "host", 1, 600.0)])
    (submitted,) = store.commit([Submit(id, "flow", "[]", "t", "s", worker="w")])
    return submitted.row


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


def nothing_was_lost_and_nobody_charged(store: PostgresStore, recording: Recording) -> None:
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
        nothing_was_lost_and_nobody_charged(store, recording)


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
        nothing_was_lost_and_nobody_charged(store, recording)


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
            store._id,
            store._epoch,
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
            return store._writer.record(record_values(entry, store._id, store._epoch))

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
            "beside another verb"
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


def test_user_without_rights_is_told_which_command_to_run(server, address) -> None:
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("CREATE ROLE humble LOGIN")
        try:
            with pytest.raises(StoreUnavailable, match="outlast migrate --sql"):
                PostgresStore.at(address.replace("postgres@", "humble@")).open()
        finally:
            db.execute("DROP ROLE humble")


def test_statement_that_is_cancelled_has_written_nothing(address) -> None:
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


@pytest.mark.parametrize("text", ["a\0b", "\ud800", '"\0"'], ids=["nul", "surrogate", "quoted nul"])
def test_text_that_the_server_cannot_hold_is_a_bad_value(address, text) -> None:
    with opened(address) as store:
        row = held(store)
        for command in (
            Record(row.pk, 1, row.fence, "step", "k", 1.0, value=text),
            Submit("new", "flow", text, "t", "s"),
            Submit(text, "flow", "[]", "t", "s"),
            Send("r", "n", "m", text),
            UpdateSession("s", "t", {"f": text}),
        ):
            with pytest.raises(BadValue):
                store.commit([Record(row.pk, 2, row.fence, "step", "k", 1.0), command])
        assert store.journal(row.pk) == []
        with pytest.raises(BadValue):
            store.run(text)
        assert store.commit([Record(row.pk, 1, row.fence, "step", "k", 1.0)]) == [None]


@pytest.mark.parametrize("number", [2**63, -(2**70), 10**30])
def test_number_that_the_server_cannot_hold_is_a_bad_value(address, number) -> None:
    with opened(address) as store:
        row = held(store)
        for command in (
            Record(row.pk, 1, row.fence, "step", "k", 1.0, attempt=number),
            Record(number, 1, row.fence, "step", "k", 1.0),
            Settle(row.pk, number, "done"),
            Submit("new", "flow", "[]", "t", "s", priority=number),
        ):
            with pytest.raises(BadValue):
                store.commit([command])
        assert store.run("new") is None
        assert store.journal(number) == []


def test_errors_and_logs_do_not_contain_the_password(server, address, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "s3cr3t/p@ss:word"
    quoted = "s3cr3t%2Fp%40ss%3Aword"
    said: list[str] = []
    for bad in (
        f"postgresql://me:{quoted}@127.0.0.1:1/db",
        f"postgresql://me:{quoted}@127.0.0.1:notaport/db",
        f"postgresql://me:{secret}@127.0.0.1:1/db",
        f"postgresql://me:{quoted}@127.0.0.1:1/db?nosuch=1",
        f"postgresql://me@127.0.0.1:1/db?password={quoted}&connect_timeout=soon",
        f"postgresql://me:{quoted}@127.0.0.1:1/db?sslmode=sometimes",
        address.replace("postgres@/postgres", f"postgres:{quoted}@/nosuchdatabase"),
        address.replace("postgres@", f"nosuchuser:{quoted}@"),
    ):
        with pytest.raises((StoreUnavailable, SettingsError)) as error:
            PostgresStore.at(bad).open()
        said += [str(error.value), repr(error.value)]
    with opened(address.replace("postgres@", f"postgres:{quoted}@")) as store:
        said += [store.place, repr(store.address), repr(store)]
    said.append(caplog.text)
    assert not [text for text in said for shape in (secret, quoted, "s3cr3t") if shape in text]


def test_unknown_options_are_refused_and_libpq_options_accepted(address) -> None:
    for bad in (
        "nosuch=1",
        "synchronous=full",
        "pooler=perhaps",
        "schema=",
        "schema=pg_mine",
        "schema=" + "x" * 64,
    ):
        with pytest.raises(SettingsError):
            PostgresStore.at(f"postgresql://me@host/db?{bad}")
    with opened(f"{address}&application_name=mine&keepalives=1") as store:
        assert store.runs.__self__ is store


def test_isolation_level_of_a_role_is_corrected_or_refused(server, address) -> None:
    options = "&options=-c%20default_transaction_isolation%3Drepeatable%5C%20read"
    with opened(address + options) as store:
        assert held(store).status == "running"
    with (
        opened(f"{address}{options}&pooler=yes") as store,
        pytest.raises(StoreUnavailable, match="read committed"),
    ):
        store.commit([RegisterWorker("w2", "host", 1, 60.0)])


def test_times_are_exact_whatever_the_role_sets(server, address) -> None:
    """Else a run would replay with another clock than it had, and what it made of that would not fit its record."""
    options, at = "&options=-c%20extra_float_digits%3D0", 1794863212.1234567
    with opened(address + options) as store:
        row = held(store)
        store.commit([Record(row.pk, 1, row.fence, "step", "key", at, value="1")])
        assert store.journal(row.pk)[0].at == at
    with (
        opened(f"{address}{options}&pooler=yes") as store,
        pytest.raises(StoreUnavailable, match="extra_float_digits"),
    ):
        store.commit([RegisterWorker("w2", "host", 1, 60.0)])


def test_acknowledged_commit_is_durable_whatever_the_role_sets(server, address) -> None:
    """A server that ends at once loses what it has not written, which it would not have with synchronous_commit off."""
    with opened(f"{address}&options=-c%20synchronous_commit%3Doff") as store:
        row = held(store)
        for seq in (1, 2):
            time.sleep(0.3)  # the server's own writer has caught up
            store.commit([Record(row.pk, seq, row.fence, "step", "k", 1.0)])
            server.stop(signal.SIGQUIT)
            server.start()
            assert [entry.seq for entry in store.journal(row.pk)] == [*range(1, seq + 1)]
            store.recover()
