"""Write the README's table of deaths: five rows of the death section, between two markers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from bench.contest.death import JOBS
from bench.contest.deathpage import NONE
from bench.contest.tables import table
from bench.spread import Spread

BEGIN, END = "<!-- deaths: written by make bench -->", "<!-- end of deaths -->"

COLUMNS = {
    "Outlast": "Outlast, runs (SQLite)",
    "DBOS, without its Conductor": "DBOS, another executor (Postgres)",
    "Celery, late acks": "Celery, chain (Redis)",
}
ROWS = {
    "fits": "SIGTERM; every job could finish in time",
    "long": "SIGTERM; every step could finish in time",
    "single": "SIGTERM; one step could not finish in time",
    "killed": "`kill -9`, OOM kill",
    "silent": "frozen, continues later",
}


def in_readme(text: str, found: dict[str, Any]) -> str:
    """Return the README with the table of these results.

    Return it unchanged if it has no markers, or if the death section was not measured.
    """
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
    return table(["what happens to the worker", *COLUMNS], rows).rstrip()


def _cell(trials: Sequence[dict[str, Any]]) -> str:
    good = [trial for trial in trials if "failed" not in trial]
    if not good:
        return "failed" if trials else NONE
    if stuck := max(trial["unfinished"] for trial in good):
        return f"**not resumed in 60 s**, {stuck} jobs stuck"
    taken = [trial["taken_last"] for trial in good if trial["taken_last"] is not None]
    if len(taken) < len(good):
        return "finished before exit"
    words = [f"resumed in {Spread.of(taken).median:.1f} s", _repeated(good)]
    if twice := max(trial["done_twice"] for trial in good):
        words.append(f"{twice} steps completed twice")
    return ", ".join(words)


def _repeated(trials: Sequence[dict[str, Any]]) -> str:
    """Return how much work each job repeated, on average."""
    seconds = Spread.of([trial["redone_seconds"] for trial in trials]).median / JOBS
    return f"{seconds:.1f} s repeated per job" if seconds else "nothing repeated"
