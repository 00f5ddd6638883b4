"""kill -9 at random moments, over and over: nothing recorded is lost, only what was under way is redone.

OUTLAST_TEST_KILLS=200 is the full form. The figures are printed (`pytest -s`).
"""

import os
import time
from collections import Counter

import pytest
from process_tools import Image, Line, Log, Program, autopsy, chance, until

KILLS = int(os.environ.get("OUTLAST_TEST_KILLS", "40"))
SHARDS = 4
"""Each on a store of its own, so that they can be executed side by side."""

UNDISTURBED = {
    "total": 86,
    "spread": [0, 1, 4, "THREAD", "ok at attempt 3"],
    "same": True,
    "nested": 61,
    "children": [20, 90],
    "words": ["word 0", "word 1"],
    "last": -86,
}


def test_undisturbed_the_program_has_this_result_and_executes_each_step_once(spawn, tmp_path):
    assert spawn("agent.py", "r").result() == UNDISTURBED
    lines = Log(tmp_path).update()
    assert max(Counter(lines).values()) == 1
    assert autopsy(tmp_path / "outlast.db").recorded() == {(line.run, line.key) for line in lines if line.key}


@pytest.mark.timeout(60 + KILLS * 2)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_program_killed_at_any_moment_ends_as_if_nothing_had_happened(spawn, tmp_path, shard):
    rng, began = chance(f"kills {shard}"), time.monotonic()
    inquest = Inquest(tmp_path)
    wanted, runs = KILLS // SHARDS, 0
    while inquest.kills < wanted:
        runs += 1
        while True:
            program = spawn("agent.py", f"r{runs}")
            if inquest.kills < wanted:
                strike(rng, program, inquest.log)
            if program.ended or inquest.kills == wanted:
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
        "seconds": round(time.monotonic() - began, 1),
        "bodies": inquest.bodies(),
        "redone": inquest.redone(),
        "deaths": len(inquest.expected_deaths),
        **inquest.places,
    }
    print(figures)


def strike(rng, program: Program, log: Log) -> None:
    """Wait for the moment to kill, chosen so that all phases of a life get their share."""

    def seen(condition) -> None:
        until(lambda: program.ended or condition(), pause=0.0005)

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
    time.sleep(pause)  # the moment itself: nothing is waited for


def assert_nothing_recorded_was_redone(image: Image, lines: list[Line]) -> None:
    """No life that came after the one that recorded a step has executed it."""
    fences = image.fences()
    for line in lines:
        if line.when == "before" and (line.run, line.key) in fences:
            assert line.fence <= fences[line.run, line.key], f"{line} was recorded, and executed again"


class Inquest:
    """Compares, after each death, the outside log with the journals."""

    def __init__(self, folder) -> None:
        self.db, self.log = folder / "outlast.db", Log(folder)
        self.kills = 0
        self.places: Counter[str] = Counter()
        self.expected_deaths: set[tuple[str, str]] = set()
        self.before = Image({}, {}, {})
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
            assert place not in recorded, f"{line} was recorded, and executed again"
            earlier = line._replace(attempt=line.attempt - 1)
            assert line.attempt == attempts.get(place, 0) + 1 or earlier in starts, line
        assert max(Counter(starts).values(), default=0) <= 1, "one life executes a step once"
        now = autopsy(self.db)
        for id, journal in self.before.journals.items():
            assert now.journals[id][: len(journal)] == journal, f"the journal of {id} has lost entries"
        self._check_results_were_durable(now)
        for id, run in now.runs.items():
            if run["worker"] is not None:
                self.expected_deaths.add((id, run["worker"]))
        self.before = now

    def _check_results_were_durable(self, now: Image) -> None:
        """The loop of the workflow starts a step only with the last one's result in hand."""
        recorded = now.recorded()
        for line in self.log.lines:
            if line.key in ("tick#2", "tick#3", "tick#4"):
                previous = f"tick#{int(line.key[-1]) - 1}"
                assert (line.run, previous) in recorded, f"{previous} was handed over, and is lost"

    def place(self, program: Program, id: str) -> None:
        """In which phase of its life the program was killed."""
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
        assert_nothing_recorded_was_redone(now, self.log.lines)
        assert {run["status"] for run in now.runs.values()} == {"done"}
        assert now.deaths() == sorted(self.expected_deaths), "each death is in the journal, once"
        assert sum(run["deaths"] for run in now.runs.values()) == len(self.expected_deaths)

    def bodies(self) -> int:
        return sum(line.when == "before" for line in self.log.lines)

    def redone(self) -> int:
        """Bodies executed again, because a death came between their start and their record."""
        times = Counter(
            (line.run, line.key, line.attempt) for line in self.log.lines if line.when == "before"
        )
        return sum(times.values()) - len(times)
