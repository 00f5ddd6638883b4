"""`outlast run` of a run that is not due: the command says what it waits for."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest
from cli_processes import Command

from outlast.cli import exit_codes
from outlast.store.commands import Release
from outlast.store.rows import NEVER

if TYPE_CHECKING:
    from conftest import Place


def run_until_it_says_something(outlast: Place, *words: str) -> tuple[str, str, int]:
    """Return its first line on stderr, and all of stderr and the exit code after a SIGINT."""
    with Command(outlast.folder, "run", *words) as command:
        first = command.wait_for_error_line()
        code = command.end_by(signal.SIGINT)
        return first, command.errors, code


def test_a_delayed_run_is_announced_with_its_due_time_and_left_by_an_interrupt(outlast):
    outlast.submitted("r1", delay=86_400.0)
    due = outlast.row("r1").due
    first, rest, code = run_until_it_says_something(outlast, "agent.py:report", "--id", "r1")
    until = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(due))
    assert first.startswith(f"outlast: run r1 is delayed until {until}, for another ")
    assert "`outlast show r1`" in first
    assert code == exit_codes.INTERRUPTED
    assert "To continue: `outlast run agent.py:report --id r1`" in rest
    row = outlast.row("r1")
    assert (row.status, row.due, row.lives) == ("queued", due, 0)


@pytest.mark.parametrize(
    ("due", "waits", "says"),
    [
        (NEVER, ("approval",), "is waiting for a message (approval)."),
        (NEVER, (), "is waiting for another run."),
        (4e9, ("approval",), "is waiting until 2096-10-02 07:06:40 UTC, for another "),
    ],
)
def test_a_waiting_run_is_announced_with_what_it_waits_for(outlast, due, waits, says):
    row = outlast.started("r1", "waits", '{"step_first":false}')
    release = Release(row.pk, row.fence, "it waits", waiting=True, due=due, waits=waits)
    assert outlast.commit(release) == ["waiting"]
    first, _, _ = run_until_it_says_something(outlast, "agent.py:waits", "--id", "r1")
    assert f"run r1 {says}" in first


def test_a_run_that_is_due_is_executed_without_a_word(outlast):
    outlast.submitted("r1")
    answer = outlast("run", "agent.py:report", "--id", "r1")
    assert (answer.out, answer.err) == ('"notes on tides"\n', "the program prints\n")
