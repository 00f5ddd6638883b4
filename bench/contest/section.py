"""Define a section of the contest: what it measures, and its page.

`steps.py`, `queue.py`, `death.py` and `growth.py` have one each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.contest.tables import Outcome

Found = dict[str, Any]
"""The measurements of a section, as JSON. Its tables and plots are made from nothing else."""


class Section(NamedTuple):
    name: str
    measure: Callable[[Path, int, Callable[[str], None]], Found]
    """Measure in this empty folder, in this many rounds, and report progress."""
    tables: Callable[[Found], str]
    """Return the section's page in Markdown, with its goals and whether they were met."""
    plots: Callable[[Found], dict[str, str]]
    """Return SVGs by file name; `tables` refers to them."""
    title: str
    question: str
    """The question that the page answers, for the overview."""
    outcomes: Callable[[Found], Sequence[Outcome]] = lambda _: ()
    """Return the section's goals and how they came out."""
    once: bool = False
    """The section is measured in one round, however many the others have."""
