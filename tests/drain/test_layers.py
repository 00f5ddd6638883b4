"""Layers 1 and 2: steps under way go on, none starts, and every run is given back at its next boundary."""

import asyncio
import threading
import time

import pytest

from outlast import Draining, Evicted, Outlast, current, receive, sleep, step, workflow
from outlast.define.unit import unit
from outlast.store.rows import SUSPECT_DEATHS
from outlast.store.verbs import Claim, Enlist, Release, Sweep
from outlast.testing import App

begun: list = []
ended: list = []


@pytest.fixture(autouse=True)
def _fresh():
    begun.clear()
    ended.clear()


@step
async def act(label: str, seconds: float = 0.0) -> str:
    begun.append(label)
    await asyncio.sleep(seconds)
    ended.append(label)
    return label


@step
def sync_act(label: str) -> str:
    begun.append(label)
    ended.append(label)
    return label


@workflow
async def chain(seconds: float = 5.0) -> list[str]:
    return [await act("a", seconds), await act("b", seconds), await act("c", seconds)]


@workflow
async def nap(seconds: float) -> str:
    await sleep(seconds)
    return "woken"


@workflow
async def letter() -> str:
    return await receive("go", str)


@workflow
async def one(label: str, seconds: float = 5.0) -> str:
    return await act(label, seconds)


WORKFLOWS = [chain, nap, letter, one]


def worker(store=None, **settings) -> App:
    settings = {"ramp": 0, "new_share": 0, "workflows": WORKFLOWS, **settings}
    return App(store, worker=True, **settings)


def drained(world, call, *, after: float = 1.0, grace: float | None = None, id: str = "run"):
    """Start a run, drain a moment later: the report and how long the drain took."""

    async def main(app):
        await app.start(call, id=id)
        await asyncio.sleep(after)
        began = app.clock()
        report = await app.drain("test", grace=grace)
        return report, app.clock() - began

    return world.do(main)


def last(world, id="run"):
    return world.journal(id)[-1]


# -- steps


def test_a_step_under_way_goes_on_and_is_recorded_and_none_follows(world):
    report, seconds = drained(world, chain())
    assert (begun, ended) == (["a"], ["a"])
    assert seconds == pytest.approx(4, abs=0.01), "no longer than the step"
    assert [entry.kind for entry in world.journal()] == ["step", "interruption"]
    assert (report.released, report.completed, report.left) == (1, 0, [])
    assert last(world).value is None or "drain: test" in str(last(world))
    world.restart()
    assert world.run(chain()) == ["a", "b", "c"]
    assert begun == ["a", "b", "c"], "nothing is done twice"


def test_a_run_whose_workflow_ends_in_the_drain_is_done(world):
    report, _ = drained(world, one("x"))
    assert (world.status(), report.completed, report.released) == ("done", 1, 0)


def test_a_run_whose_workflow_fails_in_the_drain_has_failed(world):
    @workflow
    async def failing() -> None:
        await act("a", 5)
        raise ValueError("no")

    report, _ = drained(world, failing())
    assert (world.status(), report.completed) == ("failed", 1)


def test_a_released_run_goes_before_new_work(world):
    drained(world, chain())
    world.restart()
    row = world.row()
    assert (row.status, row.worker, row.interruptions) == ("queued", None, 1)
    assert row.interrupted is not None

    async def main(app):
        for number in range(3):
            await app.submit(one(f"new {number}"), id=f"new-{number}")
        store = app.store
        store.hold("next")
        store.commit([Enlist("next", "host", 1, 1e6)])
        return [row.id for row in store.commit([Claim("next", "t", workflows=("chain", "one"))])[0]]

    assert world.do(main) == ["run"]


def test_no_run_is_released_with_a_result_that_it_has_not_seen(world):
    """The workflow's own code between two steps executes before it goes."""
    seen = []

    @workflow
    async def flow() -> None:
        seen.append(await act("a", 5))
        await act("b")

    drained(world, flow())
    assert seen == ["a"]


def test_of_gathered_steps_those_under_way_end_and_no_other_starts(world):
    @workflow
    async def flow() -> list[str]:
        limit = asyncio.Semaphore(3)

        async def limited(number):
            async with limit:
                return await act(str(number), 5 + number)

        return list(await asyncio.gather(*[limited(number) for number in range(8)]))

    report, _ = drained(world, flow())
    assert (begun, ended) == (["0", "1", "2"], ["0", "1", "2"])
    assert (report.released, report.left) == (1, [])
    assert world.kinds() == ["step"] * 3 + ["interruption"]
    world.restart()
    assert world.run(flow()) == [str(number) for number in range(8)]
    assert len(begun) == 8


def test_in_a_task_group_too(world):
    @workflow
    async def flow() -> list[str]:
        results = []

        async def two(label, seconds):
            results.append(await act(label, seconds))
            results.append(await act(label * 2, seconds))

        async with asyncio.TaskGroup() as group:
            group.create_task(two("x", 3))
            group.create_task(two("y", 6))
        return results

    _report, seconds = drained(world, flow())
    assert begun == ["x", "y"]
    assert seconds == pytest.approx(5, abs=0.01)
    world.restart()
    assert sorted(world.run(flow())) == ["x", "xx", "y", "yy"]
    assert len(begun) == 4


def test_in_a_loop_too(world):
    @workflow
    async def flow() -> int:
        count = 0
        while count < 10:
            await act(str(count), 3)
            count += 1
        return count

    drained(world, flow())
    assert begun == ["0"]


def test_a_workflow_that_catches_everything_starts_nothing_either(world):
    @workflow
    async def flow() -> str:
        for number in range(10):
            try:
                await act(str(number), 3)
            except BaseException:
                pass
        return "end"

    drained(world, flow())
    assert begun == ["0"]
    assert world.status() == "queued"


def test_in_a_sync_workflow_too(world):
    gate = threading.Event()

    @step
    def slow(label: str) -> str:
        begun.append(label)
        gate.wait(10)
        ended.append(label)
        return label

    @workflow
    def flow() -> list[str]:
        return [slow("a"), slow("b")]

    async def main(app):
        await app.start(flow(), id="run")
        while not begun:
            await asyncio.sleep(0)
        drain = asyncio.create_task(app.drain("test", grace=1e6))
        await asyncio.sleep(0)
        gate.set()
        return await drain

    report = world.do(main)
    assert (begun, ended) == (["a"], ["a"])
    assert (world.kinds(), report.released, report.left) == (["step", "interruption"], 1, [])
    world.restart()
    assert world.run(flow()) == ["a", "b"]
    assert begun == ["a", "b"]


def test_a_sync_workflow_that_ends_with_its_step_is_done(world):
    @workflow
    def flow() -> str:
        return sync_act("a")

    async def main(app):
        await app.start(flow(), id="run")
        while not begun:
            await asyncio.sleep(0)
        return await app.drain("test", grace=1e6)

    report = world.do(main)
    assert (world.status(), report.completed) == ("done", 1)


def test_a_step_stops_at_its_next_inner_step(world):
    @step
    async def outer() -> list[str]:
        return [await act("a", 5), await act("b", 5)]

    @workflow
    async def flow() -> list[str]:
        return await outer()

    report, _ = drained(world, flow())
    assert (begun, report.released, report.left) == (["a"], 1, [])
    assert world.kinds() == ["inner", "interruption"]
    world.restart()
    assert world.run(flow()) == ["a", "b"]
    assert begun == ["a", "b"]


def test_a_sync_step_stops_at_its_next_inner_step(world):
    gate = threading.Event()

    @step
    def inner(label: str) -> str:
        begun.append(label)
        gate.wait(10)
        return label

    @step
    def outer() -> list[str]:
        return [inner("a"), inner("b")]

    @workflow
    async def flow() -> list[str]:
        return await outer.aio()

    async def main(app):
        await app.start(flow(), id="run")
        while not begun:
            await asyncio.sleep(0)
        drain = asyncio.create_task(app.drain("test", grace=1e6))
        await asyncio.sleep(0)
        gate.set()
        return await drain

    report = world.do(main)
    assert (begun, report.released, report.left) == (["a"], 1, [])
    assert world.kinds() == ["inner", "interruption"]
    world.restart()
    assert world.run(flow()) == ["a", "b"]
    assert begun == ["a", "b"]


def test_an_inner_step_that_is_being_retried_is_left_to_the_next_life(world):
    @step(retries=5, backoff=100, backoff_max=100)
    async def flaky() -> str:
        begun.append("try")
        if len(begun) == 1:
            raise ValueError
        return "ok"

    @step
    async def outer() -> str:
        return await flaky()

    @workflow
    async def flow() -> str:
        return await outer()

    report, seconds = drained(world, flow())
    assert (begun, report.released, report.left) == (["try"], 1, [])
    assert seconds < 1
    world.restart()
    assert world.run(flow()) == "ok"


def test_a_step_that_waits_for_its_next_attempt_is_not_attempted_again(world):
    @step(retries=5, backoff=10, backoff_max=10)
    async def flaky() -> str:
        begun.append(current().attempt)
        if len(begun) < 2:
            raise ValueError
        return "ok"

    @workflow
    async def flow() -> str:
        return await flaky()

    report, seconds = drained(world, flow())
    assert (begun, report.left) == ([1], [])
    assert seconds < 1, "it is given back at once"
    assert world.row().worker is None
    world.restart(after=0.01)
    start = world.clock()
    assert world.run(flow()) == "ok"
    assert begun == [1, 2]
    assert world.clock() - start > 3, "and the pause is kept"


def test_an_attempt_that_fails_in_the_drain_is_recorded_and_the_next_is_another_lifes(world):
    @step(retries=3, backoff=1)
    async def flaky() -> str:
        begun.append(current().attempt)
        await asyncio.sleep(5)
        if len(begun) < 2:
            raise ValueError
        return "ok"

    @workflow
    async def flow() -> str:
        return await flaky()

    _report, _ = drained(world, flow())
    assert begun == [1]
    assert world.kinds() == ["attempt", "interruption"]
    world.restart()
    assert world.run(flow()) == "ok"
    assert begun == [1, 2]


def test_a_child_that_was_to_start_is_not_started(world):
    @workflow
    async def parent() -> str:
        await act("before", 5)
        return await one("child")

    report, _ = drained(world, parent())
    assert begun == ["before"]
    assert report.released == 1
    assert world.store.run("run/one#1") is None
    world.restart()
    assert world.run(parent()) == "child"


def test_a_cancelled_run_ends_its_step_and_is_cancelled(world):
    @workflow
    async def flow() -> str:
        try:
            return await act("a", 1000)
        finally:
            ended.append("cleaned")

    async def main(app):
        await app.start(flow(), id="run")
        await asyncio.sleep(1)
        drain = asyncio.create_task(app.drain("test"))
        await asyncio.sleep(1)
        await app.cancel("run", "enough")
        return await drain

    report = world.do(main)
    assert (world.status(), ended, report.completed) == ("cancelled", ["cleaned"], 1)


def test_a_run_in_cancellation_when_the_drain_begins_is_cancelled(world):
    @step
    async def careful() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(5)
            ended.append("careful")

    @workflow
    async def flow() -> None:
        await careful()

    async def main(app):
        await app.start(flow(), id="run")
        await asyncio.sleep(1)
        await app.cancel("run", "enough")
        await asyncio.sleep(1)
        return await app.drain("test")

    report = world.do(main)
    assert (world.status(), ended, report.completed) == ("cancelled", ["careful"], 1)


def test_a_run_that_times_out_in_the_drain_has_failed(world):
    @workflow(timeout=5)
    async def flow() -> str:
        return await act("a", 20)

    report, _ = drained(world, flow())
    assert (world.status(), report.completed) == ("failed", 1)


def test_a_timeout_of_the_workflows_own_still_holds_in_the_drain(world):
    @workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(5):
                return await act("a", 20)
        except TimeoutError:
            return "too slow"

    report, seconds = drained(world, flow())
    assert (world.status(), report.completed) == ("done", 1)
    assert seconds == pytest.approx(4, abs=0.1)


def test_a_life_that_is_still_replaying_starts_nothing(world):
    @workflow
    async def long() -> int:
        for number in range(450):
            await act(str(number))
        await act("live", 5)
        return 1

    world.die(long(), until=lambda: "live" in begun)
    begun.clear()

    async def main(app):
        await app.start(long(), id="run")
        while "run" not in app._open.lives:
            await asyncio.sleep(0)
        assert app._open.lives["run"].replaying
        return await app.drain("test")

    report = world.do(main)
    assert (begun, report.released, report.left) == ([], 1, [])
    world.restart()
    assert world.run(long()) == 1
    assert begun == ["live"]


def test_deferred_steps_of_a_gather_are_not_started_by_a_life_that_catches_up_in_a_drain(world):
    @workflow
    async def flow() -> list[str]:
        await act("first")
        return list(await asyncio.gather(*[act(label, 5) for label in "abc"]))

    world.die(flow(), until=lambda: len(begun) == 4)
    begun.clear()

    async def main(app):
        await app.start(flow(), id="run")
        while "run" not in app._open.lives:
            await asyncio.sleep(0)
        return await app.drain("test")

    world.do(main)
    assert begun == []
    world.restart()
    assert world.run(flow()) == ["a", "b", "c"]


def test_a_step_that_lets_draining_out_is_done_again_in_the_next_life(world):
    async def main(app):
        @step
        async def starter() -> str:
            begun.append("starter")
            await asyncio.sleep(5)
            await app.queue("q").put(1, id="one")
            return "put"

        @workflow
        async def flow() -> str:
            return await starter()

        run = await app.start(flow(), id="run")
        if len(begun) > 0 or app.store.run("q/one"):
            return await run.result()
        await asyncio.sleep(1)
        return await app.drain("test")

    report = world.do(main)
    assert (report.released, report.left, world.status()) == (1, [], "queued")
    assert world.kinds() == ["interruption"], "no failure is on record"


def test_a_step_with_retries_that_lets_draining_out_has_not_used_an_attempt(world):
    attempts = []

    async def main(app):
        @step(retries=1, backoff=0.1)
        async def starter() -> str:
            attempts.append(current().attempt)
            await asyncio.sleep(5)
            await app.queue("q").put(1, id="one")
            return "put"

        @workflow
        async def flow() -> str:
            return await starter()

        run = await app.start(flow(), id="run")
        if len(attempts) == 0:
            await asyncio.sleep(1)
            return await app.drain("test")
        return await run.result()

    world.do(main)
    assert "attempt" not in world.kinds()
    world.restart()
    assert world.do(main) == "put"
    assert attempts == [1, 1]


def test_draining_that_a_step_raises_without_a_drain_is_a_failure_like_any_other(world):
    @step
    async def odd() -> None:
        raise Draining("mine")

    @workflow
    async def flow() -> None:
        await odd()

    with pytest.raises(Draining, match="mine"):
        world.run(flow())
    assert world.status() == "failed"


# -- runs that wait


def test_a_sleeper_is_given_back_as_waiting_and_at_once(world):
    report, seconds = drained(world, nap(1000.0))
    row = world.row()
    assert (row.status, row.worker, row.interruptions) == ("waiting", None, 0)
    assert (report.waiting, report.released, report.left, seconds) == (1, 0, [], pytest.approx(0, abs=0.01))
    assert row.due == pytest.approx(world.clock() + 999, abs=1)
    world.restart()
    assert world.run(nap(1000.0)) == "woken"


def test_two_hundred_drains_in_a_row_do_not_make_a_sleeper_a_dead_letter():
    app = worker(interruptions_max=3)

    async def submit(app):
        await app.submit(nap(1e6), id="run")

    app.do(submit)
    for _ in range(200):

        async def main(app):
            await app.start(nap(1e6), id="run")
            await asyncio.sleep(1)
            assert app.store.run("run").status in ("running", "waiting")
            await app.drain("deploy")

        worker(app.store, clock=app.clock, interruptions_max=3).do(main)
    row = app.store.run("run")
    assert (row.status, row.interruptions, row.deaths) == ("waiting", 0, 0)


def test_who_waits_for_a_message_is_given_back_as_waiting_for_it(world):
    report, _ = drained(world, letter())
    assert (world.status(), report.waiting) == ("waiting", 1)
    world.restart()

    async def main(app):
        run = await app.start(letter(), id="run")
        await app.send("run", "go", "hello")
        return await run.result()

    assert world.do(main) == "hello"


def test_a_message_that_came_in_the_drain_makes_it_due_at_once(world):
    async def main(app):
        await app.start(letter(), id="run")
        await asyncio.sleep(1)
        await app.start(one("keeps the drain going", 20.0), id="slow")
        await asyncio.sleep(0.1)
        drain = asyncio.create_task(app.drain("test"))
        await app.send("run", "go", "hello")
        await drain
        return app.store.run("run")

    row = world.do(main)
    assert row.due <= world.clock()
    assert row.status in ("waiting", "queued", "done")


def test_a_parent_and_its_child_in_hand_are_both_given_back(world):
    @workflow
    async def parent() -> str:
        return await nap(1000.0)

    report, _ = drained(world, parent())
    assert (report.waiting, report.released, report.left) == (2, 0, [])
    assert (world.status(), world.status("run/nap#1")) == ("waiting", "waiting")
    world.restart()
    assert world.run(parent()) == "woken"


def test_a_parent_of_a_child_whose_step_is_under_way_is_waiting_and_woken_by_its_end(world):
    @workflow
    async def parent() -> str:
        return "child said " + await one("child", 8.0)

    report, _ = drained(world, parent())
    assert (report.waiting, report.completed, report.left) == (1, 1, [])
    row = world.row()
    assert (row.status, row.worker, row.interruptions) == ("waiting", None, 0)
    assert row.due <= world.clock(), "the child's end has made it due"
    world.restart()
    assert world.run(parent()) == "child said child"
    assert begun == ["child"]


def test_waiting_runs_go_first(world):
    async def main(app):
        await app.start(chain(), id="busy")
        await app.start(nap(1000.0), id="asleep")
        await asyncio.sleep(1)
        drain = asyncio.create_task(app.drain("test"))
        await asyncio.sleep(0.05)
        early = app.store.run("asleep").status, app.store.run("busy").status
        await drain
        return early

    assert world.do(main) == ("waiting", "running")


def test_a_run_that_sleeps_beside_its_step_waits_once_the_step_has_ended(world):
    @workflow
    async def flow() -> list:
        return list(await asyncio.gather(act("a", 5), sleep(1000)))

    report, _ = drained(world, flow())
    assert (world.status(), report.waiting, ended) == ("waiting", 1, ["a"])
    world.restart()
    assert world.run(flow()) == ["a", None]


def test_a_timer_that_fires_in_the_drain_starts_nothing(world):
    @workflow
    async def flow() -> list:
        async def later():
            await sleep(3)
            return await act("late")

        return list(await asyncio.gather(act("a", 6), later()))

    report, _ = drained(world, flow())
    assert begun == ["a"]
    assert (world.status(), report.released) == ("queued", 1)
    world.restart()
    assert world.run(flow()) == ["a", "late"]


# -- units


def test_steps_in_a_unit_start_in_a_drain_and_the_run_goes_when_it_has_ended(world):
    @workflow
    async def flow() -> list[str]:
        async with unit("order"):
            first = [await act("pay", 3), await act("ship", 3)]
        return [*first, await act("thank")]

    report, _ = drained(world, flow())
    assert (begun, report.released, report.left) == (["pay", "ship"], 1, [])
    world.restart()
    assert world.run(flow()) == ["pay", "ship", "thank"]
    assert begun == ["pay", "ship", "thank"]


def test_a_run_that_is_started_within_a_unit_is_not_in_it(world):
    async def main(app):
        async with app.unit("outside"):
            await app.start(chain(), id="run")
            await asyncio.sleep(1)
        await app.drain("test")

    world.do(main)
    assert begun == ["a"]


def test_inner_steps_of_a_run_that_was_started_within_a_unit_are_not_in_it(world):
    @step
    async def outer() -> list[str]:
        return [await act("a", 5), await act("b", 5)]

    @workflow
    async def flow() -> list[str]:
        return await outer()

    async def main(app):
        async with app.unit("outside"):
            await app.start(flow(), id="run")
            await asyncio.sleep(1)
        await app.drain("test")

    world.do(main)
    assert begun == ["a"]


def test_once_steps_are_told_to_stop_not_even_a_unit_starts_one(world):
    @step
    async def stubborn() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(2)

    @workflow
    async def flow() -> None:
        async def order():
            async with unit("order"):
                await sleep(16.5)
                await act("too late", 100)

        await asyncio.gather(order(), stubborn())

    report, _ = drained(world, flow(), grace=20)
    assert begun == []
    assert (report.checkpointed, report.left) == (1, [])


# -- what is refused, and what is not


def test_start_and_put_are_refused_and_submit_is_not(world):
    async def main(app):
        await app.drain("test")
        with pytest.raises(Draining, match="not started"):
            await app.start(one("x"), id="refused")
        with pytest.raises(Draining, match="put"):
            await app.queue("q").put(1)
        with pytest.raises(Draining):
            await app.queue("q").put_many([1])
        with pytest.raises(Draining):
            await app.queue("q").claim()
        await app.submit(one("x"), id="submitted")
        assert app.store.run("refused") is None
        return app.store.run("submitted").status, app.draining

    assert world.do(main) == ("queued", True)
    assert begun == []


def test_a_start_on_its_way_when_the_drain_begins_is_refused_or_given_back(world):
    async def main(app):
        starting = [asyncio.create_task(app.start(one(str(n)), id=f"run-{n}")) for n in range(5)]
        await asyncio.sleep(0)
        report = await app.drain("test")
        outcomes = await asyncio.gather(*starting, return_exceptions=True)
        rows = [app.store.run(f"run-{n}") for n in range(5)]
        return report, outcomes, rows

    report, outcomes, rows = world.do(main)
    assert begun == []
    for outcome, row in zip(outcomes, rows, strict=True):
        assert isinstance(outcome, Draining) or row is not None
        assert row is None or (row.status, row.worker, row.interrupted) == ("queued", None, None)
    assert report.left == []


# -- claims


def test_a_drained_worker_claims_nothing_more():
    async def main(app):
        await app.submit_many([one(str(n)) for n in range(3)])
        await asyncio.sleep(1)
        await app.drain("test")
        await app.submit_many([one(f"late {n}") for n in range(3)])
        await asyncio.sleep(100)
        return sorted(begun), (await app.queues())[0].queued

    assert worker().do(main) == (["0", "1", "2"], 3)


def test_claimed_runs_whose_journals_are_being_read_are_given_back_not_elevated():
    app = worker()

    async def first(app):
        await app.submit_many([chain() for n in range(3)], ids=["a", "b", "c"])
        await asyncio.sleep(6)
        await app.drain("first")

    app.do(first)
    before = {id: app.store.run(id) for id in "abc"}
    assert all(row.interruptions == 1 for row in before.values())
    reads = []

    async def second(app):
        house, journal = app._open, app.store.journal

        def slow(*args, **kwargs):
            if not reads:
                house.drain.begin("second")
            reads.append(args)
            return journal(*args, **kwargs)

        app.store.journal = slow
        try:
            report = None
            while report is None:
                await asyncio.sleep(0.1)
                report = house.drain.over.result() if house.drain.over.done() else None
        finally:
            del app.store.journal
        return report

    report = worker(app.store, clock=app.clock).do(second)
    assert reads
    assert (report.given_back, report.released, report.left) == (3, 0, [])
    for id in "abc":
        row = app.store.run(id)
        assert (row.status, row.worker, row.interruptions) == ("queued", None, 1)


def test_a_claim_that_was_committed_before_the_drain_and_answered_after_begins_nothing():
    app = worker()

    async def main(app):
        house = app._open
        await app.submit(one("x"), id="x", queue="elsewhere")
        claiming = asyncio.create_task(house.intake.claim(Claim(house.worker.id, "t", ids=("x",))))
        await asyncio.sleep(0)
        house.writer._flush()  # committed; the answer is on its way
        assert app.store.run("x").worker == house.worker.id
        drain = asyncio.create_task(app.drain("test"))
        rows = await claiming
        await house.intake.begin_claimed(rows)
        report = await drain
        return report, app.store.run("x"), len(house.room.hands)

    report, row, hands = app.do(main)
    assert (row.status, row.worker, row.interrupted, hands) == ("queued", None, None, 0)
    assert (report.given_back, begun) == (1, [])


def test_the_store_refuses_a_drained_worker():
    async def main(app):
        await app.submit(one("x"), id="x", queue="elsewhere")
        await app.drain("test")
        rows = await app._open.intake.claim(Claim(app._open.worker.id, "t", ids=("x",)))
        return rows, len(await app.workers())

    assert worker().do(main) == ([], 1)


def test_a_lost_lease_in_a_drain_is_no_reason_to_enlist_anew(world):
    async def main(app):
        await app.start(one("x", 10.0), id="run")
        await asyncio.sleep(1)
        drain = asyncio.create_task(app.drain("test"))
        await asyncio.sleep(1)
        worker = app._open.worker.id
        app.store._db.execute("DELETE FROM workers WHERE id = ?", (worker,))
        app.store.commit([Sweep()])
        app._open.worker._tell(worker)
        await drain
        return app._open.worker.id == worker, [row.id for row in app.store.workers()]

    assert world.do(main) == (True, [])


def test_a_run_that_is_waited_for_is_not_asked_for_again_and_again_after_the_drain(world):
    """`start` joined it where another worker had it; that one lets go of it while we drain."""

    async def main(app):
        store = app.store
        await app.submit(one("x"), id="run")
        store.hold("other")
        store.commit([Enlist("other", "host", 1, 1e6)])
        (row,) = store.commit([Claim("other", "t", ids=("run",))])[0]
        await app.start(one("x"), id="run")
        await asyncio.sleep(1)
        await app.drain("test")
        store.commit([Release(row.pk, row.fence, "drain")])
        await asyncio.sleep(10)
        before = app._open.writer.verbs
        await asyncio.sleep(1000)
        return app._open.writer.verbs - before

    world.settings = {"heartbeat": 0.2, "poll": 2.0, "lease": 1e7}
    assert world.do(main) < 5
    assert begun == []


# -- items


def test_handlers_under_way_end_and_are_acked_and_no_other_begins(world):
    async def main(app):
        queue = app.queue("q")
        await queue.put_many(list(range(5)), ids=[str(n) for n in range(5)])

        async def handle(item):
            begun.append(item.payload)
            await asyncio.sleep(5)
            ended.append(item.payload)

        consuming = asyncio.create_task(queue.consume(handle, concurrency=2))
        await asyncio.sleep(1)
        report = await app.drain("test")
        await asyncio.wait_for(consuming, 1)
        return report, await queue.size()

    world.settings = {"ramp": 0}
    report, size = world.do(main)
    assert (begun, ended, size) == ([0, 1], [0, 1], 3)
    assert (report.completed, report.left) == (2, [])
    assert {world.status(f"q/{n}") for n in (0, 1)} == {"done"}


def test_a_handler_that_fails_in_a_drain_is_nacked(world):
    async def main(app):
        queue = app.queue("q")
        await queue.put(1, id="one")

        async def handle(_):
            await asyncio.sleep(5)
            raise ValueError("no")

        asyncio.create_task(queue.consume(handle))
        await asyncio.sleep(1)
        return await app.drain("test")

    report = world.do(main)
    row = world.row("q/one")
    assert (row.status, row.failures, row.worker, report.completed) == ("queued", 1, None, 1)


def test_a_handler_that_does_not_end_in_time_gives_its_item_back_ahead_of_new_ones(world):
    async def main(app):
        queue = app.queue("q")
        await queue.put(1, id="one")

        async def handle(_):
            try:
                await asyncio.sleep(1000)
            finally:
                ended.append("cleaned")

        asyncio.create_task(queue.consume(handle))
        await asyncio.sleep(1)
        return await app.drain("test")

    report = world.do(main)
    row = world.row("q/one")
    assert (row.status, row.failures, row.interruptions, row.worker) == ("queued", 0, 1, None)
    assert (report.checkpointed, report.left, ended) == (1, [], ["cleaned"])


def test_an_item_claimed_by_hand_is_waited_for_and_counted(world):
    async def main(app):
        queue = app.queue("q")
        await queue.put(1, id="one")
        item = await queue.claim()
        drain = asyncio.create_task(app.drain("test"))
        await asyncio.sleep(5)
        assert not drain.done()
        await item.ack()
        began = app.clock()
        report = await drain
        return report, app.clock() - began

    report, seconds = world.do(main)
    assert (report.completed, report.left) == (1, [])
    assert seconds < 0.2
    assert world.status("q/one") == "done"


def test_an_item_that_its_handler_acked_itself_is_counted_once(world):
    async def main(app):
        queue = app.queue("q")
        await queue.put(1, id="one")

        async def handle(item):
            await asyncio.sleep(5)
            await item.ack()

        asyncio.create_task(queue.consume(handle))
        await asyncio.sleep(1)
        return await app.drain("test")

    assert world.do(main).completed == 1


def test_an_item_in_the_hands_of_a_program_that_does_nothing_with_it_is_left_and_goes_back_at_the_end(world):
    async def main(app):
        queue = app.queue("q")
        await queue.put(1, id="one")
        item = await queue.claim()
        report = await app.drain("test")
        assert app.store.run("q/one").worker is not None, "nobody knows what the program does with it"
        return item, report

    _, report = world.do(main)
    assert [(left.what, left.id) for left in report.left] == [("item", "q/one")]
    row = world.row("q/one")
    assert (row.status, row.worker, row.deaths) == ("queued", None, 0)


# -- one drain


def test_any_number_of_drains_is_one(world):
    async def main(app):
        await app.start(chain(), id="run")
        await asyncio.sleep(1)
        assert app._open.drain.begin("first")
        assert not app._open.drain.begin("second", grace=1)
        reports = await asyncio.gather(*[app.drain(f"again {n}", grace=n) for n in range(1, 4)])
        late = await app.drain("later")
        return reports, late, await app.drains()

    reports, late, stored = world.do(main)
    assert all(report is late for report in reports)
    assert (late.reason, late.released, len(stored)) == ("first", 1, 1)


def test_a_drain_of_an_app_with_nothing_in_hand_is_over_at_once(world):
    async def main(app):
        began = app.clock()
        report = await app.drain("test")
        return report, app.clock() - began

    report, seconds = world.do(main)
    counts = (report.completed, report.released, report.waiting, report.checkpointed, report.given_back)
    assert (counts, report.left, seconds) == ((0, 0, 0, 0, 0), [], 0.0)


@pytest.mark.parametrize("grace", [1e-6, 0.001, 1e9])
def test_whatever_the_grace_a_run_at_a_boundary_is_given_back(world, grace):
    async def main(app):
        await app.start(nap(1e6), id="run")
        await asyncio.sleep(1)
        await app.drain("test", grace=grace)
        await asyncio.sleep(1)

    world.do(main)
    assert (world.status(), world.row().worker) == ("waiting", None)


def test_leaving_the_block_in_a_drain_waits_for_it(world):
    async def main(app):
        await app.start(chain(), id="run")
        await asyncio.sleep(1)
        asyncio.create_task(app.drain("test"))
        await asyncio.sleep(0.1)

    world.do(main)
    assert ended == ["a"]
    assert world.kinds() == ["step", "interruption"]
    assert world.clock() - world.clock.start == pytest.approx(5, abs=0.1)


def test_who_waits_for_a_result_goes_on_waiting_for_the_next_worker(file_world):
    async def main(app):
        run = await app.start(chain(), id="run")
        waiting = asyncio.create_task(app.result("run"))
        also = asyncio.create_task(run.result())
        await asyncio.sleep(1)
        await app.drain("test")
        await asyncio.sleep(1)
        assert not waiting.done()
        async with file_world.another(worker=True, workflows=WORKFLOWS, ramp=0) as other:
            assert await asyncio.wait_for(other.result("run"), 1000) == ["a", "b", "c"]
            return await asyncio.wait_for(waiting, 100), await asyncio.wait_for(also, 100)

    assert file_world.do(main) == (["a", "b", "c"], ["a", "b", "c"])
    assert begun == ["a", "b", "c"]


def test_a_result_that_comes_in_the_drain_is_delivered_to_who_waits(world):
    async def main(app):
        run = await app.start(one("x"), id="run")
        waiting = asyncio.create_task(run.result())
        await asyncio.sleep(1)
        await app.drain("test")
        return await asyncio.wait_for(waiting, 1)

    assert world.do(main) == "x"


def test_a_suspect_that_executes_alone_is_drained_like_any_other():
    app = worker()

    async def prepare(app):
        await app.submit(chain(), id="suspect")
        for _ in range(SUSPECT_DEATHS):
            app.store.hold("dead")
            app.store.commit([Enlist("dead", "host", 1, 1e6)])
            app.store.commit([Claim("dead", "t", ids=("suspect",))])
            app.store.let_go("dead")
            app.store.commit([Sweep(backoff=0.0)])
        assert app.store.run("suspect").is_suspect

    App(app.store, clock=app.clock).do(prepare)

    async def main(app):
        while not begun:
            await asyncio.sleep(0.1)
        assert app._open.room.alone is not None
        await app.submit(one("other"), id="other")
        blocked = asyncio.create_task(app.start(one("blocked"), id="blocked"))
        await asyncio.sleep(0.1)
        report = await app.drain("test")
        with pytest.raises(Draining):
            await blocked
        return report

    report = app.do(main)
    assert (begun, report.released, report.left) == (["a"], 1, [])
    row = app.store.run("suspect")
    assert (row.status, row.deaths_in_a_row, row.worker) == ("queued", 0, None)


# -- real threads


async def _real(app, seconds=0.4):
    await app.start(one("x", seconds), id="run")
    while not begun:
        await asyncio.sleep(0.01)


def test_a_drain_may_be_begun_in_any_thread(address):
    async def main():
        async with Outlast(address, signals=0) as app:
            await _real(app)
            begun_by = []

            def begin():
                begun_by.append(app._open.drain.begin("from a thread"))

            threads = [threading.Thread(target=begin) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
            reason = await app.wait_drain()
            report = await app.drain("joined")
            return reason, sorted(begun_by), report

    reason, by, report = asyncio.run(main())
    assert (reason, by) == ("from a thread", [False] * 7 + [True])
    assert (report.completed, report.reason) == (1, "from a thread")


def test_layer_one_does_not_need_the_loop(address):
    async def main():
        async with Outlast(address, signals=0) as app:
            await _real(app)
            house = app._open
            thread = threading.Thread(target=house.drain.begin, args=("blocked",))
            thread.start()
            until = time.monotonic() + 5
            while not house.store.workers()[0].draining and time.monotonic() < until:
                time.sleep(0.001)  # the loop stands still
            seen = house.store.workers()[0].draining, app.face.ready()
            await app.drain()
            return seen

    draining, ready = asyncio.run(main())
    assert (draining, ready) == (1, "draining: blocked")


def test_a_hundred_runs_are_drained_with_nothing_lost_and_nothing_done_twice(address):
    async def first(store):
        async with Outlast(
            store, signals=0, worker=True, workflows=WORKFLOWS, ramp=0, concurrency=200
        ) as app:
            await app.submit_many([chain(0.05) for _ in range(100)], ids=[f"r{n}" for n in range(100)])
            while len(begun) < 120:
                await asyncio.sleep(0.001)
            report = await app.drain("test")
            statuses = [app._open.store.run(f"r{n}").status for n in range(100)]
            if "memory" in store:
                return report, statuses, len(begun)
        async with Outlast(
            store, signals=0, worker=True, workflows=WORKFLOWS, ramp=0, returned_rate=1e6
        ) as app:
            for number in range(100):
                assert await app.result(f"r{number}", timeout=30) == ["a", "b", "c"]
        return report, statuses, len(begun)

    report, statuses, count = asyncio.run(first(address))
    assert report.left == []
    assert "running" not in statuses
    held = report.completed + report.released
    assert held + report.given_back >= 1
    if "memory" not in address:
        assert count == 300


def test_evicted_is_what_a_workflow_of_a_released_run_sees(world):
    seen = []

    @workflow
    async def flow() -> None:
        try:
            await act("a", 5)
            await act("b")
        except BaseException as error:
            seen.append((type(error), str(error)))
            raise

    drained(world, flow())
    assert seen == [(Evicted, "drain: test")]


# -- anything, drained at any time


@step(retries=2, backoff=0.5)
async def piece(label: str, seconds: float, failures: int = 0) -> str:
    begun.append((label, current().attempt))
    await asyncio.sleep(seconds)
    if current().attempt <= failures:
        raise ValueError(label)
    ended.append(label)
    return label


@step
async def pieces(label: str) -> str:
    return await piece(f"{label}.1", 0.7) + await piece(f"{label}.2", 0.4, 1)


@workflow
async def little(label: str) -> str:
    await sleep(0.6)
    return await piece(label, 0.9)


@workflow
async def everything() -> list:
    async def ordered() -> str:
        async with unit("order"):
            return await piece("pay", 0.5) + await piece("ship", 0.5)

    async def timed() -> str:
        try:
            async with asyncio.timeout(1.3):
                return await piece("slow", 60)
        except TimeoutError:
            return "timed out"

    first = await piece("first", 0.3, 2)
    together = await asyncio.gather(
        ordered(),
        timed(),
        little("child"),
        pieces("inner"),
        piece("flaky", 0.8, 1),
        sleep(
            2,
        ),
    )
    return [first, *together, await little("last")]


RESULT = ["first", "payship", "timed out", "child", "inner.1inner.2", "flaky", None, "last"]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_run_does_drains_at_any_time_lose_nothing_and_redo_nothing(seed):
    """With grace enough for every step: each one is completed once, over however many processes."""
    import random

    chance = random.Random(seed)
    app, lives = App(seed=seed), 0
    while True:
        lives += 1
        pause = chance.uniform(0.0, 2.5)

        async def main(app, pause=pause):
            run = await app.start(everything(), id="run")
            waiting = asyncio.create_task(run.result())
            await asyncio.wait([waiting], timeout=pause)
            report = await app.drain("again")
            assert report.left == []
            assert report.checkpointed == 0
            rows = [row for row in await app.runs() if row.status == "running"]
            assert rows == [], "everything is given back"
            if waiting.done():
                return waiting.result()
            waiting.cancel()
            return None

        result = App(app.store, clock=app.clock, seed=seed + lives).do(main)
        app.clock.advance(chance.uniform(0.0, 1.0))
        if result is not None:
            break
        assert lives < 60
    assert result == RESULT
    assert sorted(ended) == sorted(set(ended)), "no step is completed twice"
    again = {one for one in begun if begun.count(one) > 1}
    assert again <= {("inner.2", 1)}, (
        "no attempt is made twice; those of a step within a step are not recorded"
    )


@pytest.mark.parametrize("seed", range(20))
def test_with_hardly_any_grace_only_what_was_under_way_is_redone(seed):
    import random

    chance = random.Random(seed)
    app, lives = App(seed=seed), 0
    while True:
        lives += 1
        pause = chance.uniform(0.5, 4.0)

        async def main(app, pause=pause):
            run = await app.start(everything(), id="run")
            waiting = asyncio.create_task(run.result())
            await asyncio.wait([waiting], timeout=pause)
            report = await app.drain("again", grace=0.2)
            assert report.left == []
            if waiting.done():
                return waiting.result()
            waiting.cancel()
            return None

        result = App(app.store, clock=app.clock, seed=seed + lives, interruptions_max=1000).do(main)
        if result is not None:
            break
        assert lives < 100
    assert result == RESULT
    assert len(ended) == len(set(ended)), "what has ended is not redone"


# -- who waits for something when the drain begins


def test_who_waits_for_an_item_is_told_at_once(world):
    async def main(app):
        waiting = asyncio.create_task(app.queue("q").claim(wait=1e6))
        await asyncio.sleep(1)
        await app.drain("test")
        began = app.clock()
        with pytest.raises(Draining):
            await waiting
        return app.clock() - began

    assert world.do(main) < 1


def test_a_consumer_with_nothing_in_hand_returns(world):
    async def main(app):
        consuming = asyncio.create_task(app.queue("q").consume(print))
        await asyncio.sleep(1)
        await app.drain("test")
        return await asyncio.wait_for(consuming, 1)

    assert world.do(main) is None


def test_a_step_that_asks_for_a_drain_and_waits_for_it_is_told_to_stop_like_any_other(world):
    async def main(app):
        @step
        async def suicidal() -> None:
            await app.drain("enough")

        @workflow
        async def flow() -> None:
            await suicidal()

        await app.start(flow(), id="run")
        await app.wait_drain()
        return await app.drain()

    report = world.do(main)
    assert (report.checkpointed, report.left, report.reason) == (1, [], "enough")


@pytest.mark.parametrize("end", ["waiting", "queued"])
def test_a_program_without_a_fleet_goes_on_with_a_parent_and_its_child(world, end):
    """Nobody but the parent's next life would take up the child."""

    @workflow
    async def parent() -> str:
        return "child said " + (await nap(50.0) if end == "waiting" else str(await chain()))

    report, _ = drained(world, parent())
    assert report.left == []
    world.restart()

    async def main(app):
        return await asyncio.wait_for((await app.start(parent(), id="run")).result(), 200)

    assert world.do(main).startswith("child said")


def test_a_workflow_in_a_thread_that_computes_past_the_end_keeps_its_run(address):
    gate = threading.Event()

    @workflow
    def computes() -> str:
        begun.append("computes")
        gate.wait(20)  # its own code, not a step
        return "end"

    async def main():
        async with Outlast(address, signals=0) as app:
            await app.start(computes(), id="run")
            while not begun:
                await asyncio.sleep(0.01)
            report = await app.drain("test", grace=1)
            held = app._open.store.run("run").worker is not None
            gate.set()
            until = time.monotonic() + 5
            while app._open.lives and time.monotonic() < until:
                await asyncio.sleep(0.01)
            return report.reason, held, app._open.store.run("run").status, app.face.drain_view()["under_way"]

    try:
        reason, held, status, under_way = asyncio.run(main())
    finally:
        gate.set()
    assert (reason, held, under_way) == ("test", True, [])
    assert status in ("queued", "done")


# -- the same with real threads and a real store


@step(name="in thread", retries=1, backoff=0.01)
def in_thread(label: str, seconds: float, failures: int = 0) -> str:
    begun.append((label, current().attempt))
    time.sleep(seconds)
    if current().attempt <= failures:
        raise ValueError(label)
    ended.append(label)
    return label


@step(name="outer in thread")
def outer_in_thread(label: str) -> str:
    return in_thread(f"{label}.1", 0.01) + in_thread(f"{label}.2", 0.02)


@workflow(name="sync part")
def sync_part(label: str) -> str:
    with unit("pair"):
        pair = in_thread(f"{label}.a", 0.01) + in_thread(f"{label}.b", 0.01)
    return pair + in_thread(f"{label}.c", 0.02, 1)


@workflow(name="mixed")
async def mixed(label: str) -> list:
    first = await in_thread.aio(f"{label}.first", 0.02, 1)
    rest = await asyncio.gather(
        sync_part(f"{label}.sync"),
        outer_in_thread.aio(f"{label}.outer"),
        sleep(0.05),
        act(f"{label}.act", 0.03),
    )
    return [first, *rest]


def test_drains_one_after_the_other_of_real_workers_lose_nothing_and_redo_nothing(tmp_path):
    count = 12

    async def once(number):
        settings = {"worker": True, "workflows": [mixed, sync_part], "ramp": 0, "returned_rate": 1e6}
        async with Outlast(f"sqlite:///{tmp_path}/a.db", signals=0, **settings) as app:
            if number == 0:
                await app.submit_many(
                    [mixed(str(n)) for n in range(count)], ids=[str(n) for n in range(count)]
                )
            rest = [app.result(str(n)) for n in range(count)]
            waiting = asyncio.gather(*rest)
            await asyncio.wait([waiting], timeout=0.03 + 0.02 * number)
            report = await app.drain("again")
            assert report.left == []
            assert report.blocked == []
            over = waiting.done()
            waiting.cancel()
            await asyncio.wait([waiting])
            statuses = {run.status for run in await app.runs()}
            assert "running" not in statuses, report
            return over

    for number in range(40):
        if asyncio.run(once(number)):
            break
    else:
        pytest.fail("it does not come to an end")
    assert sorted(ended) == sorted(set(ended)), "no step is completed twice"
    assert len(ended) == count * 7
    again = {one for one in begun if begun.count(one) > 1}
    assert again == set()
