"""Processes that submit in the same windows and are killed in the middle of it."""

import json
import os
from collections import Counter

import pytest
from fleet_flows import one_step
from fleet_tools import Fleet

from support.seeds import seeded_random
from support.waiting import wait_until

KILLS = max(3, int(os.environ.get("OUTLAST_TEST_KILLS", "12")) // 4)
SUBMITTERS = 4
STEP = 1_000_000
"""Each submitter has numbers of its own."""


class Submitters:
    """Programs that submit the same names, with different numbers."""

    def __init__(self, fleet: Fleet, names: list[str], **options: object) -> None:
        self._fleet, self._names, self._options = fleet, names, options
        self._started = 0
        self.programs = [self._start() for _ in range(SUBMITTERS)]

    def _start(self):
        self._started += 1
        first = self._started * STEP
        plan = {"first": first, "names": self._names, "options": self._options}
        return self._fleet.spawn("submitter.py", json.dumps(plan))

    def kill_and_replace(self, rng) -> None:
        """Kill one wherever it is, and start another once that has said something."""
        at = rng.randrange(SUBMITTERS)
        self.programs[at].kill()
        self.programs[at] = self._start()

    def kill(self) -> None:
        for program in self.programs:
            program.kill()


def said(fleet: Fleet, file: str) -> list[list[str]]:
    path = fleet.folder / file
    return [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []


def runs_of(fleet: Fleet) -> list[tuple[str, int, float]]:
    """Return the name, the number and the start of each run, in the order of their starts."""
    rows = fleet.ask("SELECT id, args, started FROM runs")
    found = [(id.partition("~")[0], json.loads(args)["n"], started) for id, args, started in rows]
    return sorted(found, key=lambda run: run[2] or 0.0)


@pytest.mark.timeout(300 + KILLS * 30)
def test_of_many_processes_that_are_killed_one_is_accepted_in_each_window(fleet):
    rng = seeded_random("window kills")
    names = [f"doc-{number}" for number in range(25)]
    submitters = Submitters(fleet, names, window=86_400.0)
    for number in range(KILLS):
        enough = (number + 1) * 20
        fleet.wait_until(lambda enough=enough: len(said(fleet, "asked")) >= enough)
        submitters.kill_and_replace(rng)
    for program in submitters.programs:
        program.wait_for_message("first round")
    submitters.kill()
    runs = {name: number for name, number, _ in runs_of(fleet)}
    assert Counter(name for name, _, _ in runs_of(fleet)) == Counter(names)
    accepted = {(name, int(number)) for name, number, _ in said(fleet, "accepted")}
    assert accepted <= set(runs.items())
    asked = {(name, int(number)) for name, number in said(fleet, "asked")}
    assert set(runs.items()) <= asked


@pytest.mark.timeout(300 + KILLS * 30)
def test_last_of_a_burst_runs_last_although_submitters_and_workers_are_killed(fleet):
    rng = seeded_random("burst kills")
    names = ["doc-0", "doc-1", "doc-2"]
    options = {"debounce": 0.2, "debounce_max": 0.5}
    fleet.start_many(2, "one_step", poll=0.1)
    submitters = Submitters(fleet, names, **options)
    for number in range(KILLS):
        enough = (number + 1) * 2
        wait_until(lambda enough=enough: fleet.statuses()["done"] >= enough)
        submitters.kill_and_replace(rng)
        rng.choice(fleet.workers).kill()
        fleet.replace_the_dead("one_step", poll=0.1)
    submitters.kill()

    async def finish(app):
        return [(await app.submit(one_step(0), id=name, **options)).id for name in names]

    last = fleet.do(finish)
    fleet.until_all_are("done")
    runs = runs_of(fleet)
    asked = {(name, int(number)) for name, number in said(fleet, "asked")}
    asked |= {(name, 0) for name in names}
    assert {(name, number) for name, number, _ in runs} <= asked
    # What a killed process has submitted is submitted by nobody else.
    assert max(Counter((name, number) for name, number, _ in runs).values()) == 1
    assert {name: number for name, number, _ in runs} == dict.fromkeys(names, 0)
    rows = fleet.ask("SELECT id, args FROM runs")
    assert {id for id, args in rows if json.loads(args)["n"] == 0} == set(last)
