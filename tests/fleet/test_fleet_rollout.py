"""Old code and new side by side: nobody executes what it does not know, and nobody's run is broken by the other's code."""

import json
import signal

import pytest
from fleet_flows import gated
from fleet_new import only_new
from fleet_old import order, version
from fleet_tools import Fleet, until

from outlast import RunParked


def stop(worker) -> None:
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.errors()


def test_a_worker_leaves_a_workflow_it_does_not_know_and_says_so(fleet):
    fleet.make("gate")
    old = fleet.is_up(fleet.start(module="fleet_old"))
    fleet.submit([only_new(), gated("gate")], ["unknown", "known"])
    until(lambda: fleet.status("known") == "done")
    until(lambda: "runs of workflow only_new wait for a worker that knows it" in old.errors())
    assert fleet.status("unknown") == "queued"
    new = fleet.start(module="fleet_new")
    fleet.until_all_are("done")
    assert {line.pid for line in fleet.lines() if line.run == "unknown"} == {new.pid}
    assert old.errors().count("runs of workflow only_new wait") == 1, "once, not at every look"
    assert not old.ended


def test_old_and_new_workers_side_by_side_share_the_work(fleet):
    fleet.start(module="fleet_old", concurrency=2)
    fleet.start(module="fleet_new", concurrency=2)
    for worker in fleet.workers:
        fleet.is_up(worker)
    fleet.submit([version()] * 20, [f"r{n}" for n in range(20)])
    fleet.until_all_are("done")
    assert {run["value"] for run in fleet.image().runs.values()} == {'"old"', '"new"'}
    assert len(fleet.lines()) == 20


def diverge(fleet: Fleet):
    """A run that began on old code and came to a worker with new code."""
    old = fleet.start(module="fleet_old")
    fleet.submit([order("a hat")], ["r"])
    until(lambda: fleet.status("r") == "waiting")
    stop(old)
    new = fleet.is_up(fleet.start(module="fleet_new"))
    fleet.do(lambda app: app.send("r", "go", "go on"))
    until(lambda: fleet.status("r") == "parked")
    until(lambda: fleet.hooks("parked"))
    return new


def test_a_run_that_diverges_on_new_code_is_parked_and_can_be_resumed_on_old(fleet):
    new = diverge(fleet)
    assert fleet.hooks("parked") == ["r"]
    assert [line.key for line in fleet.lines()] == ["charge#1"], "the new code has executed nothing"
    parked = fleet.image().runs["r"]
    assert "charge#1" in parked["reason"]
    assert "check#1" in parked["reason"]

    async def look(app):
        with pytest.raises(RunParked):
            await app.result("r")

    fleet.do(look)
    stop(new)
    old = fleet.start(module="fleet_old")

    async def resume(app):
        await app.resume("r")
        return await app.get(order, "r").result(timeout=20)

    assert fleet.do(resume) == ["charged a hat", "go on", "shipped a hat", "old"]
    assert [line.key for line in fleet.lines()] == ["charge#1", "ship#1"]
    assert [line.pid for line in fleet.lines()][1:] == [old.pid]


def test_resumed_where_the_code_still_differs_it_is_parked_again_and_nothing_is_harmed(fleet):
    diverge(fleet)
    before = fleet.image().journals["r"]
    fleet.do(lambda app: app.resume("r"))
    until(lambda: fleet.hooks("parked") == ["r", "r"])
    after = fleet.image()
    assert after.runs["r"]["status"] == "parked"
    assert [entry["kind"] for entry in after.journals["r"]] == [
        *(entry["kind"] for entry in before),
        "resume",
    ]
    assert len(fleet.lines()) == 1
    assert json.loads(before[0]["value"]) == "charged a hat"
