"""Fill a schema of Postgres with runs, and count what a call reads of them."""

import psycopg

from outlast.store.commands import (
    Submit,
)
from outlast.store.postgres.store import PostgresStore
from support.postgres_schemas import counted

COLUMNS = "pk, id, workflow, args, queue, priority, status, fence, seed, created, due, attempts_max, interruptions_max"
READ = "SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE schemaname = current_schema() AND relname = 'runs' AND indexrelname LIKE %s"


def owned(store: PostgresStore, id: str = "r"):
    return store.commit([Submit(id, "flow", "[]", "t", "s", worker="w")])[0].row


def entries_read(db: psycopg.Connection, store: PostgresStore, index: str = "%") -> int:
    """Of the indexes of runs, ever."""
    counted(store._writer)
    return int(db.execute(READ, (index,)).fetchone()[0])


def filled(db: psycopg.Connection, count: int, more: str = "", values: str = "") -> None:
    db.execute(
        f"INSERT INTO runs ({COLUMNS}, ended{more}) SELECT nextval('numbers'), 'x' || n, 'flow', '[]', 'default', 0, 'done', 0, 's', 1, 1, 5, 100,"
        f" n{values} FROM generate_series(1, {count}) n"
    )
