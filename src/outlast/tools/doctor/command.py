"""`outlast doctor`: find what goes wrong in practice and show the settings in force.

Findings come with a fix, settings with their origin.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outlast.cli.exit_codes import FAILED
from outlast.cli.options import JsonOption, RolloutBudget, StoreOnlyOption
from outlast.cli.output import answering, console, document, print_message, where_explained
from outlast.cli.text import one_line, safe
from outlast.errors import SettingsError
from outlast.settings.load import RESERVES, Loaded, load
from outlast.settings.origin import Kind
from outlast.settings.redaction import ADDRESSES, MASK, SECRET, masked
from outlast.settings.variables import NO_FILES
from outlast.store.address import store_at
from outlast.tools.doctor.finding import Finding, Level, named

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

ROOM_MIN = 30
"""The least room beside a check's name, in characters, for wrapping a finding on a terminal."""


def doctor(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="Files to check: Python files with workflows, and manifests, as with --manifest.",
        ),
    ] = None,
    *,
    settings: Annotated[
        bool,
        typer.Option(
            "--settings", help="Only show every setting in force, and where it came from."
        ),
    ] = False,
    manifest: Annotated[
        list[Path] | None,
        typer.Option(
            "--manifest",
            metavar="FILE",
            help="Check this file instead: Kubernetes YAML, a compose file, a .service unit or a "
            "Dockerfile. A folder stands for its files, - for standard input. May be repeated.",
        ),
    ] = None,
    rollout_budget: RolloutBudget = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings too.")] = False,
    store: StoreOnlyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look for common problems and say how to fix each.

    It checks grace periods, signals that do not arrive, file systems, what a server can lose, and
    runs that no worker claims. With a Python file, it lists calls in workflows that may return
    something else when a run is replayed.

    Exits with 1 if something is wrong, and with 2 if a setting is unknown or impossible. It only
    reads the store and creates none. With --manifest, for a pipeline, it reads nothing but
    the files. Secrets, and passwords in addresses, are not shown.
    """
    manifest = [*(manifest or ()), *(files or ())]
    with answering(as_json):
        if settings and manifest:
            raise SettingsError(
                "--settings shows this environment, --manifest checks files: pass only one."
            )
        findings = (
            _of_files(manifest, rollout_budget)
            if manifest
            else _of_here(store, as_json, settings=settings)
        )
    if findings is None:
        return
    if as_json:
        document(
            {
                "ok": not _wrong(findings, strict),
                "findings": [_document_of(one) for one in findings],
            }
        )
    else:
        _show(findings)
    if _wrong(findings, strict):
        raise typer.Exit(FAILED)


def _of_files(files: list[Path], budget: float | None) -> list[Finding]:
    from outlast.tools.doctor.facts import Facts
    from outlast.tools.doctor.manifests.files import expanded, read
    from outlast.tools.doctor.registry import IN_MANIFESTS, examine
    from outlast.tools.doctor.workflows import determinism

    code = [file for file in files if file.suffix == ".py"]
    found = [finding for file in code for finding in named("determinism", determinism(file))]
    files = [file for file in files if file.suffix != ".py"]
    if not files:
        return found
    taken, problems = expanded(files)
    workloads = tuple(read(*taken))
    loaded = load({"store": "memory:"}, NO_FILES)
    facts = Facts(loaded, "", workloads=workloads, rollout_budget=budget)
    return [*found, *named("files", problems), *examine(facts, IN_MANIFESTS)]


def _of_here(store: str | None, as_json: bool, *, settings: bool) -> list[Finding] | None:
    loaded = load({"store": store})
    if settings:
        if as_json:
            document(_document(loaded))
        else:
            for line in _lines(loaded):
                console().print(line)
        # Raises if no store accepts the address.
        store_at(loaded.address(), heartbeat=loaded.settings.heartbeat)
        return None
    from outlast.tools.doctor.facts import gather
    from outlast.tools.doctor.registry import HERE, examine

    # Whatever the store would warn about is a finding.
    logging.getLogger("outlast.store").addHandler(logging.NullHandler())
    return examine(gather(loaded), HERE)


def _wrong(findings: Iterable[Finding], strict: bool) -> bool:
    levels = {Level.ERROR, Level.WARNING} if strict else {Level.ERROR}
    return any(one.level in levels for one in findings)


def _document_of(finding: Finding) -> dict[str, str]:
    return {
        "check": finding.check,
        "level": finding.level.value,
        "what": finding.what,
        "fix": finding.fix,
        "where": finding.where,
    }


_STYLES = {Level.OK: "green", Level.NOTE: "cyan", Level.WARNING: "yellow", Level.ERROR: "bold red"}


def _show(findings: list[Finding]) -> None:
    from rich.text import Text

    out = console()
    width = max((len(one.check) for one in findings), default=0)
    for one in findings:
        what = _with_place(Text(one_line(one.what)), one_line(one.where), out, 10 + width)
        level = (f"{one.level.value:<8}", _STYLES[one.level])
        out.print(Text.assemble(level, f"{one.check:<{width}}  ", what))
        if one.fix:
            fix = _broken(Text(one_line(one.fix)), out, 13 + width)
            out.print(Text.assemble(f"{'':<{8 + width}}  -> ", fix))
    print_message(f"{_counted(findings, Level.ERROR)}, {_counted(findings, Level.WARNING)}.")
    for name in dict.fromkeys(
        one.check for one in findings if one.level in (Level.ERROR, Level.WARNING)
    ):
        print_message(where_explained(name))


def _with_place(what: Text, place: str, out: Console, indent: int) -> Text:
    """Return a finding and where it applies, on a line of its own if a terminal is too narrow."""
    from rich.text import Text

    if not place:
        return _broken(what, out, indent)
    where = Text(f"[{place}]", "dim")
    line = Text("  ").join([what, where])
    if not out.is_terminal or line.cell_len <= out.width - indent:
        return line
    parts = [_broken(what, out, indent), _broken(where, out, indent)]
    return Text(f"\n{'':<{indent}}").join(parts)


def _broken(text: Text, out: Console, indent: int) -> Text:
    """Wrap the text on a terminal. In a pipe one finding stays one line."""
    from rich.text import Text

    room = out.width - indent
    if not out.is_terminal or room < ROOM_MIN:
        return text
    lines = text.wrap(out, room)
    for line in lines:
        line.rstrip()
    return Text(f"\n{'':<{indent}}").join(lines)


def _counted(findings: list[Finding], level: Level) -> str:
    count = sum(one.level is level for one in findings)
    return f"{count} {level.value}{'' if count == 1 else 's'}"


def displayed_value(name: str, value: Any) -> Any:
    """Return a setting's value with secrets masked."""
    if name in SECRET:
        return MASK if value else ""
    return masked(value) if name in ADDRESSES else value


def _document(loaded: Loaded) -> dict[str, Any]:
    return {
        "settings": {
            field.name: {
                "value": displayed_value(field.name, getattr(loaded.settings, field.name)),
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
        value = displayed_value(field.name, getattr(loaded.settings, field.name))
        origin = loaded.origins[field.name]
        style = "" if origin.kind is Kind.DEFAULT else "bold"
        rows.append(
            [
                Cell(field.name),
                Cell(safe(_text(value)), style),
                Cell(safe(_from(loaded, field.name)), style),
            ]
        )
    return grid([Column("SETTING"), Column("VALUE"), Column("FROM")], rows)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and abs(value) < 1e6 else str(value) or "-"


def _from(loaded: Loaded, name: str) -> str:
    """Return where a setting comes from, and whether a short grace has reduced a reserve."""
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
