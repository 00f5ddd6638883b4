"""`outlast explain`: explain an error, alert, exit code, reason or check. Opens no store."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outlast.cli.options import JsonOption
from outlast.cli.output import answering, document, print_message, write_whole
from outlast.cli.text import safe
from outlast.errors import OutlastError

if TYPE_CHECKING:
    from outlast.explain.texts import Entry

WIDTH_MAX = 100
WIDTH_MIN = 40
_QUOTED = re.compile(r"`[^`]{1,60}`")
"""Matches text to be typed, which is not wrapped."""
_FIRM = "\u00a0"
"""A space at which no line breaks."""
_HEADS = {
    "error": "errors",
    "parked": "reasons of parked runs",
    "alert": "alerts",
    "exit code": "exit codes",
    "check": "checks of the doctor",
}


def explain(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Backpressure, OutlastDeadLetters, 75, stuck, grace, …"
        ),
    ] = None,
    *,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write",
            metavar="FOLDER",
            help="Write the pages of the documentation into this folder instead.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Explain an error, alert, exit code, parking reason or check.

    Each explanation says what it means and what to do. Without a name, list them all.
    """
    with answering(as_json):
        if write is not None:
            _write(write, name, as_json)
        elif name is None:
            _list(as_json)
        else:
            _explain(name, as_json)


def _explain(name: str, as_json: bool) -> None:
    from outlast.explain.texts import close, find

    entry = find(name)
    if entry is None:
        like = close(name)
        there = f"Did you mean {', '.join(like)}?" if like else "`outlast explain` lists all names."
        raise typer.BadParameter(f"no entry is named {safe(name)}. {there}", param_hint="NAME")
    if as_json:
        document(_document(entry))
        return
    _print([entry.title, "", *_lines(f"{entry.summary}\n\n{entry.body}")])


def _list(as_json: bool) -> None:
    from outlast.explain.texts import FILES, entries

    if as_json:
        document(
            [{"name": one.name, "kind": one.kind, "summary": one.summary} for one in entries()]
        )
        return
    width = max(len(one.name) for one in entries())
    kinds = [(kind, group) for kind in FILES for group in _groups(kind)]
    for kind, group in kinds:
        those = [one for one in entries() if (one.kind, one.group) == (kind, group)]
        listed = [line for one in those for line in _listed(one, width)]
        head = f"{_HEADS[kind]}: {group.lower()}" if group else f"{_HEADS[kind]}:"
        _print([head, *listed, ""])


def _groups(kind: str) -> list[str]:
    from outlast.explain.texts import entries

    return list(dict.fromkeys(one.group for one in entries() if one.kind == kind))


def _listed(entry: Entry, width: int) -> list[str]:
    """Return a name and its summary, which is wrapped on a terminal. A pipe gets one line."""
    head = f"  {entry.name:<{width}}  "
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    if columns < len(head) + WIDTH_MIN:
        return [head + entry.summary]
    return textwrap.wrap(
        entry.summary, columns, initial_indent=head, subsequent_indent=" " * len(head)
    )


def _document(entry: Entry) -> dict[str, object]:
    return {
        "name": entry.name,
        "kind": entry.kind,
        "summary": entry.summary,
        "parts": entry.parts,
        "page": entry.page,
    }


def _lines(text: str) -> Iterator[str]:
    """Yield Markdown for a terminal: paragraphs are wrapped, indented blocks are not."""
    width = max(WIDTH_MIN, min(WIDTH_MAX, shutil.get_terminal_size((WIDTH_MAX, 24)).columns))
    for line in text.replace("**", "").splitlines():
        if line.startswith("    ") or not line:
            yield line
            continue
        hang = "  " if line.startswith("- ") else ""
        whole = _QUOTED.sub(lambda quoted: quoted[0].replace(" ", _FIRM), line)
        for part in textwrap.wrap(
            whole, width, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False
        ):
            yield part.replace(_FIRM, " ")


def _print(lines: Iterable[str]) -> None:
    """Print the lines in characters that every terminal has."""
    sys.stdout.write("".join(f"{line}\n" for line in lines).replace("…", "..."))


def _write(folder: Path, name: str | None, as_json: bool) -> None:
    from outlast.explain.pages import PAGES

    if name is not None:
        raise typer.BadParameter(
            "--write writes all entries, so it takes no name.", param_hint="NAME"
        )
    texts = {file: page() for file, page in PAGES.items()}
    for file, text in texts.items():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / file, text)
        except OSError as error:
            raise OutlastError(
                f"{folder / file} cannot be written: {error.strerror or error}."
            ) from None
    if as_json:
        document({"written": [str(folder / file) for file in texts]})
    else:
        print_message(f"{folder}: {', '.join(texts)}.")
