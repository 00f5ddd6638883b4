"""The README's table of deaths: five lines of the section on death, between two marks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from bench.contest.deathpage import CELLS, NONE, PATIENCE
from bench.contest.tables import table
from bench.spread import Spread

BEGIN, END = "<!-- deaths: written by make bench -->", "<!-- end of deaths -->"

COLUMNS = {
    "Outlast": "Outlast, runs (SQLite)",
    "DBOS, without its Conductor": "DBOS, another executor (Postgres)",
    "Celery, late acks": "Celery, chain (Redis)",
}
ROWS = {
    "fits": "SIGTERM; the job ends within the grace",
    "long": "SIGTERM; the job is longer than the grace, its steps are not",
    "single": "SIGTERM; one step is longer than the grace",
    "killed": "kill -9: out of memory, a crash",
    "silent": "frozen, and back later",
}


def in_readme(text: str, found: dict[str, Any]) -> str:
    """The README with the table of these results; as it is, if it has no place for one, or death was not measured."""
    if "death" not in found:
        return text
    block = f"{BEGIN}\n{_table(found['death']['found']['trials'])}\n{END}"
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: block, text, flags=re.DOTALL)


def _table(trials: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    rows = [
        [words, *[_cell(trials[scenario].get(name, [])) for name in COLUMNS.values()]]
        for scenario, words in ROWS.items()
        if scenario in trials
    ]
    return table(["ten jobs under way", *COLUMNS], rows).rstrip()


def _cell(trials: Sequence[dict[str, Any]]) -> str:
    good = [trial for trial in trials if "failed" not in trial]
    if not good:
        return "failed" if trials else NONE
    words = [_taken_over(good)]
    if all(trial["taken_last"] is not None for trial in good):
        again = Spread.of([trial["redone_seconds"] for trial in good]).median
        nothing = not any(trial["redone_seconds"] for trial in good)
        words.append("nothing done again" if nothing else f"{again:.1f} s done again")
    if twice := max(trial["done_twice"] for trial in good):
        words.append(f"{twice} stages finished twice")
    if any(trial["unfinished"] for trial in good):
        words.append(CELLS["unfinished"](good))
    return ", ".join(words)


def _taken_over(trials: Sequence[dict[str, Any]]) -> str:
    known = [trial["taken_last"] for trial in trials if trial["taken_last"] is not None]
    if len(known) == len(trials):
        return f"elsewhere after {Spread.of(known).median:.1f} s"
    return (
        CELLS["last"](trials)
        .replace("A finished all", "all ended in time")
        .replace(PATIENCE, f"{PATIENCE} elsewhere")
    )
