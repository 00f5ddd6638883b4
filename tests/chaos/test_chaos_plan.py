"""The plan of blows: pure, by its seed."""

from collections import Counter

import pytest

from outlast import workflow
from outlast.chaos.flows import STATUS
from outlast.chaos.plan import KINDS, parse_kinds, plan
from outlast.chaos.trial import Options, worker_environ
from outlast.chaos.work import Demo, Work, arguments
from outlast.settings import Settings


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


def test_workers_get_the_trials_own_lease_and_grace_and_the_users_settings():
    given = {
        "OUTLAST_STORE": "postgresql://production",
        "OUTLAST_LEASE": "99",
        "OUTLAST_RAMP": "3",
        "OUTLAST_CHAOS_KILLS_PER_HOUR": "9",
        "PATH": "/bin",
    }
    environ = worker_environ(Options(seed=1, lease=1.5, grace=4.0), given)
    assert "OUTLAST_STORE" not in environ, "it is in no worker's reach"
    assert (environ["OUTLAST_LEASE"], environ["OUTLAST_GRACE"], environ["OUTLAST_RAMP"]) == (
        "1.5",
        "4.0",
        "3",
    )
    assert environ["OUTLAST_CHAOS_KILLS_PER_HOUR"] == "0" and environ["PATH"] == "/bin"
    Settings.load({}, environ)


def test_what_is_submitted_follows_from_the_seed_and_the_number():
    work = Demo(5)
    pieces = [work.piece(number) for number in range(40)]
    assert [piece.id for piece in pieces] == [Demo(5).piece(number).id for number in range(40)]
    runs = [piece.id for piece in pieces if piece.call is not None]
    assert len(runs) == 30 and {id.rpartition("-")[2] for id in runs} == {*STATUS, "letter", "fickle"}
    assert all(work.meant(id) for id in runs if not id.endswith("-fickle")), "how each must end is said"
    assert work.meant("chaos-5-items/chaos-5-000003") == "done" and work.meant("somebody-elses") is None
    assert any(map(work.is_for_cancelling, runs))


def test_the_number_is_put_into_every_text_of_the_arguments():
    @workflow
    async def report(topic: str, more: dict, times: int = 1) -> None: ...

    work = Work(5, [(report, {"topic": "t {n}", "more": {"a": ["{n}", 7]}}), (report, ["{n}{n}", {}])])
    assert report.signature.decode(work.piece(2).call.args) == (("t 2", {"a": ["2", 7]}), {})
    assert work.piece(3).id == "chaos-5-000003-report" and '"33"' in work.piece(3).call.args
    with pytest.raises(ValueError, match="JSON list"):
        arguments('"text"')
