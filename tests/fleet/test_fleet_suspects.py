"""How soon a suspect gets a worker to itself. One process, on the virtual clock."""

import asyncio

import pytest
from fleet_tools import die_elsewhere

from outlast import step, workflow
from outlast.engine.claim_pacer import FIRST_SLOTS
from outlast.store.commands import RegisterWorker, Sweep
from outlast.testing import App

begun: list[str] = []
gates: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def _fresh():
    begun.clear()
    gates.clear()


@step
async def note(label: str) -> str:
    begun.append(label)
    return label


@step
async def pass_gate(label: str) -> None:
    await gates[label].wait()


@workflow
async def job(label: str) -> str:
    return await note(label)


@workflow
async def gated(label: str) -> str:
    """Record something, then wait for the gate."""
    await note(label)
    await pass_gate(label)
    return label


def worker(**settings) -> App:
    return App(
        worker=True,
        workflows=[job, gated],
        **{"ramp": 0, "new_share": 0, "suspect_patience": 1000.0, **settings},
    )


async def with_two_runs_in_hand(app) -> None:
    for label in ("busy", "busier"):
        gates[label] = asyncio.Event()
        await app.submit(gated(label), id=label)
    while len(begun) < 2:
        await asyncio.sleep(0.1)


def test_busy_worker_makes_room_for_a_suspect_at_once_where_no_worker_is_idle():
    async def main(app):
        await with_two_runs_in_hand(app)
        await die_elsewhere(app, app._open.submissions.for_call(job("suspect"), "suspect"))
        await asyncio.sleep(1)
        late = await app.submit(job("late"))
        await asyncio.sleep(5)
        assert begun == ["busy", "busier"]
        for gate in gates.values():
            gate.set()
        assert await late.result(timeout=10) == "late"
        assert begun == ["busy", "busier", "suspect", "late"]

    worker().do(main)


def test_busy_worker_leaves_a_suspect_to_an_idle_one_and_makes_room_when_its_patience_is_over():
    async def main(app):
        engine = app._open
        engine.store.acquire_liveness("idle")
        await engine.writer.execute(
            RegisterWorker("idle", "host", 1, 1e6, ("default",), ("job",), 5)
        )
        await with_two_runs_in_hand(app)
        await die_elsewhere(app, engine.submissions.for_call(job("suspect"), "suspect"))
        await asyncio.sleep(1)
        late = await app.submit(job("late"))
        assert await late.result(timeout=10) == "late"
        assert not engine.isolation.suspends_claims
        await asyncio.sleep(250)
        assert engine.isolation.suspends_claims
        assert begun == ["busy", "busier", "late"]

    worker(suspect_patience=100.0).do(main)


def test_suspect_that_came_due_while_no_worker_lived_goes_first_on_a_new_one():
    app = worker()

    async def prepare(app):
        await app.submit(job("other"))
        await die_elsewhere(
            app, app._open.submissions.for_call(gated("suspect"), "suspect"), backoff=5.0
        )
        await asyncio.sleep(10)

    App(app.store, clock=app.clock).do(prepare)

    async def main(app):
        gates["suspect"] = asyncio.Event()
        gates["suspect"].set()
        await asyncio.sleep(1)
        assert begun == ["suspect", "other"]

    app.do(main)


def test_worker_that_executed_a_suspect_takes_the_next_one_before_other_work():
    app = worker()

    async def prepare(app):
        for id in ("one", "two"):
            await die_elsewhere(app, app._open.submissions.for_call(gated(id), id))
        await app.submit(job("other"))

    App(app.store, clock=app.clock).do(prepare)

    async def main(app):
        gates.update(one=asyncio.Event(), two=asyncio.Event())
        await asyncio.sleep(5)
        assert begun == ["one"]
        gates["one"].set()
        await asyncio.sleep(5)
        assert begun[:2] == ["one", "two"]
        gates["two"].set()

    app.do(main)


def test_suspect_that_recorded_something_no_longer_keeps_other_work_away():
    app = worker()

    async def prepare(app):
        await die_elsewhere(app, app._open.submissions.for_call(gated("suspect"), "suspect"))
        await app.submit(job("other"))

    App(app.store, clock=app.clock).do(prepare)

    async def main(app):
        gates["suspect"] = asyncio.Event()
        await asyncio.sleep(5)
        assert begun == ["suspect", "other"]
        gates["suspect"].set()

    app.do(main)


def test_new_worker_takes_over_several_runs_of_a_dead_one_at_once():
    app = worker(ramp=1000.0, concurrency=20)

    async def prepare(app):
        engine = app._open
        engine.store.acquire_liveness("dead")
        await engine.writer.execute(RegisterWorker("dead", "host", 1, 1e6))
        for number in range(FIRST_SLOTS):
            label = f"r{number}"
            await engine.writer.execute(
                engine.submissions.for_call(gated(label), label)._replace(worker="dead")
            )
        engine.store.release_liveness("dead")
        await engine.writer.execute(Sweep())

    App(app.store, clock=app.clock).do(prepare)

    async def main(app):
        gates.update({f"r{number}": asyncio.Event() for number in range(FIRST_SLOTS)})
        await asyncio.sleep(1)
        assert len(begun) == FIRST_SLOTS

    app.do(main)
