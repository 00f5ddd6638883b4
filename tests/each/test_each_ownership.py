"""Who may go through the items, and what a cancellation, a close or a drain does to it."""

import asyncio
import gc

import pytest
from each_tools import done_keys, stream, through

from outlast import (
    Conflict,
    Draining,
    LeaseLost,
    NotInStep,
    RunCancelled,
    WrongStatus,
    step,
    workflow,
)
from outlast.store.rows import RunQuery
from outlast.testing import App


def test_id_of_another_workflow_is_a_conflict(world):
    @workflow
    async def other() -> None: ...

    world.run(other(), id="job")
    with pytest.raises(Conflict):
        world.do(through("a"))


def test_each_refuses_the_id_of_a_map():
    async def main(app):
        await app.map(str.upper, "ab", id="job")
        async for _ in app.each("ab", id="job"):
            pass

    with pytest.raises(Conflict):
        App().do(main)


def test_two_at_once_in_one_process_are_an_error_and_not_a_deadlock():
    async def main(app):
        async for _ in app.each("ab", id="job"):
            async for _ in app.each("ab", id="job"):
                pass

    with pytest.raises(WrongStatus, match="already"):
        App().do(main)


def test_second_process_waits_and_does_only_what_the_first_has_not(file_world, caplog):
    other = file_world.another()

    async def main(app):
        async def second():
            return await through("abcd")(other)

        async with other:
            first = app.each("abcd", id="job")
            seen = [await anext(first) for _ in range(3)]
            task = asyncio.create_task(second())
            await asyncio.sleep(60)
            assert not task.done()
            await first.aclose()
            return seen, await task

    assert file_world.do(main) == (["a", "b", "c"], ["c", "d"])
    assert (
        len([one for one in caplog.messages if one.startswith("Run job is held by worker ")]) == 1
    )


def test_run_that_was_taken_away_is_a_lost_lease_and_the_record_is_refused(world):
    async def main(app):
        each = app.each("abc", id="job")
        await anext(each)
        row = world.row("job")
        from outlast.store.commands import Release

        world.store.commit([Release(row.pk, row.fence, "taken")])
        await anext(each)

    with pytest.raises(LeaseLost, match="job"):
        world.do(main)
    assert done_keys(world) == []
    assert world.do(through("abc")) == ["a", "b", "c"]


def test_one_that_is_cancelled_stops_at_the_next_item_and_says_how_to_go_on(world):
    async def main(app):
        seen = []
        try:
            async for item in app.each("abc", id="job"):
                seen.append(item)
                await app.cancel("job", "enough")
                await asyncio.sleep(1)
        except RunCancelled as cancelled:
            return seen, cancelled.reason

    assert world.do(main) == (["a"], "enough")
    assert world.status("job") == "cancelled"
    with pytest.raises(WrongStatus, match="outlast retry job"):
        world.do(through("abc"))

    async def again(app):
        await app.retry("job")
        return await through("abc")(app)

    assert world.do(again) == ["b", "c"]


def test_each_cancelled_while_no_process_held_it_raises_when_resumed(world):
    world.do(through("abc", upto=1))

    async def cancel(app):
        await app.cancel("job", "enough")

    world.do(cancel)
    with pytest.raises(RunCancelled):
        world.do(through("abc"))


def test_closing_the_app_in_the_middle_leaves_it_for_the_next(world):
    kept = []

    async def main(app):
        kept.append(app.each("ab", id="job"))
        await anext(kept[0])

    world.do(main)
    kept.clear()
    gc.collect()
    assert world.do(through("ab")) == ["a", "b"]


def test_in_a_workflow_it_says_what_to_use_there():
    async def main(app):
        @workflow
        async def flow() -> None:
            app.each("a", id="job")

        await (await app.start(flow())).result()

    with pytest.raises(NotInStep, match=r"outlast\.each"):
        App().do(main)


def test_each_of_an_app_may_run_inside_a_step(world):
    async def main(app):
        @step
        async def load() -> list[str]:
            return [item async for item in app.each("ab", id="job")]

        @workflow
        async def flow() -> list[str]:
            return await load()

        return await (await app.start(flow())).result()

    assert world.do(main) == ["a", "b"]


def test_drain_is_raised_at_the_next_item_and_never_ends_the_loop(world):
    async def main(app):
        seen = []
        try:
            async for item in app.each("abc", id="job"):
                seen.append(item)
                if item == "b":
                    drain = asyncio.create_task(app.drain("test"))
                    await asyncio.sleep(3)
                    assert not drain.done(), "it waits for the item"
        except Draining:
            report = await drain
            return seen, done_keys(world), report.left
        raise AssertionError("it ended")

    assert world.do(main) == (["a", "b"], ["a", "b"], [])
    assert world.status("job") == "waiting"
    world.restart()
    assert world.do(through("abc")) == ["c"]


def test_drain_on_the_last_item_is_raised_too(world):
    async def main(app):
        async for _ in app.each("a", id="job"):
            task = asyncio.create_task(app.drain("test"))
            await asyncio.sleep(0.01)
        await task

    with pytest.raises(Draining):
        world.do(main)
    assert world.status("job") == "waiting"


def test_drain_is_raised_while_a_stream_gives_nothing(world):
    async def main(app):
        each = app.each(stream("ab", pause=1e6), id="job")
        await anext(each)
        waiting = asyncio.create_task(anext(each))
        await asyncio.sleep(1)
        report = await app.drain("test")
        with pytest.raises(Draining):
            await waiting
        return report.seconds

    assert world.do(main) < 1
    assert done_keys(world) == ["a"]


def test_nothing_begins_in_a_drain(world):
    async def main(app):
        await app.drain("test")
        async for _ in app.each("ab", id="job"):
            raise AssertionError

    with pytest.raises(Draining):
        world.do(main)
    assert world.store.run("job") is None


def test_drain_waits_for_a_unit_that_goes_through_items(world):
    async def main(app):
        seen = []
        with app.unit("all of it"):
            async for item in app.each("abc", id="job"):
                seen.append(item)
                if item == "a":
                    task = asyncio.create_task(app.drain("test"))
                    await asyncio.sleep(1)
        await task
        return seen

    assert world.do(main) == ["a", "b", "c"]
    assert world.status("job") == "done"


def test_each_is_listed_as_a_waiting_run(world):
    world.do(through("ab", upto=1))

    async def main(app):
        return [(run.id, run.workflow, run.queue, run.status) for run in await app.runs()]

    assert world.do(main) == [("job", "(each)", "(each)", "waiting")]
    assert len(world.store.runs(RunQuery(items=False))) == 1


def test_drain_is_raised_before_the_first_item_too(world):
    async def main(app):
        each = asyncio.create_task(anext(app.each(stream("a", pause=1e6), id="job")))
        mapped = asyncio.create_task(app.map(str.upper, stream("a", pause=1e6), id="other"))
        await asyncio.sleep(1)
        report = await app.drain("test")
        for task in (each, mapped):
            with pytest.raises(Draining):
                await task
        return report.left

    assert world.do(main) == []
    assert world.store.run("job") is world.store.run("other") is None


def test_run_is_given_back_after_an_exception_that_cannot_be_shown(world):
    def items():
        yield "a"
        raise LookupError("\ud800" + "x" * 100_000)

    with pytest.raises(LookupError):
        world.do(through(items()))
    assert world.status("job") == "waiting"
