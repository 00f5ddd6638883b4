"""The page of the contest, made from its results and nothing else: what is not measured is not said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.contest.death import DEATH
from bench.contest.growth import GROWTH
from bench.contest.queue import QUEUE
from bench.contest.section import Section
from bench.contest.steps import STEPS

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


def stale(found: dict[str, Any], docs: Path) -> list[str]:
    """The files in this folder that are not what is made of these results: changed by hand, or made of others."""
    made = {"benchmarks.md": page(found), **plots(found)}
    there = {
        path.name: path.read_text()
        for path in docs.iterdir()
        if path.name in made or path.match("benchmarks*")
    }
    return sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))
