"""`outlast migrate`: the schema of a store, brought to this release's version."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outlast.cli.options import JsonOption, StoreOption
from outlast.cli.output import answering, document, say
from outlast.cli.stores import existing
from outlast.errors import SettingsError
from outlast.store.sqlite.store import SQLiteStore

if TYPE_CHECKING:
    from outlast.store.protocol import Store


def migrate(
    sql: Annotated[
        bool,
        typer.Option(
            "--sql",
            help="Print the statements for psql instead, for one who may execute them. Nothing is connected to.",
        ),
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a store's schema to the version of this Outlast. Workers may go on meanwhile, and two at once are harmless.

    Opening a store does that too, unless a Postgres address says migrate=no.
    """
    with answering(as_json):
        found = existing(store)
        if sql:
            script = _script(found)
            if as_json:
                document({"sql": script})
            else:
                typer.echo(script)
            return
        before = _version(found)
        _migrate(found)
        after = _version(found)
        place = getattr(found, "place", "the store")
        if as_json:
            document({"store": place, "before": before, "version": after})
        elif after is None:
            say(f"{place}: it has no schema that could be migrated.")
        elif before == after:
            say(f"{place}: its schema is version {after}, as this Outlast needs it.")
        else:
            say(f"{place}: its schema was version {before}, and is version {after} now.")


def _script(store: Store) -> str:
    if not _is_postgres(store):
        raise SettingsError("--sql is for Postgres: any other store is migrated where it is opened.")
    from outlast.store.postgres.migrate import script

    postgres: Any = store
    return script(postgres.address.schema)


def _version(store: Store) -> int | None:
    """Of what is there; None for a store that has none."""
    if isinstance(store, SQLiteStore) and store.path is not None:
        with closing(sqlite3.connect(store.path)) as db:
            return int(db.execute("PRAGMA user_version").fetchone()[0])
    if _is_postgres(store):
        postgres: Any = store
        there, _ = postgres.versions()
        return int(there)
    return None


def _migrate(store: Store) -> None:
    if _is_postgres(store):
        postgres: Any = store
        postgres.migrate()
        return
    store.open()
    store.close()


def _is_postgres(store: Store) -> bool:
    """Without importing psycopg, which need not be there."""
    return type(store).__name__ == "PostgresStore"
