"""A rolling deploy returns all runs at once: the short form of `make burst` on the virtual clock."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # `bench` is no part of the package

from bench.burst import Pair, check
from bench.burst_fleet import AT_ONCE, GENTLE, Outcome, Scene, burst, recovery

SVG = "{http://www.w3.org/2000/svg}"
# A new run takes some 15 seconds, so new work fits into the fifth of the slots that is kept for it.
HELD = Scene(workers=5, slots=20, returned=100, limit=60, new_rate=1.0, new_seconds=25.0)
BACKLOG = replace(HELD, slots=10, returned=200, limit=30, new_rate=0.5, new_seconds=60.0)


SCENES = {"as many slots as runs": HELD}
if "OUTLAST_TEST_KILLS" in os.environ:
    SCENES["fewer slots"] = BACKLOG


@pytest.mark.parametrize("name", SCENES)
def test_gentle_start_protects_the_service_and_new_runs(name):
    """One test, as each process of xdist would simulate the scene again for its share of several."""
    scene, image = SCENES[name], burst(SCENES[name])
    pair = Pair(scene, *(recovery(scene, image, how) for how in (AT_ONCE, GENTLE)))
    assert_every_run_ended_once(pair)
    assert_the_service_is_spared(pair)
    assert_new_runs_wait_less(pair)
    assert_returned_runs_begin_over_the_ramp(pair)
    # New runs have a fifth of the slots, so returned runs may take a quarter longer.
    assert pair.gentle.returned_done[-1] < pair.without.returned_done[-1] * 1.25 + GENTLE["ramp"]
    assert_the_plot_has_both_sides(pair)


def assert_every_run_ended_once(pair: Pair) -> None:
    for outcome in (pair.without, pair.gentle):
        check(outcome)
        assert len(outcome.returned_done) == pair.scene.returned
        assert len(outcome.new_waits) > 20


def assert_the_service_is_spared(pair: Pair) -> None:
    scene = pair.scene
    assert pair.without.peak == min(scene.returned, scene.workers * scene.slots), (
        "all slots at one moment"
    )
    assert pair.without.refused
    assert pair.gentle.peak < pair.without.peak * 0.75
    assert len(pair.gentle.refused) < len(pair.without.refused) / 2


def assert_new_runs_wait_less(pair: Pair) -> None:
    without, gentle = pair.without.waits, pair.gentle.waits
    assert sum(gentle) / len(gentle) < sum(without) / len(without) / 2
    assert gentle[-1] < without[-1] / 2


def assert_returned_runs_begin_over_the_ramp(pair: Pair) -> None:
    at_once = sum(at < 0.1 for at in pair.without.begun_returned)
    gently = sum(at < 0.1 for at in pair.gentle.begun_returned)
    assert at_once == min(pair.scene.returned, pair.scene.workers * pair.scene.slots)
    assert gently <= at_once * 0.15


def assert_the_plot_has_both_sides(pair: Pair) -> None:
    texts = [element.text for element in ET.fromstring(pair.svg()).iter(f"{SVG}text")]
    for side in (pair.without, pair.gentle):
        assert f"peak {side.peak:,}" in texts
    assert {"without", "with the gentle start", "seconds since the new fleet started"} <= set(texts)


def test_short_returned_runs_are_metered_as_well():
    scene = replace(
        HELD, workers=2, returned=60, turns_left_max=1, call_seconds=0.01, work_seconds=0.01
    )
    outcome = recovery(scene, burst(scene), AT_ONCE | {"returned_rate": 10.0})
    check(outcome)
    begun = outcome.begun_returned
    for first, since in enumerate(begun):
        assert sum(at <= since + 1.0 for at in begun[first:]) <= 2 * (10 + 1)
    assert 2.5 < begun[-1] < 3.5, "two workers of ten a second"
    assert outcome.waits[-1] < 0.1, "new ones are not"


def test_worker_with_one_slot_leaves_new_runs_their_share():
    scene = replace(
        HELD,
        workers=1,
        slots=1,
        returned=20,
        turns_left_max=1,
        limit=10,
        new_rate=20,
        new_seconds=1.0,
    )
    outcome = recovery(scene, burst(scene), AT_ONCE | {"new_share": 0.2})
    check(outcome)
    order = sorted(
        [(at, "returned") for at in outcome.begun_returned]
        + [(at, "new") for at in outcome.begun_new]
    )
    assert [kind for _, kind in order[:20]] == (["returned"] * 4 + ["new"]) * 4


def test_same_seed_gives_the_same_figures():
    scene = replace(HELD, returned=20, new_seconds=3.0)
    outcomes: list[Outcome] = [recovery(scene, burst(scene), GENTLE) for _ in range(2)]
    assert outcomes[0] == outcomes[1]
