"""Check the arguments of `outlast chaos` that need more than typer can do.

Each function raises typer.BadParameter for an argument that cannot be used.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from outlast.cli.text import one_line, safe

if TYPE_CHECKING:
    from outlast.tools.chaos.work import Work


def parse_faults(faults: str | None, server: str | None) -> Any:
    """Return the kinds of faults to inject."""
    from outlast.tools.chaos.plan import KINDS, parse_kinds

    if faults is None:
        return tuple(kind for kind in KINDS if kind != "server" or server is not None)
    try:
        kinds = parse_kinds(faults)
    except ValueError as error:
        raise typer.BadParameter(safe(str(error)), param_hint="--faults") from None
    if "server" in kinds and server is None:
        raise typer.BadParameter(
            "chaos kills only a server that it started: give --server too.", param_hint="--faults"
        )
    return kinds


def find_work(
    seed: int, modules: list[str] | None, submit: list[str] | None, args: list[str] | None
) -> tuple[Work, list[str]]:
    """Return the work to submit and the modules of the workers, which are empty for chaos's own."""
    from outlast.cli.worker_target import worker_target
    from outlast.tools.chaos.work import Demo, Work, arguments

    if not modules:
        if submit or args:
            raise typer.BadParameter(
                "--submit names a workflow of a MODULE: give the MODULE too.", param_hint="--submit"
            )
        return Demo(seed), []
    if len(args or ()) > len(submit or ()):
        raise typer.BadParameter(
            "each --args belongs to a --submit, in order, and there are more of them.",
            param_hint="--args",
        )
    # Importing the program may print something.
    with redirect_stdout(sys.stderr):
        flows = {flow.name: flow for flow in worker_target(modules).workflows}
    there = ", ".join(safe(one) for one in sorted(flows)) or "none"
    if not submit:
        raise typer.BadParameter(
            f"name a workflow to submit. Available: {there}.", param_hint="--submit"
        )
    calls = []
    for name, text in pair_calls(submit, args):
        if name not in flows:
            raise typer.BadParameter(
                f"there is no workflow {safe(name)!r}. Available: {there}.", param_hint="--submit"
            )
        try:
            calls.append((flows[name], arguments(text)))
        except ValueError as error:
            raise typer.BadParameter(
                f"{safe(text)!r}: {one_line(str(error))}.", param_hint="--args"
            ) from None
    work = Work(seed, calls)
    try:
        for number in range(len(calls)):
            work.piece(number)
    except Exception as error:
        raise typer.BadParameter(
            one_line(f"{type(error).__name__}: {error}"), param_hint="--args"
        ) from None
    return work, modules


def pair_calls(submit: list[str] | None, args: list[str] | None) -> Iterator[tuple[str, str]]:
    """Pair each workflow to submit with its arguments."""
    return zip_longest(submit or (), args or (), fillvalue="[]")


def report_folder(given: Path | None) -> Path:
    """Return a writable folder without a report: the given one, or a new one."""
    if given is None:
        return Path(tempfile.mkdtemp(prefix="outlast-chaos-"))
    try:
        given.mkdir(parents=True, exist_ok=True)
        empty = not any(given.iterdir())
        if empty:
            tempfile.TemporaryFile(dir=given).close()
    except OSError as error:
        raise typer.BadParameter(
            f"{safe(str(given))} cannot be the folder of a report: {one_line(str(error))}.",
            param_hint="--report",
        ) from None
    if not empty:
        raise typer.BadParameter(
            f"{safe(str(given))} is not empty: a report needs a folder of its own.",
            param_hint="--report",
        )
    return given.absolute()
