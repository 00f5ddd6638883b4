"""The plan of faults: pure, by its seed."""

import json
from collections import Counter

import pytest

from outlast import workflow
from outlast.settings import Settings
from outlast.store.rows import RunRow
from outlast.tools.chaos.flows import FLOWS, Ending, endings
from outlast.tools.chaos.options import Options, worker_environ
from outlast.tools.chaos.plan import KINDS, parse_kinds, plan
from outlast.tools.chaos.work import Demo, Work, arguments


def made(seed=1, **options):
    return plan(seed, **{"seconds": 600, "per_minute": 60, "kinds": KINDS, "lease": 2.0, **options})


def test_same_seed_is_the_same_plan_and_another_is_another():
    assert made(7) == made(7)
    assert made(7) != made(8)


def test_faults_fall_in_order_within_the_time_and_about_as_often_as_asked():
    faults = made()
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
    assert 0 < faults[0].at and faults[-1].at < 599
    assert 500 < len(faults) < 700


def test_every_kind_falls_once_before_any_falls_by_chance():
    assert sorted(fault.kind for fault in made()[: len(KINDS)]) == sorted(KINDS)
    assert made(1)[0].kind != made(4)[0].kind, "the order is the seed's"


def test_order_in_which_kinds_are_named_changes_nothing():
    assert made(kinds=("kill", "term", "stop")) == made(kinds=("stop", "kill", "term"))


def test_only_what_was_asked_for_falls():
    assert {fault.kind for fault in made(kinds=("term", "stop"))} == {"term", "stop"}
    assert made(kinds=()) == ()
    assert made(per_minute=0) == ()


def test_most_stops_are_longer_than_the_lease_and_some_are_shorter():
    stops = [fault.seconds for fault in made(kinds=("stop",), lease=3.0)]
    longer = sum(seconds > 3.0 for seconds in stops) / len(stops)
    assert 0.6 < longer < 0.9
    assert max(stops) <= 12.0 and min(stops) < 2.0


def test_faults_pick_any_worker_and_are_hard_and_soft():
    faults = made()
    picks = [fault.pick for fault in faults]
    assert min(picks) < 0.1
    assert 0.9 < max(picks) < 1
    for kind in ("fleet", "server", "kill", "stop"):
        count = Counter(fault.hard for fault in faults if fault.kind == kind)
        assert count[True] and count[False], kind


def test_kinds_are_read_by_commas_and_a_wrong_one_is_told():
    assert parse_kinds(" kill, term,kill") == ("kill", "term")
    with pytest.raises(ValueError, match="no fault 'explode'"):
        parse_kinds("kill,explode")
    with pytest.raises(ValueError, match="at least one"):
        parse_kinds(" , ")


def test_workers_get_the_experiments_own_lease_and_grace_and_the_users_settings():
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


def test_submitted_work_follows_from_the_seed_and_the_number():
    work = Demo(5)
    pieces = [work.piece(number) for number in range(40)]
    assert [piece.id for piece in pieces] == [Demo(5).piece(number).id for number in range(40)]
    runs = [piece.id for piece in pieces if piece.call is not None]
    assert len(runs) == 30 and {id.rpartition("-")[2] for id in runs} == {
        flow.name for flow in FLOWS
    }
    assert any(map(work.is_for_cancelling, runs))


def test_number_is_put_into_every_text_of_the_arguments():
    @workflow
    async def report(topic: str, more: dict, times: int = 1) -> None: ...

    work = Work(
        5, [(report, {"topic": "t {n}", "more": {"a": ["{n}", 7]}}), (report, ["{n}{n}", {}])]
    )
    assert report.signature.decode(work.piece(2).call.args) == (("t 2", {"a": ["2", 7]}), {})
    assert work.piece(3).id == "chaos-5-000003-report" and '"33"' in work.piece(3).call.args
    with pytest.raises(ValueError, match="JSON list"):
        arguments('"text"')


def ended(
    id: str,
    status: str,
    value: str | None = None,
    error: str | None = None,
    parent: str | None = None,
):
    empty = RunRow(**dict.fromkeys(RunRow._fields))
    error = None if error is None else json.dumps({"type": f"some.module:{error}", "message": "so"})
    return empty._replace(
        id=id,
        status=status,
        value=value,
        error=error,
        parent=parent,
        workflow=id.rpartition("-")[2],
    )


def test_how_each_run_of_the_demo_must_end_is_said():
    assert all(endings(flow.name, 3) for flow in FLOWS) and endings("part", 3) == ()
    assert endings("letter", 3) == (Ending("failed", error="OutOfStock"),)
    work = Demo(5)
    assert work.amiss(ended("chaos-5-000001-order", "done", "1")) is None
    assert work.amiss(ended("chaos-5-000004-failing", "failed", error="OutOfStock")) is None
    assert work.amiss(ended("chaos-5-000014-fickle", "failed", error="Abandoned")) is None
    assert work.amiss(ended("chaos-5-000014-fickle", "done", "2")) is None
    assert work.amiss(ended("chaos-5-items/chaos-5-000003", "done")) is None
    assert (
        work.amiss(
            ended("chaos-5-000010-parent/part#1", "cancelled", parent="chaos-5-000010-parent")
        )
        is None
    )
    assert work.amiss(ended("somebody-elses", "failed")) is None


def test_run_that_failed_for_another_reason_or_has_another_result_is_told():
    work = Demo(5)
    wrong = work.amiss(ended("chaos-5-000004-failing", "failed", error="TypeError"))
    assert wrong.startswith("is failed by TypeError, but should be failed by OutOfStock:")
    assert "done with 7, but should be done with 1:" in work.amiss(
        ended("chaos-5-000001-order", "done", "7")
    )
    assert "should be done with 2 or failed by Abandoned" in work.amiss(
        ended("chaos-5-000014-fickle", "failed", error="Bug")
    )
    assert "is cancelled, but should be done" in work.amiss(
        ended("chaos-5-000013-order", "cancelled")
    )
    assert work.amiss(ended("chaos-5-items/chaos-5-000003", "cancelled"))
