"""Old and new code side by side: no worker executes unknown workflows, and no run is broken by other code."""

import json

import pytest
from fleet_flows import gated
from fleet_new import only_new
from fleet_old import order, version
from fleet_tools import Fleet

from outlast import RunParked
from support.waiting import WAIT_SECONDS, wait_until


def test_worker_leaves_an_unknown_workflow_and_warns(fleet):
    fleet.make("gate")
    old = fleet.is_up(fleet.start(module="fleet_old"))
    fleet.submit([only_new(), gated("gate")], ["unknown", "known"])
    wait_until(lambda: fleet.status("known") == "done")
    wait_until(lambda: "Runs of workflow only_new wait for a worker that knows it" in old.errors)
    assert fleet.status("unknown") == "queued"
    new = fleet.start(module="fleet_new")
    fleet.until_all_are("done")
    assert {line.pid for line in fleet.lines() if line.run == "unknown"} == {new.pid}
    assert old.errors.count("Runs of workflow only_new wait") == 1, "it warns once"
    assert not old.has_ended


def test_old_and_new_workers_share_the_work(fleet):
    fleet.start(module="fleet_old", concurrency=2)
    fleet.start(module="fleet_new", concurrency=2)
    for worker in fleet.workers:
        fleet.is_up(worker)
    fleet.submit([version("gate")] * 4, [f"r{n}" for n in range(4)])
    wait_until(lambda: len(fleet.lines()) == 4)
    fleet.make("gate")
    fleet.until_all_are("done")
    assert (
        sorted(run["value"] for run in fleet.image().runs.values()) == ['"new"'] * 2 + ['"old"'] * 2
    )


def diverge(fleet: Fleet):
    """Start a run on old code and continue it on a worker with new code."""
    old = fleet.start(module="fleet_old")
    fleet.submit([order("a hat")], ["r"])
    wait_until(lambda: fleet.status("r") == "waiting")
    fleet.end(old)
    new = fleet.is_up(fleet.start(module="fleet_new"))
    fleet.do(lambda app: app.send("r", "go", "go on"))
    wait_until(lambda: fleet.status("r") == "parked")
    wait_until(lambda: fleet.hooks("parked"))
    return new


def test_run_that_diverges_on_new_code_can_be_resumed_on_old_code(fleet):
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
    fleet.end(new)
    old = fleet.start(module="fleet_old")

    async def resume(app):
        await app.resume("r")
        return await app.get(order, "r").result(timeout=WAIT_SECONDS)

    assert fleet.do(resume) == ["charged a hat", "go on", "shipped a hat", "old"]
    assert [line.key for line in fleet.lines()] == ["charge#1", "ship#1"]
    assert [line.pid for line in fleet.lines()][1:] == [old.pid]


def test_run_resumed_on_different_code_is_parked_again_unharmed(fleet):
    diverge(fleet)
    before = fleet.image().journals["r"]
    fleet.do(lambda app: app.resume("r"))
    wait_until(lambda: fleet.hooks("parked") == ["r", "r"])
    after = fleet.image()
    assert after.runs["r"]["status"] == "parked"
    assert [entry["kind"] for entry in after.journals["r"]] == [
        *(entry["kind"] for entry in before),
        "resume",
    ]
    assert len(fleet.lines()) == 1
    assert json.loads(before[0]["value"]) == "charged a hat"
