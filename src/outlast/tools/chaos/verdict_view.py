"""Print the verdict of a trial for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from outlast.cli.output import console
from outlast.cli.text import one_line, span

if TYPE_CHECKING:
    from outlast.tools.chaos.verdict import Verdict

COLOURS = {"ok": "green", "violated": "red", "not known": "yellow"}


def print_verdict(verdict: Verdict) -> None:
    """Print each check with its evidence, then the verdict."""
    from rich.text import Text

    out = console()
    for check in verdict.checks:
        line = Text()
        line.append(f"{check.outcome:<11}", style=COLOURS[check.outcome])
        line.append(f"{check.name:<25}", style="bold")
        line.append(f"{check.looked_at} checked{_more(check.facts)}")
        out.print(line)
        for text in check.evidence:
            out.print(Text(f"             {one_line(text)}", style=COLOURS["violated"]))
        if check.violations > len(check.evidence):
            out.print(Text(f"             … and {check.violations - len(check.evidence)} more"))
        for text in check.unknown:
            out.print(Text(f"             not known: {one_line(text)}", style=COLOURS["not known"]))
    looked = ", ".join(
        f"{count} {name.replace('_', ' ')}" for name, count in verdict.looked_at.items()
    )
    out.print(Text(f"checked {looked}"))
    out.print(Text(_last_line(verdict), style=f"bold {COLOURS[verdict.outcome]}"))


def _last_line(verdict: Verdict) -> str:
    """Return the verdict with the checks behind it. `not known` alone would read as a failure."""
    of = ", ".join(check.name for check in verdict.checks if check.outcome == verdict.outcome)
    if verdict.outcome == "ok":
        return "verdict: ok"
    return (
        f"verdict: violated ({of})"
        if verdict.violated
        else f"verdict: no violations found. Could not be checked in full: {of}"
    )


def _more(facts: dict[str, Any]) -> str:
    visible = [
        f"{name.replace('_', ' ')}: {value:g}"
        for name, value in facts.items()
        if isinstance(value, (int, float))
    ]
    return f" ({', '.join(visible)})" if visible else ""


def print_summary(found: dict[str, Any]) -> None:
    """Print what a trial did, in one line."""
    faults = found["faults"]
    kinds = ", ".join(f"{count} {kind}" for kind, count in faults["by_kind"].items()) or "none"
    struck = sum(faults["processes"].values())
    typer.echo(
        f"seed {found['seed']}: {faults['injected']} faults ({kinds}) on {struck} processes in "
        f"{span(found['seconds'])}; {found['work']['acknowledged']} runs and items submitted"
    )
