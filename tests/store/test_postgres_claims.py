"""Claims stay cheap: however much is queued, however old the statistics are, and while somebody keeps a transaction open."""

import math
from collections.abc import Iterator

import pytest
from postgres_schemas import connected, schema_of_this_process

from outlast.store.postgres.floors import Floors
from outlast.store.postgres.migrate import WALK_MAX
from outlast.store.postgres.store import PostgresStore
from outlast.store.verbs import Ack, Claim, Enlist, Submit, SubmitMany

WALKED = "SELECT pg_stat_get_tuples_returned('runs_ready'::regclass)"


@pytest.fixture
def schema(postgres_server) -> Iterator[str]:
    with schema_of_this_process(postgres_server.url, "claims") as address:
        yield address


@pytest.fixture
def store(schema) -> Iterator[PostgresStore]:
    store = PostgresStore.at(schema)
    store.open()
    store.hold("w")
    store.commit([Enlist("w", "host", 1, 600.0, ("q",), ("",), 10)])
    yield store
    store.close()


def walked(db, store: PostgresStore) -> int:
    """How many entries of the index of ready runs were looked at, ever."""
    store._writer.execute("SELECT pg_stat_force_next_flush()")
    store._reader.execute("SELECT pg_stat_force_next_flush()")
    store._writer.execute("SELECT 1")
    store._reader.execute("SELECT 1")
    return int(db.execute(WALKED).fetchone()[0])


def put(store: PostgresStore, name: str, count: int) -> None:
    store.commit(
        [SubmitMany(tuple(Submit(f"{name}{n}", "", "{}", "t", "s", queue="q") for n in range(count)))]
    )


def take(store: PostgresStore, token: str, limit: int = 10) -> list[str]:
    (rows,) = store.commit([Claim("w", token, queues=("q",), workflows=("",), limit=limit)])
    store.commit([Ack(row.pk, row.fence, "q") for row in rows])
    return [row.id for row in rows]


def test_a_claim_of_a_few_among_many_that_were_just_loaded_looks_at_a_few(store, schema) -> None:
    """No ANALYZE has been; the plans were made when the tables were empty."""
    for turn in range(8):
        put(store, f"first{turn}-", 5)
        take(store, f"f{turn}")
    with connected(schema) as db:
        db.execute(
            "INSERT INTO runs (pk, id, workflow, args, queue, priority, status, fence, seed, created, due, ready, attempts_max, interruptions_max)"
            " SELECT nextval('numbers'), 'many' || n, '', '{}', 'q', 0, 'queued', 0, 's', 1, 1 + n * 0.001, 1, 5, 100 FROM generate_series(1, 30000) n"
        )
        before = walked(db, store)
        for turn in range(10):
            assert len(take(store, f"m{turn}")) == 10
            store.look(("q",), ("",))
        assert walked(db, store) - before < 10 * 60


def test_while_a_transaction_is_kept_open_a_claim_does_not_walk_over_all_that_was_claimed(
    store, schema
) -> None:
    with connected(schema) as db, connected(schema) as idle:
        idle.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        idle.execute("SELECT count(*) FROM runs")
        for turn in range(6):
            put(store, f"old{turn}-", 1000)
            while take(store, f"o{turn}-{store.depth('q')}", 500):
                pass
        put(store, "new", 1500)
        take(store, "learns")
        assert store._floors.now() is not None
        store._floors._until = math.inf  # it does not look at everything again now; that is tested below
        costs = []
        for turn in range(20):
            before = walked(db, store)
            assert take(store, f"n{turn}") == [f"new{n}" for n in range(10 + turn * 10, 20 + turn * 10)]
            store.look(("q",), ("",))
            costs.append(walked(db, store) - before)
        assert max(costs) < 100
        store._floors._until = 0.0
        before = walked(db, store)
        take(store, "from the beginning")
        assert walked(db, store) - before > 6000, "there was something to walk over"
        idle.execute("ROLLBACK")


def test_pages_of_what_was_claimed_before_the_next_vacuum_are_not_walked_over_again_and_again(
    store, schema, monkeypatch
) -> None:
    """Entries that are known to be dead cost little, but thousands of pages of them lie in the way of who consumes thousands a second."""
    scans = []
    learn = store._floors.learn
    monkeypatch.setattr(
        store._floors, "learn", lambda *scan, **how: (scans.append(scan), learn(*scan, **how))
    )
    with connected(schema) as db:
        db.execute("ALTER TABLE runs SET (autovacuum_enabled = off)")
        for turn in range(6):
            put(store, f"old{turn}-", 1000)
            while take(store, f"o{turn}-{store.depth('q')}", 500):
                pass
        put(store, "new", 1500)
        take(store, "marks them as dead")
        store._floors._until = 0.0
        scans.clear()
        take(store, "learns")
        assert scans[0][1] > WALK_MAX
        assert [first[:3] for first in scans[0][2]] == [["q", "", 1]]
        store._floors._until = math.inf
        for turn in range(20):
            scans.clear()
            assert take(store, f"n{turn}") == [f"new{n}" for n in range(20 + turn * 10, 30 + turn * 10)]
            assert scans[0][1] < WALK_MAX / 2


def test_what_is_remembered_is_forgotten_in_time() -> None:
    floors = Floors()
    floors.learn(0.001, 10, [["q", "", 1, 0, 1e12, 5.0, 7]], 100.0, floored=False)
    assert floors.now() is None, "it was quick"
    floors.learn(0.1, 50_000, [["q", "", 1, 0, 1e12, 5.0, 7, None]], 100.0, floored=False)
    assert floors.now() == [90.0, [["q", "", 1, 0, 1e12, 5.0, 7]]]
    floors.learn(0.0001, 5, [["q", "", 1, 0, 1e12, 6.0, 9, None]], 101.0, floored=True)
    assert floors.now() == [90.0, [["q", "", 1, 0, 1e12, 6.0, 9]]]
    floors.learn(0.0001, 5, None, 102.0, floored=False)
    assert floors.now() is None


def test_a_run_that_belongs_before_the_place_is_found_when_everything_is_looked_at_again(
    store, schema
) -> None:
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
            store._floors._until = 0.0  # time goes by
        assert found[-1] == "urgent"
        assert len(found) <= 3


def test_on_another_timeline_fences_jump_over_what_the_last_primary_may_have_given_out(store, schema) -> None:
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
