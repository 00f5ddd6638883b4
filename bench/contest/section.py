"""A section of the contest: what it measures, and how it is told. `steps.py`, `queue.py`, `death.py` and `growth.py` have one each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Found = dict[str, Any]
"""What a section has measured, as JSON: everything its tables and plots are made from."""


class Section(NamedTuple):
    name: str
    measure: Callable[[Path, int, Callable[[str], None]], Found]
    """In this empty folder, in so many rounds, telling what goes on."""
    tables: Callable[[Found], str]
    """Markdown, from a heading of the second level on: what was measured, the goals and whether they were met."""
    plots: Callable[[Found], dict[str, str]]
    """SVGs by file name; `tables` refers to them."""
    once: bool = False
    """It is measured in one round, however many the others have."""
