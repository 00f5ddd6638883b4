"""`outlast doctor`: what is in force here, where it comes from, and what is wrong with it."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outlast.cli.options import JsonOption, StoreOption
from outlast.cli.output import answering, console, document, say
from outlast.cli.text import safe
from outlast.settings.load import RESERVES, Loaded, load
from outlast.settings.masks import ADDRESSES, MASK, SECRET, masked
from outlast.settings.origin import Kind
from outlast.store.address import store_at

if TYPE_CHECKING:
    from rich.text import Text


def doctor(
    *,
    settings: Annotated[
        bool,
        typer.Option("--settings", help="Show every setting in force, and where it came from."),
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the settings of this environment and folder, as a program that is started here would get them.

    What is unknown or impossible is told, and ends with 2. Nothing is opened. Secrets, and passwords in addresses, are not
    shown. With --settings everything in force is listed.
    """
    with answering(as_json):
        loaded = load({"store": store})
        if settings and not as_json:
            for line in _lines(loaded):
                console().print(line)
        store_at(loaded.address(), heartbeat=loaded.settings.heartbeat)  # an address that a store answers to
        if as_json:
            document(_document(loaded) if settings else {"ok": True, "checked": ["settings"]})
        if not settings:
            say("the settings are in order (--settings lists them). Other things are not checked yet.")


def value_shown(name: str, value: Any) -> Any:
    """For programs: the value, without what is secret in it."""
    if name in SECRET:
        return MASK if value else ""
    return masked(value) if name in ADDRESSES else value


def _document(loaded: Loaded) -> dict[str, Any]:
    return {
        "settings": {
            field.name: {
                "value": value_shown(field.name, getattr(loaded.settings, field.name)),
                "from": loaded.origins[field.name].kind.value,
                "name": loaded.origins[field.name].name or None,
                "place": loaded.origins[field.name].place or None,
            }
            for field in fields(loaded.settings)
        },
        "env_file": None if loaded.env_file is None else str(loaded.env_file),
        "secrets_dir": None if loaded.secrets_dir is None else str(loaded.secrets_dir),
    }


def _lines(loaded: Loaded) -> list[Text]:
    from outlast.cli.grid import Cell, Column, grid

    rows = []
    for field in fields(loaded.settings):
        value = value_shown(field.name, getattr(loaded.settings, field.name))
        origin = loaded.origins[field.name]
        style = "" if origin.kind is Kind.DEFAULT else "bold"
        rows.append(
            [Cell(field.name), Cell(safe(_text(value)), style), Cell(safe(_from(loaded, field.name)), style)]
        )
    return grid([Column("SETTING"), Column("VALUE"), Column("FROM")], rows)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1e6 else str(value) or "-"


def _from(loaded: Loaded, name: str) -> str:
    """In the words of who set it; of a reserve that a short grace has cut, that too."""
    origin = loaded.origins[name]
    if origin.kind is Kind.KEYWORD:
        return "--store"
    if (
        origin.kind is Kind.DEFAULT
        and name in RESERVES
        and getattr(loaded.settings, name) == loaded.settings.grace / 4
    ):
        return "default, a quarter of grace at most"
    return str(origin)
