"""What pytest prints when a run does not replay."""

from outlast.testing.replay import DIFFERENCES_MAX
from support.pytest_runs import run_pytest

TESTS = """
import itertools
from outlast import step, workflow

count = itertools.count()

@step
async def add(n: int) -> int:
    return n + 1

@workflow
async def unsteady() -> int:
    return await add(next(count))

def test_one_run(outlast_app):
    outlast_app.run(unsteady(), id="r-1")

def test_many_runs(outlast_app):
    for number in range(10):
        outlast_app.run(unsteady(), id=f"r-{number}")
"""


def output_of(folder, test: str) -> list[str]:
    """Return the lines that pytest prints about the failure of one test."""
    out = run_pytest(folder, TESTS, f"test_agents.py::{test}")
    lines = out.splitlines()
    begin = next(number for number, line in enumerate(lines) if f" {test} " in line)
    return lines[
        begin + 1 : next(
            number for number, line in enumerate(lines) if "short test summary" in line
        )
    ]


def test_failure_output_is_one_short_paragraph_without_traceback(tmp_path):
    head, code, journal, line, hint = output_of(tmp_path, "test_one_run")
    assert head == "run 'r-1' of workflow unsteady does not replay:"
    assert code == '  the code:    step add#1({"n":1})'
    assert journal == '  the journal: step add#1({"n":0})'
    assert line == f"  at {tmp_path}/test_agents.py:13"
    assert "in a step" in hint


def test_failure_output_shows_only_the_first_of_many_runs(tmp_path):
    *shown, more, hint = output_of(tmp_path, "test_many_runs")
    assert len([line for line in shown if line.startswith("run ")]) == DIFFERENCES_MAX
    assert more == f"and {10 - DIFFERENCES_MAX} more runs"
    assert "in a step" in hint
