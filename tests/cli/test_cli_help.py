"""The help of each command: examples first, whole words, 80 columns."""

from __future__ import annotations

import re

import pytest

from outlast.cli import exit_codes
from outlast.cli.app import COMMANDS, PARTS
from outlast.cli.examples import EXAMPLES

SUBCOMMANDS = ["chaos verify", *(f"schedule {one}" for one in ("pause", "backfill", "delete"))]


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_the_help_of_outlast_documents_every_exit_code(outlast):
    answer = outlast("--help")
    assert answer.code == 0
    for number, meaning in exit_codes.MEANINGS.items():
        assert re.search(rf"^\s+{number}  {re.escape(meaning)}$", answer.out, re.MULTILINE)


@pytest.mark.parametrize("name", ["", *COMMANDS, *SUBCOMMANDS])
def test_help_fits_80_columns_and_begins_with_examples(outlast, name):
    out = outlast(*name.split(), "--help").out
    assert [line for line in out.splitlines() if len(line) > 80] == []
    usage, _, examples, *_ = out.split("\n\n")
    assert usage.startswith(f"Usage: outlast {name}".strip())
    assert examples.startswith("Examples:\n  ")


def test_each_command_and_no_other_has_examples():
    assert set(EXAMPLES) > {"", *COMMANDS, *SUBCOMMANDS}
    assert {name.split()[0] for name in EXAMPLES if name} == set(COMMANDS)


def test_help_lists_each_command_in_one_whole_line(outlast):
    out = outlast("--help").out
    for heading, names in PARTS.items():
        lines = out.partition(f"\n{heading}:\n")[2].partition("\n\n")[0].splitlines()
        assert [line.split()[0] for line in lines] == list(names)
        assert [line for line in lines if not line.endswith(".") or line.endswith("...")] == []


@pytest.mark.parametrize("name", [*COMMANDS, *SUBCOMMANDS])
def test_help_shows_no_types_and_no_ranges(outlast, name):
    out = outlast(*name.split(), "--help").out
    assert re.findall(r"<\w+(?: range)?>|x[<>]=|<=x", out) == []


def test_a_required_option_is_marked(outlast):
    assert "7d.  [required]" in outlast("prune", "--help").out
    assert "[required]" in outlast("chaos", "verify", "--help").out
    assert "[required]" not in outlast("retry", "--help").out
