"""`outlast migrate`: bring a store's schema to the version of this release."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from outlast.cli.options import JsonOption, StoreOnlyOption
from outlast.cli.output import answering, document, print_message
from outlast.cli.stores import patiently, shared
from outlast.errors import SettingsError

if TYPE_CHECKING:
    from outlast.store.protocol import Store


def migrate(
    sql: Annotated[
        bool,
        typer.Option(
            "--sql",
            help="Print the statements for psql instead, for a user who may execute them. Connects "
            "to nothing.",
        ),
    ] = False,
    store: StoreOnlyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Upgrade a store's schema to the installed version of Outlast.

    Workers may keep running meanwhile, and two migrations at once are harmless. A worker or a
    program that opens the store migrates it too, unless a Postgres address says migrate=no.
    """
    with answering(as_json):
        found = shared(store)
        if sql:
            script = _script(found)
            if as_json:
                document({"sql": script})
            else:
                typer.echo(script)
            return
        (before, after), place = patiently(found, found.versions), found.place
        _migrate(found)
        if as_json:
            document({"store": place, "before": before, "version": after})
        elif before == 0:
            print_message(f"{place}: created, with schema version {after}.")
        elif before == after:
            print_message(f"{place}: its schema is already version {after}.")
        else:
            print_message(f"{place}: its schema was migrated from version {before} to {after}.")


def _script(store: Store) -> str:
    script: Callable[[], str] | None = getattr(store, "script", None)
    if script is None:
        raise SettingsError(
            "--sql is for Postgres: any other store is migrated where it is opened."
        )
    return script()


def _migrate(store: Store) -> None:
    """Migrate the store, which opening does unless its address forbids it."""
    ask: Callable[[], None] = getattr(store, "migrate", store.open)
    try:
        patiently(store, ask)
    finally:
        store.close()
