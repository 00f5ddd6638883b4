"""Make the pages of the contest from its results, and from nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.contest.adapters import ADAPTERS
from bench.contest.death import DEATH
from bench.contest.growth import GROWTH
from bench.contest.queue import QUEUE
from bench.contest.section import Section
from bench.contest.steps import STEPS
from bench.contest.summary import in_readme
from bench.contest.tables import table

SECTIONS: tuple[Section, ...] = (STEPS, QUEUE, DEATH, GROWTH, ADAPTERS)

HEAD = """# Benchmarks

These pages compare Outlast with the systems you might otherwise choose. All were measured on one machine, in the same rounds, on the same servers and the same disk.

The machine is shared and noisy. **Trust the ratios, not the absolute figures.**

"""

FOOT = """
To measure on your own machine, run `make bench`. It installs each peer from PyPI into its own environment, measures all of them in turn, and writes these pages.
To measure only your own store, run `outlast bench`: [measuring a store](measuring.md).
"""


def overview(found: dict[str, Any]) -> str:
    """Return the first page: what each section answers, and how its goals came out."""
    rows = []
    missed = []
    for section in SECTIONS:
        if section.name in found:
            outcomes = section.outcomes(found[section.name]["found"])
            met = sum(outcome.verdict == "met" for outcome in outcomes)
            rows.append(
                [
                    f"[{section.title}](benchmarks-{section.name}.md)",
                    section.question,
                    f"{met} of {len(outcomes)}" if outcomes else "no goals",
                ]
            )
            missed += [
                f"- {outcome.goal}. Measured: {outcome.measured}"
                for outcome in outcomes
                if outcome.verdict != "met"
            ]
    parts = [HEAD.strip(), table(["page", "question", "goals met"], rows).rstrip()]
    if missed:
        parts.append("Goals that were missed or not measured:\n\n" + "\n".join(missed))
    return "\n\n".join([*parts, FOOT.strip()]) + "\n"


def pages(found: dict[str, Any]) -> dict[str, str]:
    """Return the overview and a page for each section that was measured, by file name."""
    made = {"benchmarks.md": overview(found)}
    for section in SECTIONS:
        if section.name in found:
            measured = found[section.name]
            text = section.tables(measured["found"]).rstrip()
            rounds = "One round" if measured["rounds"] == 1 else f"{measured['rounds']} rounds"
            made[f"benchmarks-{section.name}.md"] = (
                f"{text}\n\n*{rounds}, {measured['when']}. {measured['place']}.*\n\n"
                "*Written by `make bench`, which is `python -m bench.contest --write`. Do not edit.*\n"
            )
    return made


def plots(found: dict[str, Any]) -> dict[str, str]:
    drawn: dict[str, str] = {}
    for section in SECTIONS:
        if section.name in found:
            drawn |= section.plots(found[section.name]["found"])
    return drawn


def files(found: dict[str, Any], root: Path) -> dict[str, str]:
    """Return the pages, their pictures and the README with its table, by path in the repository."""
    made = {f"docs/{name}": text for name, text in pages(found).items()}
    made |= {f"docs/{name}": svg for name, svg in plots(found).items()}
    return made | {"README.md": in_readme((root / "README.md").read_text(), found)}


def write(found: dict[str, Any], root: Path) -> None:
    for name, text in files(found, root).items():
        (root / name).write_text(text)


def stale(found: dict[str, Any], root: Path) -> list[str]:
    """Return the files that differ from what these results make: edited by hand, or outdated."""
    made = files(found, root)
    paths = {*[root / name for name in made], *(root / "docs").glob("benchmarks*")}
    there = {path.relative_to(root).as_posix(): path.read_text() for path in paths if path.exists()}
    return sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))
