"""SIGKILL at random moments: no recorded step is lost or repeated, only steps in progress are.

OUTLAST_TEST_KILLS=200 is the full form. `pytest -s` shows the figures.
"""

import os
import time
from collections import Counter

import pytest
from process_tools import Program

from support.outside_log import LogLine, OutsideLog
from support.seeds import seeded_random
from support.snapshots import Snapshot, read_dead_store
from support.waiting import wait_until

KILLS = int(os.environ.get("OUTLAST_TEST_KILLS", "10"))
SHARDS = 4 if KILLS > 100 else 1
"""Each has a store of its own, so they can run in parallel."""

UNDISTURBED = {
    "total": 86,
    "spread": [0, 1, 4, "THREAD", "ok at attempt 3"],
    "same": True,
    "nested": 61,
    "children": [20, 90],
    "words": ["word 0", "word 1"],
    "last": -86,
}


def test_undisturbed_program_executes_each_step_once(spawn, tmp_path):
    assert spawn("agent.py", "r").result() == UNDISTURBED
    lines = OutsideLog(tmp_path).update()
    assert max(Counter(lines).values()) == 1
    assert read_dead_store(tmp_path / "outlast.db").recorded() == {
        (line.run, line.key) for line in lines if line.key
    }


@pytest.mark.timeout(600 + KILLS * 10)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_program_killed_at_random_moments_gets_the_undisturbed_result(spawn, tmp_path, shard):
    rng, inquest = seeded_random(f"kills {shard}"), Inquest(tmp_path)
    wanted, runs = KILLS // SHARDS, 0
    while inquest.kills < wanted:
        runs += 1
        while True:
            program = spawn("agent.py", f"r{runs}")
            if inquest.kills < wanted:
                strike(rng, program, inquest.log)
            if program.has_ended or inquest.kills == wanted:
                assert program.result() == UNDISTURBED
                inquest.examine(program)
                break
            program.kill()
            inquest.kills += 1
            inquest.examine(program)
            inquest.place(program, f"r{runs}")
    inquest.close()
    figures = {
        "kills": inquest.kills,
        "runs": runs,
        "bodies": inquest.bodies(),
        "redone": inquest.redone(),
        "deaths": len(inquest.expected_deaths),
        **inquest.places,
    }
    print(figures)


def strike(rng, program: Program, log: OutsideLog) -> None:
    """Wait for a random moment to kill. Every phase of the process gets its share."""

    def seen(condition) -> None:
        wait_until(lambda: program.has_ended or condition())

    phase = rng.choices(["any", "opening", "step", "end"], [2, 3, 4, 2])[0]
    if phase == "any":
        pause = rng.uniform(0, 0.3)
    elif phase == "opening":
        seen(lambda: log.of(program.pid))
        pause = rng.uniform(0, 0.08)
    elif phase == "step":
        count = rng.randint(2, 20)
        seen(lambda: len(log.of(program.pid)) >= count)
        pause = rng.uniform(0, 0.01)
    else:
        seen(lambda: any(line.key.startswith("last") for line in log.of(program.pid)))
        pause = rng.uniform(0, 0.003)
    time.sleep(pause)  # the random moment


def assert_no_recorded_step_was_repeated(image: Snapshot, lines: list[LogLine]) -> None:
    """Fail if a step was executed under a later fence than the one that recorded it."""
    fences = image.fences()
    for line in lines:
        if line.when == "before" and (line.run, line.key) in fences:
            assert line.fence <= fences[line.run, line.key], (
                f"{line} was recorded and executed again"
            )


class Inquest:
    """Compare the outside log with the journals after each death."""

    def __init__(self, folder) -> None:
        self.db, self.log = folder / "outlast.db", OutsideLog(folder)
        self.kills = 0
        self.places: Counter[str] = Counter()
        self.expected_deaths: set[tuple[str, str]] = set()
        self.before = Snapshot({}, {}, {})
        """The store at the last death."""
        self._examined = 0

    def examine(self, program: Program) -> None:
        lines = self.log.update()
        new, self._examined = lines[self._examined :], len(lines)
        recorded, attempts = self.before.recorded(), self.before.attempts()
        starts = [line for line in new if line.when == "before"]
        assert {line.pid for line in new} <= {program.pid}
        for line in starts:
            place = (line.run, line.key)
            assert place not in recorded, f"{line} was recorded and executed again"
            earlier = line._replace(attempt=line.attempt - 1)
            assert line.attempt == attempts.get(place, 0) + 1 or earlier in starts, line
        assert max(Counter(starts).values(), default=0) <= 1, "one process executes a step once"
        now = read_dead_store(self.db)
        for id, journal in self.before.journals.items():
            assert now.journals[id][: len(journal)] == journal, (
                f"the journal of {id} has lost entries"
            )
        self._check_results_were_durable(now)
        for id, run in now.runs.items():
            if run["worker"] is not None:
                self.expected_deaths.add((id, run["worker"]))
        self.before = now

    def _check_results_were_durable(self, now: Snapshot) -> None:
        """Fail if the workflow got a result that is not recorded: it calls the ticks one after another."""
        recorded = now.recorded()
        for line in self.log.lines:
            if line.key in ("tick#2", "tick#3", "tick#4"):
                previous = f"tick#{int(line.key[-1]) - 1}"
                assert (line.run, previous) in recorded, f"{previous} was returned and is lost"

    def place(self, program: Program, id: str) -> None:
        """Count in which phase the program was killed."""
        lines = self.log.of(program.pid)
        under_way = Counter(line[1:] for line in lines if line.when == "before")
        under_way.subtract(line[1:] for line in lines if line.when == "after")
        run = self.before.runs.get(id)
        if run is not None and run["status"] == "done":
            where = "after the end"
        elif not lines:
            where = "start-up"
        elif len(lines) == 1:
            where = "opening, replay"
        elif any(line.key.startswith("last") for line in lines):
            where = "settle"
        else:
            where = "in a step" if any(under_way.values()) else "recording"
        self.places[where] += 1

    def close(self) -> None:
        now = self.before
        assert_no_recorded_step_was_repeated(now, self.log.lines)
        assert {run["status"] for run in now.runs.values()} == {"done"}
        assert now.deaths() == sorted(self.expected_deaths), "each death is in the journal once"
        assert sum(run["deaths"] for run in now.runs.values()) == len(self.expected_deaths)

    def bodies(self) -> int:
        return sum(line.when == "before" for line in self.log.lines)

    def redone(self) -> int:
        """Return how many bodies were repeated because a death came between their start and their record."""
        times = Counter(
            (line.run, line.key, line.attempt) for line in self.log.lines if line.when == "before"
        )
        return sum(times.values()) - len(times)
