"""Steps, runs and recoveries are counted as they happen."""

import asyncio

import pytest
from meter_tools import child, numbers, plain

from outlast import Conflict, compensate_with, current, effect, receive, step, workflow
from outlast.telemetry import names

FAILING: set[str] = set()


@step(retries=2, backoff=0.01)
async def shaky() -> str:
    if current().attempt < 3:
        raise ConnectionError("again")
    return "at last"


@step
async def broken() -> None:
    raise ValueError("no")


@effect(timeout=5)
async def charge(cents: int) -> str:
    return f"charged {cents}"


@charge.compensate
async def refund(result: str) -> None:
    if "refund" in FAILING:
        raise ConnectionError("the bank is closed")


@workflow
async def everything() -> str:
    await plain("a")
    await shaky()
    await child()
    await charge(5)
    return "done"


@workflow
async def two() -> str:
    return await plain("a") + await plain("b")


@workflow
async def fails() -> None:
    await charge(7)
    await compensate_with(refund, "of the workflow's own")
    await broken()


@workflow
async def cancels() -> None:
    task = asyncio.ensure_future(plain("b"))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.wait([task])


def after(world, *calls, then=()):
    async def main(app):
        for number, call in enumerate(calls):
            run = await app.start(call, id=f"run-{number}")
            await app._open.runs.wait_until_ended(run.id)
        await asyncio.sleep(0.01)  # hooks
        return {metric.name: numbers(app, metric.name) for metric in names.METRICS}

    return world.do(main)


@pytest.fixture(autouse=True)
def _fixed():
    FAILING.clear()


def test_steps_are_counted_by_kind_and_outcome(world):
    found = after(world, everything(), fails(), cancels())
    assert found["outlast_steps_total"] == {
        ("everything", "plain", "step", "done"): 1,
        ("everything", "inner", "inner", "done"): 1,
        ("everything", "shaky", "step", "retried"): 2,
        ("everything", "shaky", "step", "done"): 1,
        ("everything", "child", "child", "done"): 1,
        ("everything", "charge", "effect", "done"): 1,
        ("child", "plain", "step", "done"): 1,
        ("child", "inner", "inner", "done"): 1,
        ("fails", "charge", "effect", "done"): 1,
        ("fails", "broken", "step", "failed"): 1,
        ("fails", "refund", "effect", "done"): 2,
        ("cancels", "plain", "step", "cancelled"): 1,
    }
    assert found["outlast_step_seconds"]["everything", "plain"] == 1
    assert found["outlast_step_seconds"]["everything", "shaky"] == 1, "attempts that succeeded"
    assert ("fails", "broken") not in found["outlast_step_seconds"]
    assert found["outlast_runs_total"] == {
        ("everything", "done"): 1,
        ("child", "done"): 1,
        ("fails", "undoing"): 1,
        ("fails", "failed"): 1,
        ("cancels", "done"): 1,
    }
    assert found["outlast_compensations_total"] == {
        ("registered",): 3,
        ("done",): 2,
        ("failed",): 0,
    }
    assert found["outlast_parked_total"] == {}


def test_step_duration_is_in_the_right_bucket(world):
    async def main(app):
        await (await app.start(everything(), id="run")).result()
        return [one for one in app.status_provider.samples() if one.name == "outlast_step_seconds"]

    (plain_took,) = [
        one for one in world.do(main) if one.labels == {"workflow": "everything", "step": "plain"}
    ]
    assert plain_took.value == pytest.approx(1.2, abs=0.01)
    assert dict(plain_took.buckets)["1.0"] == 0
    assert dict(plain_took.buckets)["2.5"] == dict(plain_took.buckets)["+Inf"] == 1


def test_failed_compensation_and_parked_run_are_counted(world):
    FAILING.add("refund")
    found = after(world, fails())
    assert found["outlast_compensations_total"]["failed",] == 1
    assert found["outlast_parked_total"] == {("default",): 1}
    assert found["outlast_runs_total"]["fails", "parked"] == 1


@effect(timeout=1)
async def send() -> str:
    await asyncio.sleep(1000)
    return "sent"


@workflow
async def sends() -> str:
    return await send()


def test_decided_effect_has_no_duration(world):
    assert after(world, sends())["outlast_parked_total"] == {("default",): 1}

    async def main(app):
        await app.decide("run-0", "send", happened="sent by hand")
        assert await (await app.start(sends(), id="run-0")).result() == "sent by hand"
        ends = {labels: count for labels, count in numbers(app, "outlast_steps_total").items() if "done" in labels}  # fmt: skip
        return (
            ends,
            numbers(app, "outlast_step_seconds"),
            list(app._open.services.steps.durations.fresh()),
        )

    assert world.do(main) == ({("sends", "send", "effect", "done"): 1}, {}, [])


@workflow
async def called_otherwise(name: str) -> None:
    try:
        await one_child(name)
    except Conflict:
        return


@workflow
async def one_child(name: str) -> None: ...


def test_child_that_cannot_start_counts_as_failed_step(world):
    async def main(app):
        other = await app.start(waits(), id="run/one_child#1")
        await (await app.start(called_otherwise("a"), id="run")).result()
        await app.cancel(other.id)
        return numbers(app, "outlast_steps_total")

    assert world.do(main) == {("called_otherwise", "one_child", "child", "failed"): 1}


def test_death_is_counted_by_the_worker_that_recovers_the_run(world):
    world.die(two(), id="run-0", after=1.3, gap=4.0)
    found = after(world, two())
    assert found["outlast_replayed_steps_total"] == {("two",): 1}
    assert found["outlast_recovery_seconds"] == {("interruption",): 0, ("death",): 1}
    assert found["outlast_deaths_total"] == {(): 1}
    assert found["outlast_cost_saved_total"] == {("tokens",): 100}
    assert found["outlast_steps_total"]["two", "plain", "step", "done"] == 1, "the second one"


def test_drained_run_is_counted_as_interruption(world):
    async def begin(app):
        await app.start(two(), id="run-0")
        await asyncio.sleep(1.3)
        await app.drain("test")
        return numbers(app, "outlast_runs_total"), numbers(app, "outlast_recovery_seconds")

    assert world.do(begin) == ({("two", "released"): 1}, {("interruption",): 0, ("death",): 0})
    world.restart(after=7.0)
    found = after(world, two())
    assert found["outlast_recovery_seconds"] == {("interruption",): 1, ("death",): 0}
    assert found["outlast_deaths_total"] == {(): 0}


@workflow
async def waits() -> str:
    return await receive("word", str)


def test_woken_run_does_not_count_as_recovered(world):
    world.die(waits(), after=0.1, gap=1.0)  # the only entry of its journal: a death

    async def taken_up(app):
        await app.start(waits(), id="run")
        await asyncio.sleep(5)
        await app.drain("test")
        return numbers(app, "outlast_recovery_seconds")["death",], numbers(
            app, "outlast_runs_total"
        )

    assert world.do(taken_up) == (1, {("waits", "waiting"): 1})
    world.restart(after=5 * 3600.0)

    async def woken(app):
        run = await app.start(waits(), id="run")
        await app.send("run", "word", "now")
        await run.result()
        return numbers(app, "outlast_recovery_seconds")

    assert world.do(woken) == {("interruption",): 0, ("death",): 0}


def test_disabled_metrics_count_and_export_nothing(world):
    world.settings = {"metrics": 0}

    async def main(app):
        await (await app.start(everything(), id="run")).result()
        app.status_provider.refresh()
        return (
            list(app.status_provider.samples()),
            app._open.services.metrics.steps.counts,
            app._open.writer.commits,
        )

    assert world.do(main) == ([], {}, ())
