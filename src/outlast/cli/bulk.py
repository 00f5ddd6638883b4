"""Apply a command to one run or several, in order.

Every outcome is reported, and a failure does not stop the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import typer

from outlast.cli.exit_codes import code_of
from outlast.cli.options import checked_id
from outlast.cli.output import (
    answering,
    document,
    error_document,
    error_message,
    print_message,
    where_explained,
)
from outlast.cli.server import App
from outlast.cli.stores import acting, fleet_in
from outlast.errors import OutlastError, StoreError
from outlast.store.fleet import Fleet
from outlast.store.protocol import Store
from outlast.store.rows import RunRow


class Acted(NamedTuple):
    """Hold the state of a run after the command."""

    row: RunRow
    fleet: Fleet


class Deed(NamedTuple):
    """Define what a command does to a run and how it reports the outcome."""

    act: Callable[[App, Store, str], Awaitable[RunRow]]
    document: Callable[[Acted], dict[str, Any]]
    sentence: Callable[[Acted], str]


def do_to(ids: list[str], deed: Deed, store: str | None, as_json: bool) -> None:
    """Apply the deed to every run. Exits with the code of the first failure.

    With --json, one run prints its document, and several print their documents under `runs`.
    """
    with answering(as_json):
        names = [checked_id(id) for id in dict.fromkeys(ids)]
        if len(names) == 1:
            _do_to_one(names[0], deed, store, as_json)
        else:
            _do_to_several(names, deed, store, as_json)


def _do_to_one(id: str, deed: Deed, store: str | None, as_json: bool) -> None:
    async def action(app: App, opened: Store) -> Acted:
        return Acted(await deed.act(app, opened, id), fleet_in(opened))

    acted = acting(store, action)
    if as_json:
        document(deed.document(acted))
    else:
        print_message(deed.sentence(acted))


def _do_to_several(names: list[str], deed: Deed, store: str | None, as_json: bool) -> None:
    documents: list[dict[str, Any]] = []
    failures: list[OutlastError] = []

    async def action(app: App, opened: Store) -> None:
        for id in names:
            try:
                if failures and isinstance(failures[-1], StoreError):
                    # The store would not take this one either.
                    raise failures[-1]
                acted = Acted(await deed.act(app, opened, id), fleet_in(opened))
            except OutlastError as error:
                failures.append(error)
                documents.append({"id": id, **error_document(error)})
                print_message(f"{id}: {error_message(error)}")
            else:
                documents.append({"id": id, **deed.document(acted)})
                if not as_json:
                    print_message(deed.sentence(acted))

    acting(store, action)
    if as_json:
        document({"runs": documents})
    if failures:
        for name in dict.fromkeys(error.explained_as for error in failures):
            print_message(where_explained(name))
        raise typer.Exit(code_of(failures[0]))
