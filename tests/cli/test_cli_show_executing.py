"""`outlast show` names the steps that execute now."""

from __future__ import annotations

import json

from outlast.engine.executing_steps import EXECUTING
from outlast.store.commands import UpdateSession


def record(outlast, row, fence: int, *, attempt: int = 1) -> None:
    """Record, as its worker does, that a step of the run has been executing for 12 s."""
    started = row.created - 12.0
    steps = [["research#1", "research", "step", attempt, started]]
    fields = {str(row.pk): json.dumps([fence, steps])}
    outlast.commit(UpdateSession("living", f"t-{fence}", fields, 1e6, space=EXECUTING))


def test_show_names_a_step_that_executes_and_since_when(outlast):
    row = outlast.started("r1")
    record(outlast, row, row.fence, attempt=2)
    shown = outlast("show", "r1").out
    assert "Executing step research#1 for 12" in shown
    assert shown.rstrip().endswith(", attempt 2.")
    (step,) = outlast("show", "r1", "--json").json["executing"]
    assert (step["key"], step["kind"], step["attempt"]) == ("research#1", "step", 2)


def test_show_leaves_out_a_step_that_has_ended(outlast):
    row = outlast.started("r1")
    record(outlast, row, row.fence)
    outlast.entry(row, 1, "step", "research#1", value='"notes"', seconds=0.25)
    assert "Executing" not in outlast("show", "r1").out
    assert outlast("show", "r1", "--json").json["executing"] == []


def test_show_does_not_believe_a_worker_that_has_lost_the_run(outlast):
    row = outlast.started("r1")
    record(outlast, row, row.fence - 1)
    assert "Executing" not in outlast("show", "r1").out
