"""Layer 3: steps that will not end in time are told why, saved, cancelled, and given a moment to clean up."""

import asyncio
import threading
import time

import pytest

from outlast import Evicted, NotInRun, Outlast, current, sleep, step, workflow
from outlast.define.inside import progress
from outlast.store.verbs import Claim, Enlist
from outlast.testing import App

seen: list = []
GRACE = 30.0
TOLD = GRACE - 3 - 2.3
"""When steps are told to stop."""
OVER = GRACE - 2.3
"""When they must have."""


@pytest.fixture(autouse=True)
def _fresh():
    seen.clear()


def drained(world, *calls, after: float = 1.0, grace: float = GRACE, durations=()):
    """Start runs (run, run-1, ...), drain a moment later: the report, and how long it took."""

    async def main(app):
        for workflow_name, step_name, values in durations:
            for value in values:
                app._open.durations.add(workflow_name, step_name, value)
        for number, call in enumerate(calls):
            await app.start(call, id=f"run-{number}" if number else "run")
        await asyncio.sleep(after)
        began = app.clock()
        report = await app.drain("test", grace=grace)
        return report, app.clock() - began

    return world.do(main)


@step(name="long")
async def long(seconds: float = 1000.0) -> str:
    began = asyncio.get_running_loop().time()
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError as cancelled:
        seen.append(("cancelled", asyncio.get_running_loop().time() - began, str(cancelled)))
        raise
    return "end"


@workflow(name="lengthy")
async def lengthy(seconds: float = 1000.0) -> str:
    return await long(seconds)


@step(name="saving")
async def saving(seconds: float = 1000.0) -> str:
    async with progress(int) as p:
        seen.append(("from", p.value))
        try:
            for number in range((p.value or 0), int(seconds)):
                p.save(number)
                await asyncio.sleep(1)
        except asyncio.CancelledError as cancelled:
            seen.append(("cancelled", str(cancelled)))
            raise
        return "end"


@workflow(name="saver")
async def saver(seconds: float = 1000.0) -> str:
    return await saving(seconds)


# -- when


def test_a_step_without_progress_is_let_run_to_the_reserve(world):
    report, seconds = drained(world, lengthy(), durations=[("lengthy", "long", [1000.0] * 50)])
    ((_, at, why),) = seen
    assert at == pytest.approx(1 + TOLD, abs=0.2)
    assert why == "drain: test; its time is up"
    assert seconds == pytest.approx(TOLD, abs=0.2), "nothing is left to wait for"
    row = world.row()
    assert (row.status, row.worker, row.interruptions) == ("queued", None, 1)
    assert row.interrupted is not None, "ahead of new work"
    assert (report.checkpointed, report.released, report.left) == (1, 0, [])
    assert world.kinds() == ["interruption"]


def test_a_step_with_progress_and_bad_prospects_is_checkpointed_at_once(world):
    report, seconds = drained(world, saver(), after=5.5, durations=[("saver", "saving", [1000.0] * 5)])
    assert seconds < 0.2
    assert seen == [("from", None), ("cancelled", "drain: test; it will not end in the time left")]
    assert (report.checkpointed, report.left) == (1, [])
    world.restart()
    assert world.run(saver(20.0), id="other") == "end"
    seen.clear()
    world.die(saver(), after=1.5)
    assert seen == [("from", 5)], "the very last value was saved"


def test_a_step_with_progress_and_good_prospects_is_let_finish(world):
    report, seconds = drained(world, saver(15.0), durations=[("saver", "saving", [15.0] * 5)])
    assert seconds == pytest.approx(14, abs=0.2)
    assert (world.status(), report.completed, report.checkpointed) == ("done", 1, 0)


def test_a_step_with_progress_of_which_nothing_is_known_is_let_run_to_the_reserve(world):
    _, seconds = drained(world, saver(), durations=[("saver", "saving", [1000.0] * 4)])
    assert seconds == pytest.approx(TOLD, abs=0.2)


def test_prospects_are_judged_anew_as_time_passes(world):
    """Half of them end within the time left; once it has taken longer than those, none does."""
    _, seconds = drained(world, saver(), durations=[("saver", "saving", [10.0] * 4 + [1000.0] * 4)])
    assert seconds == pytest.approx(9, abs=0.2)


def test_what_another_process_has_measured_counts_too(world):
    from outlast.store.verbs import Measured

    async def main(app):
        app.store.commit([Measured(tuple(("saver", "saving", 1000.0) for _ in range(10)))])
        await app.start(saver(), id="run")
        await asyncio.sleep(5)
        began = app.clock()
        await app.drain("test")
        return app.clock() - began

    assert world.do(main) < 0.3


def test_the_reserves_are_cut_to_a_quarter_of_a_short_grace(world):
    _, seconds = drained(world, lengthy(), grace=4)
    assert seconds == pytest.approx(4 - 1 - 1 - 0.3, abs=0.15)


# -- what a checkpoint does


def test_it_has_the_reserve_to_clean_up(world):
    @step
    async def careful() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(2.5)
            seen.append("cleaned")

    @workflow
    async def flow() -> None:
        await careful()

    report, seconds = drained(world, flow())
    assert seen == ["cleaned"]
    assert seconds == pytest.approx(TOLD + 2.5, abs=0.2)
    assert (report.checkpointed, report.left, report.not_checkpointed) == (1, [], [])


def test_what_it_saves_while_it_cleans_up_is_saved(world):
    @step
    async def careful() -> None:
        async with progress(str) as p:
            seen.append(p.value)
            p.save("before")
            try:
                await asyncio.sleep(1000)
            finally:
                await asyncio.sleep(1)
                p.save("while cleaning up")

    @workflow
    async def flow() -> None:
        await careful()

    drained(world, flow())
    world.restart()
    world.die(flow(), after=1)
    assert seen == [None, "while cleaning up"]


def test_what_it_returns_after_it_was_told_is_not_recorded(world):
    @step
    async def cut() -> str:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            return "half an answer"
        return "an answer"

    @workflow
    async def flow() -> str:
        return await cut()

    report, _ = drained(world, flow())
    assert (world.status(), world.kinds(), report.checkpointed) == ("queued", ["interruption"], 1)


def test_what_it_raises_after_it_was_told_is_no_failure_and_no_attempt(world):
    @step(retries=1, backoff=0.001)
    async def cut() -> str:
        seen.append(current().attempt)
        try:
            await asyncio.sleep(1000 if len(seen) == 1 else 1)
        except asyncio.CancelledError:
            raise ConnectionError("the server hung up") from None
        return "an answer"

    @workflow
    async def flow() -> str:
        return await cut()

    drained(world, flow())
    assert world.kinds() == ["interruption"]
    world.restart()
    assert world.run(flow()) == "an answer"
    assert seen == [1, 1]


def test_the_other_steps_of_its_run_go_on(world):
    @workflow
    async def flow() -> list:
        return list(await asyncio.gather(saving(), long(15.0)))

    report, seconds = drained(world, flow(), durations=[(FLOW(flow), "saving", [1000.0] * 9)])
    assert seconds == pytest.approx(14, abs=0.2)
    assert ("cancelled", "drain: test; it will not end in the time left") in seen
    assert world.kinds() == ["step", "interruption"], "the one that could end did"
    assert (report.checkpointed, report.left) == (1, [])


def FLOW(workflow) -> str:
    return workflow.name


def test_a_workflow_does_not_hear_of_it_as_a_failure(world):
    @workflow
    async def flow() -> str:
        try:
            return await long()
        except Exception as error:
            seen.append(error)
            return "handled"

    drained(world, flow())
    assert [type(one) for one in seen] == [tuple]
    assert world.status() == "queued"


def test_a_step_that_its_workflow_cancels_in_the_reserve_is_cancelled(world):
    @step
    async def careful() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(2.5)

    @workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(1 + TOLD + 1):
                await careful()
        except TimeoutError:
            return "too slow"
        return "end"

    report, _ = drained(world, flow())
    assert report.left == []
    assert world.status() in ("done", "queued")
    world.restart()
    assert world.run(flow()) == "too slow"


def test_progress_is_written_at_once_whatever_the_interval(world):
    world.settings = {"progress_interval": 1e6}
    drained(world, saver(), after=7.5)
    world.restart()
    world.die(saver(), after=0.5)
    assert seen[0] == ("from", None)
    assert seen[-1] == ("from", int(7.5 + TOLD))


# -- what a step may ask


def test_a_step_may_ask_whether_and_how_long(world):
    @step
    async def asks() -> list:
        answers = [(current().draining, current().seconds_left)]
        while not current().draining:
            await asyncio.sleep(0.5)
        answers.append(current().seconds_left)
        await asyncio.sleep(10)
        answers.append(current().seconds_left)
        try:
            await asyncio.sleep(1000)
        finally:
            answers.append(current().seconds_left)
            await asyncio.sleep(1)
            answers.append(current().seconds_left)
            seen.extend(answers)

    @workflow
    async def flow() -> list:
        return await asks()

    drained(world, flow(), after=1.25)
    assert seen[0] == (False, None)
    assert seen[1] == pytest.approx(TOLD - 0.25, abs=0.05)
    assert seen[2] == pytest.approx(TOLD - 10.25, abs=0.05)
    assert seen[3] == pytest.approx(3, abs=0.15)
    assert seen[4] == pytest.approx(2, abs=0.15)


def test_a_step_that_stops_because_it_asked_is_not_cut_if_nobody_told_it_to(world):
    @step
    async def polite() -> str:
        for _ in range(1000):
            if current().draining:
                return "what I have"
            await asyncio.sleep(1)
        return "all"

    @workflow
    async def flow() -> str:
        return await polite()

    report, seconds = drained(world, flow(), after=2.5)
    assert (world.status(), report.completed) == ("done", 1)
    assert seconds < 1.1


def test_callbacks_are_told_why_and_once(world):
    @step
    async def listens() -> None:
        current().on_drain(lambda why: seen.append(("early", why)))
        while not current().draining:
            await asyncio.sleep(0.5)
        current().on_drain(lambda why: seen.append(("late", why)))
        await asyncio.sleep(1000)

    @workflow
    async def flow() -> None:
        await listens()

    drained(world, flow())
    assert seen == [("early", "test"), ("late", "test")]


def test_a_callback_that_fails_is_logged_and_the_others_are_told(world, caplog):
    def fails(why):
        raise RuntimeError("a callback's own trouble")

    @step
    async def listens() -> str:
        with pytest.raises(TypeError, match="takes a plain function"):
            current().on_drain(asyncio.sleep)
        current().on_drain(fails)
        current().on_drain(seen.append)
        await asyncio.sleep(5)
        return "end"

    @workflow
    async def flow() -> str:
        return await listens()

    report, _ = drained(world, flow())
    assert (seen, report.completed) == (["test"], 1)
    assert caplog.text.endswith("\nRuntimeError\n"), "what an error says is not logged"


def test_callbacks_of_an_attempt_that_is_over_are_not_called(world):
    @step(retries=1, backoff=0.001)
    async def listens() -> str:
        attempt = current().attempt
        current().on_drain(lambda why: seen.append(attempt))
        if attempt == 1:
            raise ValueError
        await asyncio.sleep(10)
        return "end"

    @workflow
    async def flow() -> str:
        return await listens()

    drained(world, flow())
    assert seen == [2]


def test_callbacks_of_an_inner_step_that_has_ended_are_not_called(world):
    @step
    async def part(name: str, seconds: float) -> None:
        current().on_drain(lambda why: seen.append(name))
        await asyncio.sleep(seconds)

    @step
    async def whole() -> None:
        current().on_drain(lambda why: seen.append("whole"))
        await part("ended", 0.1)
        await part("under way", 10)

    @workflow
    async def flow() -> None:
        await whole()

    drained(world, flow())
    assert seen == ["whole", "under way"]


def test_a_callback_may_be_set_from_a_thread(world):
    gate = threading.Event()

    @step
    def listens() -> str:
        current().on_drain(lambda why: (seen.append(why), gate.set()))
        gate.wait(10)
        return "end"

    @workflow
    async def flow() -> str:
        return await listens.aio()

    async def main(app):
        await app.start(flow(), id="run")
        while not any(body.listeners for life in app._open.lives.values() for body in life.bodies.values()):
            await asyncio.sleep(0)
        return await app.drain("test", grace=1e6)

    report = world.do(main)
    assert (seen, report.completed) == (["test"], 1)


def test_a_workflows_own_code_has_no_callbacks():
    @workflow
    async def flow() -> None:
        current().on_drain(print)

    with pytest.raises(NotInRun):
        App().run(flow())


# -- threads: in real time, they cannot be cancelled


def real(address, flow, *, grace=2.0, reserve=0.5, until=None, after=0.1, then=None):
    async def main():
        async with Outlast(address, signals=0, exit_reserve=0.3, checkpoint_reserve=reserve) as app:
            await app.start(flow, id="run")
            while until is not None and not until():
                await asyncio.sleep(0.005)
            await asyncio.sleep(after)
            report = await app.drain("test", grace=grace)
            store = app._open.store
            row = store.run("run")
            kinds = [entry.kind for entry in store.journal(row.pk)]
            if then is not None:
                await then(app, row)
            return report, row, kinds, store.progress(row.pk)

    return asyncio.run(main())


def test_a_thread_that_never_asked_and_ends_within_the_reserve_is_recorded():
    """Told at 4 - 1 - 0.6 = 2.4 s, over at 3.4 s."""

    @step
    def deaf() -> str:
        seen.append("begun")
        time.sleep(2.9)
        return "whole"

    @workflow
    async def flow() -> list:
        return [await deaf.aio(), await long()]

    report, row, kinds, _ = real("memory:", flow(), until=lambda: seen, after=0.0, grace=4.0, reserve=1.0)
    assert kinds == ["step", "interruption"]
    assert (row.status, report.left, report.checkpointed) == ("queued", [], 1)


def test_a_thread_that_asked_and_ends_within_the_reserve_is_not():
    @step
    def asks() -> str:
        seen.append("begun")
        while not current().draining:
            time.sleep(0.001)
        time.sleep(2.9)
        return "perhaps less"

    @workflow
    async def flow() -> str:
        return await asks.aio()

    report, row, kinds, _ = real("memory:", flow(), until=lambda: seen, grace=4.0, reserve=1.0)
    assert (row.status, kinds) == ("queued", ["interruption"])
    assert (report.checkpointed, report.left) == (1, [])


def test_a_thread_that_asked_and_ends_before_it_is_told_is_recorded():
    @step
    def asks() -> str:
        seen.append("begun")
        while not current().draining:
            time.sleep(0.001)
        return "what it has"

    @workflow
    async def flow() -> str:
        return await asks.aio()

    report, row, kinds, _ = real("memory:", flow(), until=lambda: seen, grace=4.0)
    assert (row.status, kinds, report.completed) == ("done", ["step"], 1)


def test_saving_is_where_a_thread_is_stopped(address):
    @step
    def saves() -> str:
        with progress(int) as p:
            number = 0
            while True:
                number += 1
                try:
                    p.save(number)
                except BaseException as error:
                    seen.append((type(error), str(error), number))
                    raise
                time.sleep(0.01)

    @workflow
    async def flow() -> str:
        return await saves.aio()

    report, row, kinds, stored = real(address, flow())
    ((kind, why, number),) = seen
    assert (kind, why) == (Evicted, "drain: test; its time is up")
    assert (row.status, kinds) == ("queued", ["interruption"])
    assert list(stored.values()) == [str(number)], "and what it brought is saved"
    assert (report.checkpointed, report.left) == (1, [])


# -- those that do not stop


def test_a_step_that_swallows_its_cancellation_keeps_its_run_until_it_ends(world):
    @step
    async def stubborn() -> str:
        for _ in range(100):
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                seen.append("swallowed")
        return "end"

    @workflow
    async def flow() -> str:
        return await stubborn()

    async def main(app):
        await app.start(flow(), id="run")
        await asyncio.sleep(1)
        began = app.clock()
        report = await app.drain("test")
        seconds = app.clock() - began
        left = [(one.what, one.id, one.step.rpartition(".")[2], one.why) for one in report.left]
        not_checkpointed = list(report.not_checkpointed)
        store = app.store
        held = store.run("run")
        store.hold("other")
        store.commit([Enlist("other", "host", 1, 1e6)])
        claimed = store.commit([Claim("other", "t", ids=("run",))])[0]
        await asyncio.sleep(200)
        after = store.run("run")
        return seconds, left, not_checkpointed, held, claimed, after

    seconds, left, not_checkpointed, held, claimed, after = world.do(main)
    assert seconds == pytest.approx(OVER, abs=0.2)
    assert left == [("run", "run", "stubborn#1", "it was told to stop and did not")]
    assert len(not_checkpointed) == 1
    assert (held.status, held.worker is None, claimed) == ("running", False, []), "nobody else may have it"
    assert (after.status, after.worker) == ("queued", None), "once it has ended it is anybody's"
    assert world.kinds() == ["interruption"], "what it returned was cut short"
    assert "swallowed" in seen


def test_a_hung_step_that_is_left_behind_when_the_block_is_left_is_in_the_report(world):
    @step
    async def stubborn() -> None:
        for _ in range(20):
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                seen.append("swallowed")

    @workflow
    async def flow() -> None:
        await stubborn()

    async def main(app):
        await app.start(flow(), id="run")
        await asyncio.sleep(1)
        app._open.drain.begin("test")

    world.do(main)
    (drain,) = world.store.drains(10)
    from outlast.drain.report import DrainReport

    report = DrainReport.of(drain)
    assert [(one.what, one.id) for one in report.left] == [("run", "run")]
    assert world.status() == "running", "it still executes"


def test_a_hung_thread_keeps_its_run(address):
    gate = threading.Event()

    @step
    def hangs() -> str:
        seen.append("begun")
        gate.wait(20)
        return "late"

    @workflow
    async def flow() -> str:
        return await hangs.aio()

    async def then(app, row):
        assert (row.status, row.worker) == ("running", app._open.worker.id)
        gate.set()
        until = time.monotonic() + 5
        while app._open.store.run("run").worker is not None and time.monotonic() < until:
            await asyncio.sleep(0.01)
        after = app._open.store.run("run")
        assert (after.status, after.worker) == ("queued", None)

    try:
        report, _, kinds, _ = real(address, flow(), until=lambda: seen, grace=1.0, then=then)
    finally:
        gate.set()
    assert kinds == []
    assert len(report.not_checkpointed) == 1


def test_waiting_runs_and_hung_ones_do_not_hold_each_other_up(world):
    @step
    async def stubborn() -> None:
        for _ in range(30):
            try:
                await asyncio.sleep(3)
            except asyncio.CancelledError:
                pass

    @workflow
    async def hanging() -> None:
        await stubborn()

    @workflow
    async def nap() -> None:
        await sleep(10_000)

    async def main(app):
        await app.start(hanging(), id="hangs")
        await app.start(nap(), id="sleeps")
        await app.start(lengthy(10.0), id="ends")
        await asyncio.sleep(1)
        report = await app.drain("test")
        return report, {id: app.store.run(id).status for id in ("hangs", "sleeps", "ends")}

    report, statuses = world.do(main)
    assert statuses == {"hangs": "running", "sleeps": "waiting", "ends": "done"}
    assert (report.waiting, report.completed, len(report.left)) == (1, 1, 1)


def test_a_cancellation_that_was_swallowed_once_is_not_repeated_before_the_end(world):
    """It may need an await of its own to clean up."""

    @step
    async def cleans() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(2)
            seen.append("cleaned")

    @workflow
    async def flow() -> None:
        await cleans()

    report, _ = drained(world, flow())
    assert (seen, report.left, report.checkpointed) == (["cleaned"], [], 1)


def test_who_is_in_a_hurry_leaves_at_once_with_what_can_be_released_released(world):
    async def main(app):
        await app.start(lengthy(), id="run")
        await asyncio.sleep(1)
        app._open.drain.begin("test")
        await asyncio.sleep(1)
        app._open.drain.hurry()

    world.do(main)
    assert world.clock() - world.clock.start < 3
    row = world.row()
    assert (row.status, row.worker, row.deaths) == ("queued", None, 0)


@pytest.mark.parametrize("seed", range(20))
def test_progress_only_grows_over_drains_and_deaths(seed):
    """Whatever ends a life, and whenever: the next goes on from a value that was saved, never from an older one than a drain saw."""
    import random

    chance = random.Random(seed)

    @step(name="counting")
    async def counting() -> int:
        async with progress(int) as p:
            number = p.value or 0
            seen.append(number)
            while number < 40:
                await asyncio.sleep(chance.uniform(0.01, 0.4))
                number += 1
                p.save(number)
            return number

    @workflow(name="counted")
    async def counted() -> int:
        return await counting()

    app = App(seed=seed, progress_interval=0.3)
    last = 0
    for life in range(200):

        async def main(app):
            run = await app.start(counted(), id="run")
            waiting = asyncio.create_task(run.result())
            await asyncio.wait([waiting], timeout=chance.uniform(0.0, 2.0))
            if waiting.done():
                return waiting.result()
            report = await app.drain("again", grace=1)
            assert report.left == []
            if waiting.done():
                return waiting.result()
            waiting.cancel()
            return None

        result = App(app.store, clock=app.clock, seed=seed + life, progress_interval=0.3).do(main)
        if result is not None:
            break
        saved = list(app.store.progress(app.store.run("run").pk).values())
        assert int(saved[0]) >= last if saved else last == 0
        last = int(saved[0]) if saved else 0
    assert result == 40
    assert seen == sorted(seen)
