"""A SQL guard refuses older claims in the transaction that would have written."""

import asyncio
import sqlite3
import threading
from contextlib import closing

import psycopg
import pytest
from psycopg.rows import dict_row

from outlast import NotInRun, StaleFence, fencing
from outlast.fencing import guard_sql, guard_sql_async, sql_guard
from support.waiting import WAIT_SECONDS


@pytest.fixture(params=["sqlite", "postgres"])
def connect(request):
    """Opens another connection, by the driver's own defaults: a transaction begins with the first write."""
    if request.param == "sqlite":
        path = request.getfixturevalue("sqlite")
        return lambda: closing(sqlite3.connect(path, timeout=WAIT_SECONDS))
    url = request.getfixturevalue("postgres")
    return lambda: closing(psycopg.connect(url))


def write(db, note, resource="order-7", **options):
    try:
        guard_sql(db, resource, **options)
        db.execute(f"INSERT INTO notes VALUES ('{note}')")
        db.commit()
    except BaseException:
        db.rollback()
        raise


def notes(connect):
    with connect() as db:
        return [note for (note,) in db.execute("SELECT note FROM notes").fetchall()]


def test_older_claim_is_refused_once_a_younger_one_has_written(connect):
    with connect() as old, connect() as young:
        write(old, "a", fence=41)
        write(young, "b", fence=42)
        with pytest.raises(StaleFence) as refused:
            write(old, "late", fence=41)
    assert (refused.value.resource, refused.value.fence, refused.value.newest) == (
        "order-7",
        41,
        42,
    )
    assert notes(connect) == ["a", "b"]


def test_one_claim_can_write_repeatedly(connect):
    with connect() as db:
        for note in "abc":
            write(db, note, fence=7)
    assert notes(connect) == ["a", "b", "c"]


def test_resources_are_independent(connect):
    with connect() as db:
        write(db, "a", "order-7", fence=42)
        write(db, "b", "o'rder; -- %s ? :8 été", fence=1)
    assert notes(connect) == ["a", "b"]


def test_rolled_back_guard_refuses_no_writer(connect):
    with connect() as db:
        guard_sql(db, "order-7", fence=42)
        db.rollback()
        write(db, "a", fence=41)
    assert notes(connect) == ["a"]


def test_guard_accepts_a_cursor_and_leaves_it_open(connect):
    with connect() as db:
        cursor = db.cursor()
        guard_sql(cursor, "order-7", fence=42)
        cursor.execute("INSERT INTO notes VALUES ('a')")
        with pytest.raises(StaleFence):
            guard_sql(cursor, "order-7", fence=41)
        cursor.execute("SELECT note FROM notes")
        assert cursor.fetchall() == [("a",)]
        db.rollback()


def test_largest_fence_is_kept_exactly(connect):
    with connect() as db:
        write(db, "a", fence=fencing.FENCE_MAX)
        with pytest.raises(StaleFence) as refused:
            write(db, "b", fence=fencing.FENCE_MAX - 1)
    assert refused.value.newest == fencing.FENCE_MAX


def test_stale_writer_waits_for_the_younger_ones_commit_and_is_then_refused(connect):
    entered, outcome = threading.Event(), []

    def stale():
        with connect() as db:
            entered.set()
            try:
                write(db, "late", fence=41)
            except StaleFence as error:
                outcome.append(error.newest)
            else:
                outcome.append("wrote")

    with connect() as young:
        guard_sql(young, "order-7", fence=42)
        thread = threading.Thread(target=stale)
        thread.start()
        entered.wait(WAIT_SECONDS)
        thread.join(0.1)
        assert outcome == [], "the guard's lock holds until the commit"
        young.execute("INSERT INTO notes VALUES ('young')")
        young.commit()
        thread.join(WAIT_SECONDS)
    assert outcome == [42]
    assert notes(connect) == ["young"]


def test_young_writer_waits_for_an_older_one_that_is_about_to_commit(connect):
    """So what the older one wrote under a fence that was still the highest is there when the younger one begins."""
    seen = []

    def young():
        with connect() as db:
            guard_sql(db, "order-7", fence=42)
            seen.append(db.execute("SELECT count(*) FROM notes").fetchone()[0])
            db.commit()

    with connect() as old:
        guard_sql(old, "order-7", fence=41)
        thread = threading.Thread(target=young)
        thread.start()
        thread.join(0.1)
        assert seen == []
        old.execute("INSERT INTO notes VALUES ('a')")
        old.commit()
        thread.join(WAIT_SECONDS)
    assert seen == [1]


def test_guard_outside_a_transaction_is_an_error(sqlite, postgres):
    with closing(sqlite3.connect(sqlite, isolation_level=None)) as db:
        with pytest.raises(ValueError, match="outside a transaction"):
            guard_sql(db, "order-7", fence=42)
        db.execute("BEGIN")
        guard_sql(db, "order-7", fence=42)
        db.execute("COMMIT")
    with psycopg.connect(postgres, autocommit=True) as db:
        with pytest.raises(ValueError, match="outside a transaction"):
            guard_sql(db, "order-7", fence=42)
        with db.transaction():
            guard_sql(db, "order-7", fence=42)
            with db.cursor() as cursor:
                guard_sql(cursor, "order-7", fence=42)


def test_guard_works_with_any_row_factory(sqlite, postgres):
    db = sqlite3.connect(sqlite)
    db.row_factory = sqlite3.Row
    with closing(db), psycopg.connect(postgres, row_factory=dict_row) as pg:
        for each in (db, pg):
            guard_sql(each, "order-7", fence=42)
            with pytest.raises(StaleFence) as refused:
                guard_sql(each, "order-7", fence=41)
            assert refused.value.newest == 42


def test_async_connection_or_cursor_is_guarded_the_same_way(postgres):
    async def main():
        async with await psycopg.AsyncConnection.connect(postgres) as db:
            await fencing.create_table_async(db)
            await guard_sql_async(db, "order-7", fence=42)
            await db.execute("INSERT INTO notes VALUES ('a')")
            await db.commit()
            async with db.cursor() as cursor:
                with pytest.raises(StaleFence) as refused:
                    await guard_sql_async(cursor, "order-7", fence=41)
            assert refused.value.newest == 42
            with pytest.raises(TypeError, match="guard_sql_async"):
                guard_sql(db, "order-7", fence=43)
            await db.rollback()
            await db.set_autocommit(True)
            with pytest.raises(ValueError, match="outside a transaction"):
                await guard_sql_async(db, "order-7", fence=43)

    asyncio.run(main())


def test_async_guard_waits_for_the_younger_ones_commit(postgres):
    async def main():
        connect = psycopg.AsyncConnection.connect
        async with await connect(postgres) as young, await connect(postgres) as old:
            await guard_sql_async(young, "order-7", fence=42)
            stale = asyncio.create_task(guard_sql_async(old, "order-7", fence=41))
            done, _ = await asyncio.wait([stale], timeout=0.1)
            assert not done
            await young.commit()
            with pytest.raises(StaleFence):
                await stale

    asyncio.run(main())


@pytest.mark.parametrize("style", ["qmark", "named", "numeric"])
def test_bare_statement_works_in_the_styles_of_sqlite(sqlite, style):
    with closing(sqlite3.connect(sqlite)) as db:

        def execute(fence):
            guard = sql_guard("order-7", fence=fence, paramstyle=style)
            # sqlite3 takes `:1` as a name
            params = {"1": "order-7", "2": fence} if style == "numeric" else guard.params
            guard.check(db.execute(guard.sql, params).rowcount)

        execute(42)
        with pytest.raises(StaleFence) as refused:
            execute(41)
        assert refused.value.newest is None


@pytest.mark.parametrize(
    ("style", "cursor"),
    [
        ("pyformat", psycopg.Cursor),
        ("format", psycopg.Cursor),
        ("numeric_dollar", psycopg.RawCursor),
    ],
)
def test_bare_statement_works_in_the_styles_of_postgres(postgres, style, cursor):
    with psycopg.connect(postgres, cursor_factory=cursor) as db:

        def execute(fence):
            guard = sql_guard("order-7", fence=fence, paramstyle=style)
            guard.check(db.execute(guard.sql, guard.params).rowcount)

        execute(42)
        with pytest.raises(StaleFence):
            execute(41)
        guard_sql(db, "order-7", fence=43, paramstyle=style)


def test_unknown_driver_is_a_clear_error():
    class Strange:
        def cursor(self): ...

    with pytest.raises(TypeError, match="paramstyle="):
        guard_sql(Strange(), "order-7", fence=1)
    with pytest.raises(ValueError, match="not one of qmark"):
        sql_guard("order-7", fence=1, paramstyle="dollar")


def test_unknown_row_count_is_not_taken_for_success():
    with pytest.raises(ValueError, match="-1"):
        sql_guard("order-7", fence=1).check(-1)


@pytest.mark.parametrize("fence", [0, -1, True, 1.5, "42", fencing.FENCE_MAX + 1])
def test_invalid_fence_is_refused_before_any_write(fence):
    with pytest.raises(ValueError, match="a fence is"):
        sql_guard("order-7", fence=fence)


def test_guard_outside_a_run_needs_resource_and_fence():
    for options in ({}, {"fence": 1}, {"resource": "order-7"}):
        with pytest.raises(NotInRun, match="fence="):
            sql_guard(**options)
    with pytest.raises(ValueError, match="a non-empty string"):
        sql_guard("", fence=1)
