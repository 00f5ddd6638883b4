"""SECURITY.md names an existing test for every attack."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "SECURITY.md", ROOT / "docs" / "security.md"]
NAMED = re.compile(r"\[`(test_\w+)`\]\(([^)]+\.py)\)")
ATTACKS = re.compile(
    r"^\| attack \| what happens \| test \|\n\|[-|]+\|\n((?:\|.*\n)+)", re.MULTILINE
)


@cache
def names_in(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_named_on_a_page_exists(page) -> None:
    named = NAMED.findall(page.read_text())
    missing = [name for name, file in named if name not in names_in((page.parent / file).resolve())]
    assert missing == []


def test_every_line_of_the_threat_model_names_a_test_or_none() -> None:
    tables = ATTACKS.findall((ROOT / "SECURITY.md").read_text())
    assert len(tables) == 3
    for line in "".join(tables).splitlines():
        last = line.rstrip("| ").rpartition(" | ")[2]
        assert NAMED.search(last) or last.startswith("none of ours"), line


def test_every_file_of_attacks_is_named_by_the_threat_model() -> None:
    named = {file for _, file in NAMED.findall((ROOT / "SECURITY.md").read_text())}
    here = {f"tests/security/{one.name}" for one in Path(__file__).parent.glob("test_*.py")} - {
        "tests/security/test_security_page.py"
    }
    assert here <= named
