"""The page of the contest, made from its results and nothing else: what is not measured is not said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.contest.death import DEATH
from bench.contest.growth import GROWTH
from bench.contest.queue import QUEUE
from bench.contest.section import Section
from bench.contest.steps import STEPS
from bench.contest.summary import in_readme

SECTIONS: tuple[Section, ...] = (STEPS, QUEUE, DEATH, GROWTH)

HEAD = """# Benchmarks

*Written by `make bench`, which is `python -m bench.contest --write`. Do not edit.*

Outlast beside what one would otherwise pick, on one machine, in the same rounds, on the same servers and the same disk. These machines are shared and noisy: **ratios hold, figures do not**. Measure your own: `make bench`
installs each peer from PyPI into an environment of its own, measures all of them in turn and writes this page. For your own store: `outlast bench --store URL` ([commands](commands.md)).
"""


def page(found: dict[str, Any]) -> str:
    parts = [HEAD]
    for section in SECTIONS:
        if section.name in found:
            measured = found[section.name]
            parts.append(section.tables(measured["found"]).rstrip() + "\n")
            rounds = "One round" if measured["rounds"] == 1 else f"{measured['rounds']} rounds"
            parts.append(f"*{rounds}, {measured['when']}. {measured['place']}.*\n")
    return "\n".join(parts)


def plots(found: dict[str, Any]) -> dict[str, str]:
    drawn: dict[str, str] = {}
    for section in SECTIONS:
        if section.name in found:
            drawn |= section.plots(found[section.name]["found"])
    return drawn


def files(found: dict[str, Any], root: Path) -> dict[str, str]:
    """What is made of these results, by path in the repository: the page, its pictures, and the README with its table."""
    made = {"docs/benchmarks.md": page(found)}
    made |= {f"docs/{name}": svg for name, svg in plots(found).items()}
    return made | {"README.md": in_readme((root / "README.md").read_text(), found)}


def write(found: dict[str, Any], root: Path) -> None:
    for name, text in files(found, root).items():
        (root / name).write_text(text)


def stale(found: dict[str, Any], root: Path) -> list[str]:
    """The files that are not what is made of these results: changed by hand, or made of others."""
    made = files(found, root)
    paths = {*[root / name for name in made], *(root / "docs").glob("benchmarks*")}
    there = {path.relative_to(root).as_posix(): path.read_text() for path in paths if path.exists()}
    return sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))
