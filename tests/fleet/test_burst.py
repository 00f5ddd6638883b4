"""A rolling deploy gives back everything at once: the short form of `make burst`, 5 workers and 200 runs on a virtual clock."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # `bench` is no part of the package

from bench.burst import Pair, check
from bench.burst_fleet import AT_ONCE, GENTLE, Outcome, Scene, burst, recovery

# A new run takes some 15 seconds, so new work fits into the fifth of the slots that is kept for it.
HELD = Scene(workers=5, slots=40, returned=200, limit=120, new_rate=2.0, new_seconds=20.0)
BACKLOG = replace(HELD, slots=10, limit=30, new_rate=0.5, new_seconds=60.0)


@pytest.fixture(scope="module", params=[HELD, BACKLOG], ids=["as many slots as runs", "fewer slots"])
def pair(request) -> Pair:
    image = burst(request.param)
    return Pair(request.param, *(recovery(request.param, image, how) for how in (AT_ONCE, GENTLE)))


def test_every_run_ends_exactly_once_either_way(pair):
    for outcome in (pair.without, pair.gentle):
        check(outcome)
        assert len(outcome.returned_done) == 200
        assert len(outcome.new_waits) > 20


def test_a_gentle_start_spares_the_service_the_burst(pair):
    scene = pair.scene
    assert pair.without.peak == min(scene.returned, scene.workers * scene.slots), "all slots, at one moment"
    assert pair.without.refused
    assert pair.gentle.peak < pair.without.peak * 0.75
    assert len(pair.gentle.refused) < len(pair.without.refused) / 2


def test_a_gentle_start_lets_new_runs_wait_less(pair):
    without, gentle = pair.without.waits, pair.gentle.waits
    assert sum(gentle) / len(gentle) < sum(without) / len(without) / 2
    assert gentle[-1] < without[-1] / 2


def test_a_gentle_start_begins_the_returned_runs_over_the_ramp(pair):
    at_once = sum(at < 0.1 for at in pair.without.begun_returned)
    gently = sum(at < 0.1 for at in pair.gentle.begun_returned)
    assert at_once == min(pair.scene.returned, pair.scene.workers * pair.scene.slots)
    assert gently <= at_once * 0.15


def test_returned_runs_pay_for_it_with_a_quarter_more_time_at_most(pair):
    """New runs have a fifth of the slots, whether there are enough of them or not."""
    assert pair.gentle.returned_done[-1] < pair.without.returned_done[-1] * 1.25 + GENTLE["ramp"]


def test_returned_runs_are_metered_however_short_they_are():
    scene = replace(HELD, workers=2, returned=60, turns_left_max=1, call_seconds=0.01, work_seconds=0.01)
    outcome = recovery(scene, burst(scene), AT_ONCE | {"returned_rate": 10.0})
    check(outcome)
    begun = outcome.begun_returned
    for first, since in enumerate(begun):
        assert sum(at <= since + 1.0 for at in begun[first:]) <= 2 * (10 + 1)
    assert 2.5 < begun[-1] < 3.5, "two workers of ten a second"
    assert outcome.waits[-1] < 0.1, "new ones are not"


def test_a_worker_of_one_slot_leaves_new_runs_their_share_in_time():
    scene = replace(
        HELD, workers=1, slots=1, returned=20, turns_left_max=1, limit=10, new_rate=20, new_seconds=1.0
    )
    outcome = recovery(scene, burst(scene), AT_ONCE | {"new_share": 0.2})
    check(outcome)
    order = sorted(
        [(at, "returned") for at in outcome.begun_returned] + [(at, "new") for at in outcome.begun_new]
    )
    assert [kind for _, kind in order[:20]] == (["returned"] * 4 + ["new"]) * 4


def test_the_same_seed_gives_the_same_figures():
    scene = replace(HELD, returned=50, new_seconds=5.0)
    outcomes: list[Outcome] = [recovery(scene, burst(scene), GENTLE) for _ in range(2)]
    assert outcomes[0] == outcomes[1]


def test_the_plot_is_well_formed_and_has_both_sides(pair):
    from xml.etree import ElementTree as ET

    texts = [element.text for element in ET.fromstring(pair.svg()).iter("{http://www.w3.org/2000/svg}text")]
    for side in (pair.without, pair.gentle):
        assert f"peak {side.peak:,}" in texts
    assert {"without", "with the gentle start", "seconds since the new fleet started"} <= set(texts)
