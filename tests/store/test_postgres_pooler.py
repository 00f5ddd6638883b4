"""Postgres behind a transaction pooler: each statement may run in another session."""

import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from transaction_pooler import Pooler, pooling

from outlast.store.commands import Claim, Record, RegisterWorker, Settle, Submit, Sweep
from outlast.store.postgres.address import parse
from outlast.store.postgres.store import PostgresStore
from outlast.testing.store_hooks import kill
from support.postgres_schemas import emptied, schema_of_this_process
from support.waiting import WAIT_SECONDS, wait_until


@pytest.fixture(scope="module")
def schema(postgres_server) -> Iterator[str]:
    with schema_of_this_process(postgres_server.url, "pooler") as address:
        yield address


@pytest.fixture
def pooler(schema) -> Iterator[Pooler]:
    emptied(schema)
    socket = Path(parse(schema).options["host"]) / ".s.PGSQL.5432"
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, pooling(socket, Path(folder)) as pooler:
        yield pooler


def through(via: Pooler, schema: str, words: str = "") -> PostgresStore:
    name = parse(schema).schema
    address = f"postgresql://postgres@/postgres?host={via.own_socket.parent}&schema={name}{words}"
    return PostgresStore.at(address, heartbeat=0.05)


@pytest.mark.parametrize("words", ["", "&pooler=yes"], ids=["found out", "said"])
def test_runs_are_executed_through_a_pooler(pooler, schema, words) -> None:
    stores = [through(pooler, schema, words) for _ in range(3)]
    for store in stores:
        store.open()
        assert store._writer.pooler
    stores[0].commit([Submit(f"r{n}", "flow", "[]", "t", "s") for n in range(30)])

    def work(number: int) -> int:
        store, done = stores[number], 0
        store.acquire_liveness(f"w{number}")
        store.commit([RegisterWorker(f"w{number}", "host", 1, 60.0)])
        while rows := store.commit([Claim(f"w{number}", f"{number}-{done}", limit=3)])[0]:
            store.commit([Record(row.pk, 1, row.fence, "step", "k", 1.0) for row in rows])
            assert store.commit([Settle(row.pk, row.fence, "done") for row in rows]) == [
                None
            ] * len(rows)
            assert len(store.journal(rows[0].pk)) == 1
            done += len(rows)
        return done

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(work, range(3))) == 30
    assert stores[0].dead_workers() == [], "without a session of one's own nobody is dead by a lock"
    assert len({session for _, session in pooler.lent}) == 3
    assert len(pooler.lent) > 6, "sessions went from hand to hand"
    for store in stores:
        store.close()


def test_notification_through_a_pooler_reaches_direct_listeners(pooler, schema) -> None:
    direct, pooled = PostgresStore.at(schema), through(pooler, schema)
    heard = threading.Event()
    direct.open()
    direct.listen(heard.set)
    pooled.open()
    pooled.acquire_liveness("w")
    assert heard.wait(WAIT_SECONDS), "it listens now"
    heard.clear()
    pooled.commit([Submit("r", "flow", "[]", "t", "s")])
    assert heard.wait(WAIT_SECONDS)
    direct.close()
    pooled.close()


def test_worker_behind_a_pooler_is_dead_when_its_lease_ends(pooler, schema) -> None:
    one, other = through(pooler, schema), through(pooler, schema)
    one.open()
    other.open()
    one.acquire_liveness("w")
    one.commit([RegisterWorker("w", "host", 1, 0.2)])
    kill(one)
    wait_until(lambda: other.commit([Sweep()])[0].workers == ("w",))
    other.close()


def test_undeclared_pooler_is_detected_when_the_session_changes(pooler, schema) -> None:
    store = through(pooler, schema, "&pooler=no")
    store.open()
    store.acquire_liveness("w")
    store.commit([RegisterWorker("w", "host", 1, 60.0)])
    wait_until(lambda: not store._liveness.has_session)
    store.close()
