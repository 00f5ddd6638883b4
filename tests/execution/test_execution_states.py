"""Why an execution stops, and what becomes of its run, are two facts."""

import asyncio

import pytest

from outlast import NotInRun, RunParked, sleep, step, workflow
from outlast.engine.run_observer import RunObserver
from outlast.execution.execution_state import EndKind, EndReason, ExecutionState, OutcomeKind


@pytest.fixture
def ended(monkeypatch):
    """The end reason, the outcome and the state of every execution that ended."""
    found = []
    report = RunObserver.ended

    def watched(observer, execution, outcome):
        found.append((execution.end_reason.kind, outcome.kind, execution.state))
        report(observer, execution, outcome)

    monkeypatch.setattr(RunObserver, "ended", watched)
    return found


@step
async def one() -> int:
    return 1


@step
async def fail() -> int:
    raise ValueError("no")


def test_completed_run_is_done_and_not_evicted(world, ended):
    @workflow
    async def flow() -> int:
        return await one()

    assert world.run(flow()) == 1
    assert ended == [(EndKind.RETURNED, OutcomeKind.DONE, ExecutionState.ENDED)]


def test_failed_run_has_returned_too(world, ended):
    @workflow
    async def flow() -> int:
        return await fail()

    with pytest.raises(ValueError, match="no"):
        world.run(flow())
    assert ended == [(EndKind.RETURNED, OutcomeKind.FAILED, ExecutionState.ENDED)]


def test_refused_call_fails_the_run(world, ended):
    @workflow
    async def flow() -> None:
        await asyncio.to_thread(print)

    with pytest.raises(NotInRun):
        world.run(flow())
    assert ended == [(EndKind.RETURNED, OutcomeKind.FAILED, ExecutionState.ENDED)]


def test_diverged_run_is_parked(world, ended):
    @workflow(name="flow")
    async def before() -> None:
        await one()
        await sleep(100)

    @workflow(name="flow")
    async def after() -> None:
        await fail()

    world.die(before(), after=50)
    ended.clear()
    with pytest.raises(RunParked):
        world.run(after())
    assert ended == [(EndKind.DIVERGED, OutcomeKind.PARKED, ExecutionState.ENDED)]


def test_first_reason_stays_and_a_released_run_comes_back(world, ended):
    @workflow
    async def flow() -> int:
        await sleep(10)
        return await one()

    async def main(app):
        run = await app.start(flow(), id="run")
        await asyncio.sleep(1)
        execution = app._open.in_flight.executions["run"]
        assert (execution.state, execution.end_reason) == (ExecutionState.LIVE, None)
        execution.stop(EndReason.released("enough"))
        execution.stop(EndReason.lost("too late"))
        assert execution.state is ExecutionState.STOPPING
        return await run.result()

    assert world.do(main) == 1
    assert ended == [
        (EndKind.RELEASED, OutcomeKind.RELEASED, ExecutionState.ENDED),
        (EndKind.RETURNED, OutcomeKind.DONE, ExecutionState.ENDED),
    ]


def test_lost_run_is_lost_whatever_its_workflow_returned(world, ended):
    @workflow
    async def flow() -> int:
        await sleep(10)
        return 1

    async def main(app):
        run = await app.start(flow(), id="run")
        await asyncio.sleep(1)
        app._open.in_flight.executions["run"].stop(EndReason.lost("another worker has it"))
        await asyncio.sleep(0.1)
        return run

    world.do(main)
    assert ended[0] == (EndKind.LOST, OutcomeKind.LOST, ExecutionState.ENDED)
