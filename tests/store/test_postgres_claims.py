"""Claims stay cheap: however much is queued, however old the statistics are, and while another program keeps a transaction open."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from outlast.store.commands import Ack, Claim, Settle, Submit, SubmitMany
from outlast.store.postgres import scan_cursors
from outlast.store.postgres.migrate import WALK_MAX
from outlast.store.postgres.scan_cursors import ScanCursorCache
from outlast.store.postgres.store import PostgresStore
from support.postgres_schemas import connected, counted, schema_of_this_process, with_a_worker

INSERT = (
    "INSERT INTO runs (pk, id, workflow, args, queue, priority, status, fence, seed, created, due, ready, attempts_max, interruptions_max)"
    " SELECT nextval('numbers'), %(name)s || n, '', '{}', 'q', 0, 'queued', 0, 's', 1, %(due)s + n * 0.001, %(ready)s, 5, 100"
    " FROM generate_series(1, %(count)s) n"
)
WALKED = "SELECT pg_stat_get_tuples_returned('runs_ready'::regclass)"


@pytest.fixture
def schema(postgres_server) -> Iterator[str]:
    with schema_of_this_process(postgres_server.url, "claims") as address:
        yield address


@pytest.fixture
def store(schema) -> Iterator[PostgresStore]:
    with with_a_worker(schema, "w", 10) as store:
        yield store


def walked(db, store: PostgresStore) -> int:
    """How many entries of the index of ready runs were looked at, ever."""
    counted(store._writer, store._reader)
    return int(db.execute(WALKED).fetchone()[0])


def put(store: PostgresStore, name: str, count: int) -> None:
    store.commit(
        [
            SubmitMany(
                tuple(Submit(f"{name}{n}", "", "{}", "t", "s", queue="q") for n in range(count))
            )
        ]
    )


def take(store: PostgresStore, token: str, limit: int = 10) -> list[str]:
    (rows,) = store.commit([Claim("w", token, queues=("q",), workflows=("",), limit=limit)])
    store.commit([Ack(row.pk, row.fence, "q") for row in rows])
    return [row.id for row in rows]


@contextmanager
def in_the_way(schema: str, count: int) -> Iterator[psycopg.Connection]:
    """Put this many entries of deleted runs before everything that is ready, in a session beside the store's."""
    with connected(schema) as db, connected(schema) as idle:
        idle.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        idle.execute("SELECT count(*) FROM runs")
        db.execute(INSERT, {"name": "gone", "due": 1, "ready": 1, "count": count})
        db.execute("DELETE FROM runs WHERE id LIKE 'gone%'")
        yield db
        idle.execute("ROLLBACK")


@pytest.fixture
def long_memory(monkeypatch) -> None:
    """What is remembered is not forgotten while a test goes on, however quick the scan was."""
    monkeypatch.setattr(scan_cursors, "SHARE", 1e9)
    monkeypatch.setattr(scan_cursors, "SECONDS_MAX", 600.0)


def test_claim_of_a_few_reads_few_of_many_new_runs(store, schema) -> None:
    """No ANALYZE has been; the plans were made when the tables were empty."""
    for turn in range(8):
        put(store, f"first{turn}-", 5)
        take(store, f"f{turn}")
    with connected(schema) as db:
        db.execute(INSERT, {"name": "many", "due": 1, "ready": 1, "count": 30_000})
        before = walked(db, store)
        for turn in range(10):
            assert len(take(store, f"m{turn}")) == 10
            store.peek(("q",), ("",))
        # A snapshot that another test holds keeps claimed entries in the index, so a claim may pass all of them.
        assert walked(db, store) - before < 30_000 / 10


@pytest.mark.usefixtures("long_memory")
def test_claim_does_not_scan_claimed_runs_while_a_transaction_is_open(store, schema) -> None:
    with connected(schema) as db, connected(schema) as idle:
        idle.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        idle.execute("SELECT count(*) FROM runs")
        for turn in range(6):
            put(store, f"old{turn}-", 1000)
            while take(store, f"o{turn}-{store.depth('q')}", 500):
                pass
        put(store, "new", 1500)
        store._scan_cursors._until = 0.0  # what it remembers of the old ones
        take(store, "learns")
        assert (
            store._scan_cursors.now() is not None
        )  # it does not look at everything again now; that is tested below
        costs = []
        for turn in range(20):
            before = walked(db, store)
            assert take(store, f"n{turn}") == [
                f"new{n}" for n in range(10 + turn * 10, 20 + turn * 10)
            ]
            store.peek(("q",), ("",))
            costs.append(walked(db, store) - before)
        assert max(costs) < 100
        store._scan_cursors._until = 0.0
        before = walked(db, store)
        take(store, "from the beginning")
        assert walked(db, store) - before > 6000, "there was something to walk over"
        idle.execute("ROLLBACK")


def test_claims_do_not_rescan_pages_of_claimed_runs_before_a_vacuum(
    store, schema, monkeypatch
) -> None:
    """Entries that are known to be dead cost little, but thousands of pages of them slow down a consumer of thousands a second."""
    scans = []
    learn = store._scan_cursors.learn
    monkeypatch.setattr(
        store._scan_cursors, "learn", lambda *scan, **how: (scans.append(scan), learn(*scan, **how))
    )
    with connected(schema) as db:
        db.execute("ALTER TABLE runs SET (autovacuum_enabled = off)")
        for turn in range(6):
            put(store, f"old{turn}-", 1000)
            while take(store, f"o{turn}-{store.depth('q')}", 500):
                pass
        put(store, "new", 1500)
        take(store, "marks them as dead")
        store._scan_cursors._until = 0.0
        scans.clear()
        take(store, "learns")
        assert scans[0][1] > WALK_MAX
        assert [first[:3] for first in scans[0][2]] == [["q", "", 1]]
        store._scan_cursors._until = math.inf
        for turn in range(20):
            scans.clear()
            assert take(store, f"n{turn}") == [
                f"new{n}" for n in range(20 + turn * 10, 30 + turn * 10)
            ]
            assert scans[0][1] < WALK_MAX / 2


def test_claim_floor_expires() -> None:
    scan_cursors = ScanCursorCache()
    scan_cursors.learn(0.001, 10, [["q", "", 1, 0, 1e12, 5.0, 7]], 100.0, floored=False)
    assert scan_cursors.now() is None, "it was quick"
    scan_cursors.learn(0.1, 50_000, [["q", "", 1, 0, 1e12, 5.0, 7, None]], 100.0, floored=False)
    assert scan_cursors.now() == [90.0, [["q", "", 1, 0, 1e12, 5.0, 7]]]
    scan_cursors.learn(0.0001, 5, [["q", "", 1, 0, 1e12, 6.0, 9, None]], 101.0, floored=True)
    assert scan_cursors.now() == [90.0, [["q", "", 1, 0, 1e12, 6.0, 9]]]
    scan_cursors.learn(0.0001, 5, None, 102.0, floored=False)
    assert scan_cursors.now() is None


def test_run_below_the_claim_floor_is_found_by_the_next_full_scan(store, schema) -> None:
    with connected(schema) as idle:
        idle.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        idle.execute("SELECT count(*) FROM runs")
        for turn in range(3):
            put(store, f"old{turn}-", 1000)
            while take(store, f"o{turn}-{store.depth('q')}", 500):
                pass
        put(store, "new", 50)
        assert take(store, "n0", 1) == ["new0"]
        store.commit([Submit("urgent", "", "{}", "t", "s", queue="q", priority=9)])
        found: list[str] = []
        while "urgent" not in found and len(found) < 45:
            found += take(store, f"n{len(found) + 1}", 1)
            store._scan_cursors._until = 0.0  # time goes by
        assert found[-1] == "urgent"
        assert len(found) <= 3


@pytest.mark.usefixtures("long_memory")
def test_empty_claim_reports_the_time_of_the_next_full_scan(store, schema) -> None:
    """What stands before the cursor was notified of, and is not notified of again."""
    put(store, "place", 1)
    with in_the_way(schema, 3_000):
        assert store.peek(("q",), ("",)).ready
        assert store._scan_cursors.now() is not None
        assert take(store, "t") == ["place0"]
        store.commit([Submit("urgent", "", "{}", "t", "s", queue="q", priority=9)])
        before = store.now()
        found = store.peek(("q",), ("",))
        assert not found.ready, "it stands before the place"
        assert found.next_due is not None
        assert before + 300 < found.next_due <= store.now() + 600
        store.commit([Submit("later", "", "{}", "t", "s", queue="q", delay=60.0)])
        assert store.peek(("q",), ("",)).next_due < before + 300, "the sooner of the two"
        store._scan_cursors._until = 0.0
        assert store.peek(("q",), ("",)).ready
        assert take(store, "u", 1) == ["urgent"]


def test_claim_floor_lasts_as_long_as_its_scan_was_expensive() -> None:
    scan_cursors = ScanCursorCache()
    assert scan_cursors.left() == 0.0
    scan_cursors._until = time.monotonic() + 600
    assert 300 < scan_cursors.left() <= 600


@pytest.mark.usefixtures("long_memory")
def test_claim_remembers_nothing_while_more_is_overdue_than_it_makes_ready(store, schema) -> None:
    """After an outage: what was overdue for long stands before what is remembered."""
    put(store, "line", 1)
    assert take(store, "first") == ["line0"]
    with in_the_way(schema, 3_000) as db:
        db.execute(INSERT, {"name": "late", "due": store.now() - 100, "ready": 0, "count": 2_500})
        found: list[str] = []
        while some := take(store, f"t{len(found)}", 250):
            found += some
        assert found == [f"late{n}" for n in range(1, 2_501)]
        assert store._scan_cursors.now() is not None, "it was slow, and remembered in the end"


@pytest.mark.usefixtures("long_memory")
def test_peek_remembers_nothing_while_something_is_overdue(store, schema) -> None:
    put(store, "line", 1)
    assert take(store, "first") == ["line0"]
    with in_the_way(schema, 3_000) as db:
        db.execute(INSERT, {"name": "late", "due": store.now() - 100, "ready": 0, "count": 3})
        assert store.peek(("q",), ("",)).overdue
        assert store.peek(("q",), ("",)).overdue
        assert take(store, "t") == ["late1", "late2", "late3"]
        store._scan_cursors._until = 0.0
        assert not store.peek(("q",), ("",)).overdue
        assert store._scan_cursors.now() is not None, "it was slow"


@pytest.mark.usefixtures("long_memory")
def test_expensive_scan_is_noticed_among_many_lines(store, schema) -> None:
    """The pages that every line's scan begins with are not set off against what another one walks over."""
    workflows = ["", *(f"flow{n}" for n in range(150))]
    store.commit([Submit(f"r-{name}", name, "{}", "t", "s", queue="q") for name in workflows])
    (rows,) = store.commit([Claim("w", "all", queues=("q",), limit=151)])
    store.commit([Settle(row.pk, row.fence, "done") for row in rows])
    with in_the_way(schema, 3_000):
        store._scan_cursors._until = 0.0
        put(store, "new", 20)
        (rows,) = store.commit([Claim("w", "learns", queues=("q",), limit=5)])
        assert [row.id for row in rows] == [f"new{n}" for n in range(5)]
        assert store._scan_cursors.now() is not None
        assert ["q", "", 1] in [line[:3] for line in store._scan_cursors.now()[1]]


def test_fences_jump_after_a_failover(store, schema) -> None:
    def fence(id: str) -> int:
        (outcome,) = store.commit([Submit(id, "", "{}", "t", "s", queue="q", worker="w")])
        return int(outcome.row.fence)

    first = fence("a")
    assert fence("b") == first + 1
    with connected(schema) as db:
        db.execute("UPDATE meta SET timeline = '00000000'")
    jumped = fence("c")
    assert jumped >= first + 1_000_000_000
    assert fence("d") == jumped + 1
