"""Scopes and explicit keys work in sync workflows."""

from outlast.sync import scope, step, uuid, workflow


@step
def work(label: str) -> str:
    return label


@workflow
def agent() -> list[str]:
    with scope("agent"):
        found = [work("a"), work.keyed("k")("b"), str(uuid())]
    return [*found, work("c")]


def test_scope_of_a_sync_workflow_names_its_steps(world):
    found = world.run(agent(), id="r")
    assert found[:2] == ["a", "b"]
    assert world.keys("r") == ["agent#1/work#1", "agent#1/work[k]#1", "work#1"]
    assert world.replays(agent(), id="r") == found
