"""Do to a store what only tests need: end it as a crash does, and replay a run that has ended."""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING

from outlast.store.file.store import FileStore
from outlast.store.protocol import Store, whole_journal
from outlast.store.sqlite import statements as sql
from outlast.store.sqlite.store import SQLiteStore

if TYPE_CHECKING:
    from outlast.store.postgres.store import PostgresStore
    from outlast.store.redis.store import RedisStore

_REOPEN = (
    "UPDATE runs SET status = 'queued', ready = 1, ended = NULL, due = 0, undoing = ?, "
    "released = coalesce(released, ended), released_as = coalesce(released_as, status) "
    "WHERE id = ?"
)


def kill(store: Store) -> None:
    """Close a store as a killed process would: its locks are released, nothing is cleaned up.

    A store of another kind may have a method `die` that does this.
    """
    if isinstance(store, SQLiteStore):
        store._liveness.forget_in_child()
        # A file store that is closed in order also empties its log.
        SQLiteStore.close(store)
    elif _is(store, "postgres"):
        _kill_postgres(store)  # type: ignore[arg-type]
    elif _is(store, "redis"):
        _kill_redis(store)  # type: ignore[arg-type]
    else:
        store.die()  # type: ignore[attr-defined]


def reopen(store: Store, id: str) -> None:
    """Make an ended run claimable as it stands, so that its journal can be replayed once more.

    If the run was compensated, the replay is of its compensation. A store of another kind may have
    a method `reopen` that does this.
    """
    undoing = _last_verdict(store, id)
    if isinstance(store, FileStore):
        _reopen_file(store, id, undoing)
    elif isinstance(store, SQLiteStore):
        with store._writing:
            store._db.execute(_REOPEN, (undoing, id))
    elif _is(store, "postgres"):
        _reopen_postgres(store, id, undoing)  # type: ignore[arg-type]
    elif _is(store, "redis"):
        _reopen_redis(store, id, undoing)  # type: ignore[arg-type]
    else:
        store.reopen(id)  # type: ignore[attr-defined]


def _is(store: Store, backend: str) -> bool:
    """Return whether a store is of this backend. Its driver need not be installed."""
    return any(kind.__module__ == f"outlast.store.{backend}.store" for kind in type(store).__mro__)


def _last_verdict(store: Store, id: str) -> str | None:
    """Return how the run was to end after its compensation; None if it was not compensated."""
    row = store.run(id)
    assert row is not None, f"there is no run {id!r}"
    undoing: str | None = None
    for entry in whole_journal(store, row.pk):
        if entry.kind == "undoing":
            undoing = entry.value
        elif entry.kind == "retry" and not json.loads(entry.value or "{}").get("undoing"):
            undoing = None
    return undoing


def _reopen_file(store: FileStore, id: str, undoing: str | None) -> None:
    with store._writing:
        store._repair_if_needed()
        store._changes.clear()
        store._db.execute(sql.BEGIN)
        store._db.execute(_REOPEN, (undoing, id))
        store._before_commit(store.now())
        store._db.execute(sql.COMMIT)
        store._finish()


def _kill_postgres(store: PostgresStore) -> None:
    store._listener.close(farewell=False)
    store.close()


def _reopen_postgres(store: PostgresStore, id: str, undoing: str | None) -> None:
    statement = _REOPEN.replace("UPDATE runs", "UPDATE {s}.runs").replace("?", "%s")
    store._read(statement, (undoing, id))


def _kill_redis(store: RedisStore) -> None:
    with store._writing, store._reading:
        store._opened = False
    store._drop()


def _reopen_redis(store: RedisStore, id: str, undoing: str | None) -> None:
    from outlast.store.redis import scripts
    from outlast.store.redis.dispatch import alone

    lua = (resources.files("outlast.testing") / "reopen.lua").read_text(encoding="utf-8")
    command = {"id": id} if undoing is None else {"id": id, "undoing": undoing}
    with store._writing:
        store._check_open()
        header = json.dumps(store._commit_header())
        script = scripts.commit_script(extra=lua)
        prefix = store._address.prefix
        answer = store._writer.run(script, prefix, header, *alone("Reopen", command))
    assert answer[0] == "done", answer
