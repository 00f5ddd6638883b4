"""The tables of docs/guarantees.md: every kind of step has a cell for every moment, and every cell names a test that exists."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.settings import Settings
from support.waiting import WAIT_SECONDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
SECTION = PAGE.partition("## Each kind of step at each moment of death\n")[2].partition("\n## ")[0]
CELL = re.compile(r"\[[^\]]+\]\((?P<file>[^) ]+) \"(?P<test>[^\"]+)\"\)")

KINDS = (
    "step", "step with progress", "nested step", "effect with `verify`", "effect, `idempotent`", "effect with neither", "compensation",
    "unit", "timer", "message", "child",
)  # fmt: skip
MOMENTS = (
    "before it starts", "its intent is recorded", "during the act, before anything happened", "it happened, not yet recorded",
    "after it is recorded",
)  # fmt: skip
EVENTS = (
    "the process is frozen, and another takes over", "the process drains", "the store becomes unreachable",
)  # fmt: skip
WITHOUT_INTENT = {"step", "step with progress", "nested step", "timer", "message", "child"}


def tables() -> list[list[list[str]]]:
    found = re.findall(r"(?:^\|.*\n)+", SECTION, re.MULTILINE)
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        for table in found
    ]


DEATHS, OTHERS = tables()
COLUMNS = [(DEATHS, MOMENTS), (OTHERS, EVENTS)]


def cells() -> list[tuple[str, str, str]]:
    return [
        (kind, moment, cell)
        for (_, _, *rows), moments in COLUMNS
        for kind, row in zip(KINDS, rows, strict=True)
        for moment, cell in zip(moments, row[1:], strict=True)
    ]


@pytest.fixture(scope="module")
def collected() -> set[str]:
    """What pytest would run of the files that the table names."""
    files = {
        str((ROOT / "docs" / found["file"]).resolve().relative_to(ROOT))
        for found in CELL.finditer(SECTION)
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist", *sorted(files)],
        cwd=ROOT, capture_output=True, text=True, timeout=WAIT_SECONDS, check=True,
    )  # fmt: skip
    return {line.strip() for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.parametrize(("table", "moments"), COLUMNS, ids=["deaths", "others"])
def test_every_kind_and_every_moment_is_there(table, moments) -> None:
    head, _, *rows = table
    assert tuple(head[1:]) == moments
    names = [re.sub(r"[*\[]|\].*", "", row[0]) for row in rows]
    assert names == list(KINDS)
    assert all(len(row) == len(head) for row in rows)


def test_every_cell_is_a_test_but_where_there_is_no_such_moment() -> None:
    for kind, moment, cell in cells():
        if moment == "its intent is recorded" and kind in WITHOUT_INTENT:
            assert cell == "\N{EN DASH}"
        else:
            assert CELL.fullmatch(cell), f"{kind}, {moment}: {cell}"


def test_every_test_that_is_named_is_collected(collected) -> None:
    named = {
        f"{(ROOT / 'docs' / found['file']).resolve().relative_to(ROOT)}::{found['test']}"
        for found in CELL.finditer(SECTION)
    }
    assert sorted(named - collected) == []


def test_every_test_of_a_moment_is_named_by_a_cell(collected) -> None:
    """None is left out, and no two cells share one."""
    named = [found["test"] for found in CELL.finditer(SECTION)]
    assert len(named) == len(set(named))
    of_moments = {name.partition("[")[0] for name in named}
    tests = {test.partition("::")[2] for test in collected}
    there = {test for test in tests if test.partition("[")[0] in of_moments}
    assert sorted(there - set(named)) == []


def test_the_defaults_of_effects_are_as_the_page_says() -> None:
    settings = Settings()
    limits = (ROOT / "docs" / "limits.md").read_text()
    assert f"| `effect_margin` | {settings.effect_margin:g} s |" in limits
    assert f"| `verify_attempts` | {settings.verify_attempts} |" in limits
