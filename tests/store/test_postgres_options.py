"""Values that Postgres cannot store, options of an address and settings of a role."""

import logging
import signal
import time
from collections.abc import Iterator

import psycopg
import pytest
from postgres_fault_tools import held, opened

from outlast.errors import SettingsError, StoreUnavailable
from outlast.store.commands import (
    Record,
    RegisterWorker,
    Send,
    Settle,
    Submit,
    UpdateSession,
)
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import BadValue
from outlast.testing import servers


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


@pytest.mark.parametrize("text", ["a\0b", "\ud800", '"\0"'], ids=["nul", "surrogate", "quoted nul"])
def test_text_that_postgres_cannot_store_is_a_bad_value(address, text) -> None:
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
def test_number_that_postgres_cannot_store_is_a_bad_value(address, number) -> None:
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


def test_settings_of_a_role_do_not_change_times(server, address) -> None:
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


def test_settings_of_a_role_do_not_weaken_a_commit(server, address) -> None:
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
