"""The plan of blows: pure, by its seed."""

from collections import Counter

import pytest

from outlast.chaos.plan import KINDS, parse_kinds, plan


def made(seed=1, **options):
    return plan(seed, **{"seconds": 600, "per_minute": 60, "kinds": KINDS, "lease": 2.0, **options})


def test_the_same_seed_is_the_same_plan_and_another_is_another():
    assert made(7) == made(7)
    assert made(7) != made(8)


def test_blows_fall_in_order_within_the_time_and_about_as_often_as_asked():
    blows = made()
    assert [blow.at for blow in blows] == sorted(blow.at for blow in blows)
    assert 0 < blows[0].at and blows[-1].at < 599
    assert 500 < len(blows) < 700


def test_every_kind_falls_once_before_any_falls_by_chance():
    assert sorted(blow.kind for blow in made()[: len(KINDS)]) == sorted(KINDS)
    assert made(1)[0].kind != made(4)[0].kind, "the order is the seed's"


def test_only_what_was_asked_for_falls():
    assert {blow.kind for blow in made(kinds=("term", "stop"))} == {"term", "stop"}
    assert made(kinds=()) == ()
    assert made(per_minute=0) == ()


def test_most_stops_are_longer_than_the_lease_and_some_are_shorter():
    stops = [blow.seconds for blow in made(kinds=("stop",), lease=3.0)]
    longer = sum(seconds > 3.0 for seconds in stops) / len(stops)
    assert 0.6 < longer < 0.9
    assert max(stops) <= 12.0 and min(stops) < 2.0


def test_blows_strike_anybody_and_hard_and_soft():
    blows = made()
    picks = [blow.pick for blow in blows]
    assert min(picks) < 0.1
    assert 0.9 < max(picks) < 1
    for kind in ("fleet", "server", "kill", "stop"):
        count = Counter(blow.hard for blow in blows if blow.kind == kind)
        assert count[True] and count[False], kind


def test_kinds_are_read_by_commas_and_a_wrong_one_is_told():
    assert parse_kinds(" kill, term,kill") == ("kill", "term")
    with pytest.raises(ValueError, match="no blow 'explode'"):
        parse_kinds("kill,explode")
    with pytest.raises(ValueError, match="at least one"):
        parse_kinds(" , ")
