"""A graph that is killed or stopped at any call repeats at most the calls in flight."""

import signal
from collections import Counter
from pathlib import Path

import pytest
from support_graph import CALLS, FOUND

from support.processes import Program

RESULT = f"all done now {FOUND}"
GRAPH = Path(__file__).with_name("support_graph.py")


def interrupted(place: str, folder: Path, number: signal.Signals, moments: list[int]) -> list[str]:
    """Interrupt the graph at these calls, let it finish, and return the calls it made."""
    log = folder / "calls"
    log.touch()

    def calls() -> list[str]:
        return log.read_text().splitlines()

    for moment in moments:
        with Program.python(GRAPH, place, log, folder=folder) as program:
            program.wait_until(lambda moment=moment: len(calls()) >= moment)
            program.process.send_signal(number)
            program.wait()
    with Program.python(GRAPH, place, log, folder=folder) as program:
        assert program.wait_for_line(RESULT)
    return calls()


@pytest.mark.parametrize("moments", [[1, 4, 7], [2, 5, 8], [3, 6, 9]], ids=str)
def test_kill_repeats_at_most_the_calls_in_flight(place, tmp_path, moments):
    made = interrupted(place, tmp_path, signal.SIGKILL, moments)
    counted = Counter(" ".join(line.split()[:2]) for line in made)
    assert set(counted) == set(CALLS)
    # A kill hits at most two calls at once.
    assert sum(counted.values()) <= len(CALLS) + 2 * len(moments)
    keys = {line for line in made if line.startswith("refund")}
    assert len(keys) == 1, "every attempt of the effect has the same key"


def test_sigterm_repeats_nothing(place, tmp_path):
    """A drain lets the calls in flight end, and stops at the next one."""
    made = interrupted(place, tmp_path, signal.SIGTERM, [1, 4])
    counted = Counter(" ".join(line.split()[:2]) for line in made)
    assert counted == Counter(CALLS)
