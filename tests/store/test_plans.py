"""Which index each statement goes by that must not cost more the more there is."""

import pytest

from outlast.store.commands import Claim, Drain, Prune, RegisterWorker, Submit, SubmitMany
from outlast.store.rows import NEVER, RunQuery
from outlast.store.sqlite import statements as sql
from outlast.store.sqlite.store import SQLiteStore

BOUND = {
    "low": "a", "high": "b", "now": 1.0, "limit": 5, "before_pk": 9, "workflow": "w", "parent": "p",
    "waiting_for": "m", "queue": "q", "items": False, "key": "k", "worker": "w", "created_after": 1.0,
}  # fmt: skip
PLANS = {
    "done": (sql.DONE, (1, "[]"), "entries USING INDEX entries_done (run=? AND key=?)"),
    "done_count": (sql.DONE_COUNT, (1,), "entries USING INDEX entries_done (run=?)"),
    "requeued": (sql.REQUEUED, (1, "retry", "t"), "entries USING INDEX entries_again (run=?)"),
    "decided": (sql.DECIDED, (1, "t"), "entries USING PRIMARY KEY (run=?)"),
    "effects": (sql.MAY_NEED_COMPENSATION, {"id": "r"}, "entries USING PRIMARY KEY (run=?)"),
    "last_seq": (sql.LAST_SEQ, (1,), "entries USING PRIMARY KEY (run=?)"),
    "drain": (
        sql.GIVE_BACK_ALL_BUT,
        {"worker": "w", "keep": "[]", "now": 1.0, "reason": "x"},
        "runs USING INDEX runs_held (worker=?)",
    ),
    "recovered": (
        sql.RECOVERED,
        {"runs": "[]", "by": "w", "now": 1.0},
        "runs USING INTEGER PRIMARY KEY (rowid=?)",
    ),
    "recoveries": (sql.RECOVERIES, ("[]",), "recoveries USING PRIMARY KEY (drain=?)"),
    "measured": (
        sql.MEASURED,
        {"workflow": "w", "step": "s", "seconds": 1.0},
        "durations USING PRIMARY KEY (workflow=? AND step=?)",
    ),
    "too_many_durations": (
        sql.DURATIONS_TOO_MANY,
        {"workflow": "w", "step": "s", "kept": 1},
        "durations USING PRIMARY KEY (workflow=? AND step=? AND number<?)",
    ),
    "durations": (sql.DURATIONS, ("[]",), "durations USING PRIMARY KEY (workflow=? AND step=?)"),
    "session": (
        sql.SESSION,
        {"space": "s", "session": "i", "now": 1.0, "values": True},
        "sessions USING INDEX sqlite_autoindex_sessions_1 (space=? AND id=?)",
    ),
    "session_named": (
        sql.SESSION_NAMED,
        {"space": "s", "session": "i", "now": 1.0, "values": True, "names": "[]"},
        "session_fields USING PRIMARY KEY (session=? AND field=?)",
    ),
    "session_fields": (
        sql.SESSION_FIELDS[False, True],
        {"space": "s", "session": "i", "now": 1.0, "low": "a", "high": "b", "limit": 5},
        "session_fields USING PRIMARY KEY (session=? AND field>? AND field<?)",
    ),
    "session_items": (
        sql.SESSION_ITEMS,
        {"space": "s", "session": "i", "now": 1.0, "field": "f", "start": -5, "stop": None},
        "i USING PRIMARY KEY (session=? AND field=? AND number>? AND number<?)",
    ),
    "sessions_by_id": (
        sql.SESSIONS_BY_ID[True],
        {"space": "s", "now": 1.0, "low": "a", "high": "b", "limit": 5, "values": False},
        "sessions USING INDEX sqlite_autoindex_sessions_1 (space=? AND id>? AND id<?)",
    ),
    "sessions_with_prefix": (
        sql.SESSIONS_WITH_PREFIX,
        {
            "space": "s",
            "now": 1.0,
            "low": "a",
            "high": "b",
            "limit": 5,
            "values": False,
            "before_updated": 1.0,
            "before_id": "",
        },
        "sessions USING INDEX sqlite_autoindex_sessions_1 (space=? AND id>? AND id<?)",
    ),
    "session_touched": (
        sql.SESSION_TOUCHED,
        {"pk": 1, "names": "[]"},
        "session_fields USING PRIMARY KEY (session=? AND field=?)",
    ),
    "session_cut": (
        sql.SESSION_CUT_OLDEST,
        {"pk": 1, "field": "f", "first": 5},
        "session_items USING PRIMARY KEY (session=? AND field=? AND number<?)",
    ),
    "sessions_expired": (
        sql.SESSIONS_EXPIRED,
        (1.0, 5),
        "sessions USING COVERING INDEX sessions_expires (expires<?)",
    ),
    "runs_with_prefix": (
        sql.runs_statement(RunQuery(prefix="a", workflow="w", before_pk=9)),
        BOUND,
        "runs USING COVERING INDEX sqlite_autoindex_runs_1 (id>? AND id<?)",
    ),
    "runs_of_a_parent": (
        sql.runs_statement(RunQuery(parent="p", items=False)),
        BOUND,
        "runs USING INDEX runs_parent (parent=?)",
    ),
    "runs_of_a_key": (
        sql.runs_statement(RunQuery(key="k", queue="q", statuses=("queued",), before_pk=9)),
        BOUND,
        "runs USING INDEX runs_key (key=? AND pk<?)",
    ),
    "runs_of_a_worker": (
        sql.runs_statement(RunQuery(worker="w", statuses=("running",))),
        BOUND,
        "runs USING INDEX runs_held (worker=?)",
    ),
    "parked_runs": (
        sql.runs_statement(RunQuery(statuses=("parked",), queue="q")),
        BOUND,
        "runs USING INDEX runs_stopped (status=?)",
    ),
    "parked_runs_before_one": (
        sql.runs_statement(RunQuery(statuses=("parked",), before_pk=9)),
        BOUND,
        "runs USING INDEX runs_stopped (status=? AND rowid<?)",
    ),
    "runs_that_wait_for_a_message": (
        sql.runs_statement(RunQuery(awaits_message=True, statuses=("waiting", "running"))),
        BOUND,
        "runs USING INDEX runs_asking (ended=?)",
    ),
    "runs_that_wait_for_this_message": (
        sql.runs_statement(RunQuery(waiting_for="m")),
        BOUND,
        "runs USING INDEX runs_asking (ended=?)",
    ),
    "ends": (sql.ENDS, {"after": 1.0, "limit": 5}, "runs USING INDEX runs_ended (ended>?)"),
    "depth": (
        sql.DEPTH,
        {"queue": "q", "now": 0.0},
        "runs USING COVERING INDEX runs_delayed (queue=? AND status=? AND ready=? AND due>?)",
    ),
    "claimable": (sql.CLAIMABLE[1, 0], ("q", "w", 1), "runs USING INDEX runs_ready"),
    "claimable_new": (sql.CLAIMABLE[1, 1], ("q", "w", 1), "runs USING INDEX runs_ready"),
}


@pytest.fixture
def store():
    store = SQLiteStore(None)
    store.open()
    yield store
    store.close()


@pytest.mark.parametrize("name", PLANS)
def test_statement_seeks_where_it_must_not_scan(store, name):
    statement, values, seek = PLANS[name]
    plan = [row[3] for row in store._db.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    assert any(line.startswith(f"SEARCH {seek}") for line in plan), plan
    # A subquery is a result that a search has found.
    found = ("VIRTUAL TABLE", "(subquery")
    scans = [line for line in plan if line.startswith("SCAN")]
    assert all(any(part in line for part in found) for line in scans), plan


def test_drain_of_a_thousand_runs_costs_little_a_run(store):
    """In thousands of SQLite's own instructions: they are the same on every machine, whatever else it does."""
    runs = tuple(Submit(f"r{n}", "flow", "[]", f"t{n}", "seed") for n in range(1000))
    store.commit([SubmitMany(runs)])
    _, rows = store.commit([RegisterWorker("w", "host", 1, NEVER), Claim("w", "c", limit=1000)])
    thousands: list[None] = []
    store._db.set_progress_handler(lambda: thousands.append(None), 1000)
    (none,) = store.commit([Drain("w", "x", tuple(row.fence for row in rows))])
    kept = len(thousands)
    (every,) = store.commit([Drain("w", "x")])
    given_back = len(thousands) - kept
    assert (len(none), len(every)) == (0, 1000)
    assert kept < 60
    assert given_back < 600


def test_prune_looks_for_those_above_and_below_a_run_by_their_indexes(store):
    values = {
        "before": 1.0,
        "limit": 5,
        "dead": False,
        "last_ended": -1.0,
        "last_pk": 0,
        "now": 2.0,
    }
    plan = [row[3] for row in store._db.execute(f"EXPLAIN QUERY PLAN {sql.PRUNABLE}", values)]
    for seek in (
        "runs USING INDEX runs_ended (ended>? AND ended<?)",
        "above USING INDEX sqlite_autoindex_runs_1 (id=?)",
        "below USING INDEX runs_parent (parent=?)",
    ):
        assert any(line.startswith(f"SEARCH {seek}") for line in plan), plan
    assert not any(line.startswith(("SCAN runs", "SCAN above", "SCAN below")) for line in plan), (
        plan
    )


def test_prune_in_batches_skips_kept_dead_letters_once(store):
    with_letters(store, 600)
    prune = Prune(NEVER, 10)
    first, second, third = (counted(store, lambda: store.commit([prune])) for _ in range(3))
    assert second < first / 4
    assert third < first / 4
    assert store.commit([prune]) == [0]
    assert store.commit([Prune(NEVER, 1_000, dead=True)]) == [600]


def with_letters(store, count):
    """Add this many dead letters, and behind them thirty runs that are done."""
    store.commit(
        [SubmitMany([Submit(f"r{n}", "flow", "{}", "t", "00" * 16) for n in range(count + 30)])]
    )
    store._db.execute(
        "UPDATE runs SET status = iif(pk <= ?, 'dead', 'done'), ended = pk, ready = 0", (count,)
    )


def counted(store, do):
    """How many instructions of SQLite's it takes."""
    steps = 0

    def one() -> int:
        nonlocal steps
        steps += 1
        return 0

    store._db.set_progress_handler(one, 1)
    try:
        do()
    finally:
        store._db.set_progress_handler(None, 0)
    return steps


def test_queues_are_counted_without_a_look_at_runs_that_are_done(store):
    """In SQLite's own instructions: they are the same on every machine, whatever else it does."""
    store.commit([Submit("waiting", "flow", "{}", "t", "00" * 16, queue="other")])
    few = counted(store, store.queues)
    with_letters(store, 3_000)
    store._db.execute(
        "UPDATE runs SET created = created - 90, status = 'done', ended = created - 90"
        " WHERE id <> 'waiting'"
    )
    assert counted(store, store.queues) < few + 1_000
    (other,) = [row for row in store.queues() if row.name == "other"]
    assert other.queued == 1
