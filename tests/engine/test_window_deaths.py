"""Processes that die, are frozen or lose an answer while they submit in a window."""

from __future__ import annotations

import asyncio

import pytest
from test_windows import index, ran, worker

from outlast import AlreadySubmitted, StoreUnavailable
from outlast.engine import actions
from outlast.engine.submission_windows import Debounce, OnRepeat, Window, run_id
from outlast.store.commands import Prune
from outlast.testing import App

REJECT = Window(60.0)
JOIN = Window(60.0, OnRepeat.JOIN)
REPLACE = Window(60.0, OnRepeat.REPLACE)
DEBOUNCE = Debounce(30.0)
BOUNDED = Debounce(30.0, 60.0)
POLICIES = [REJECT, JOIN, REPLACE, DEBOUNCE, BOUNDED]


async def submit(app, document: str, policy, token: str | None = None, seconds: float = 0.0):
    return await actions.submit_in_window(
        app._open,
        index(document, seconds),
        policy,
        id="doc",
        key=None,
        queue="default",
        priority=0,
        delay=0.0,
        wait=0.0,
        token=token,
    )


def before_submit(app, wait) -> None:
    """Let the next Submit of this app come `wait()` later, as if the process were frozen."""
    submissions = app._open.submissions
    enqueue = submissions.enqueue

    async def late(*args):
        submissions.enqueue = enqueue
        await wait()
        return await enqueue(*args)

    submissions.enqueue = late


def lose_answer(app) -> None:
    """Let the answer of the next Submit of this app get lost."""
    submissions = app._open.submissions
    enqueue = submissions.enqueue

    async def lost(*args):
        submissions.enqueue = enqueue
        await enqueue(*args)
        raise StoreUnavailable("the answer was lost")

    submissions.enqueue = lost


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_process_that_dies_before_its_submit_leaves_the_window_to_the_next(world, policy):
    async def dies(app):
        await app._open.windows._open("doc", policy, None)

    async def main(app):
        [pointer] = [(await app._open.windows._read("doc")).pointer]
        submitted = await submit(app, "v2", policy)
        assert submitted.id == run_id("doc", pointer.number)
        await asyncio.sleep(100)
        return await app.result(submitted.id)

    world.do(dies)
    world.restart(1.0)
    assert worker(world).do(main) == "v2"


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_repeat_of_a_submission_whose_answer_was_lost_is_harmless(world, policy):
    async def main(app):
        lose_answer(app)
        with pytest.raises(StoreUnavailable):
            await submit(app, "v1", policy, "token")
        repeat = await submit(app, "v1", policy, "token")
        assert len(await app.runs()) == 1
        assert app.store.run(repeat.id).seed == repeat.seed
        await asyncio.sleep(100)
        return await ran(app)

    assert [document for document, _ in worker(world).do(main)] == ["v1"]


@pytest.mark.parametrize("policy", [JOIN, DEBOUNCE], ids=str)
def test_a_repeat_after_the_run_has_ended_starts_no_other(world, policy):
    async def main(app):
        first = await submit(app, "v1", policy, "token")
        await asyncio.sleep(50)
        repeat = await submit(app, "v1", policy, "token")
        assert (repeat.id, repeat.seed, repeat.outcome.new) == (first.id, first.seed, False)
        second = await submit(app, "v2", policy, "other" if policy is DEBOUNCE else "token")
        await asyncio.sleep(50)
        # Its window is the one before the current one.
        again = await submit(app, "v1", policy, "token")
        assert again.id == first.id
        await asyncio.sleep(50)
        return [document for document, _ in await ran(app)], second.id == first.id

    expected = (["v1", "v2"], False) if policy is DEBOUNCE else (["v1"], True)
    assert worker(world).do(main) == expected


def test_a_claim_that_comes_first_makes_a_debounced_call_the_next_burst(world):
    async def main(app):
        first = await submit(app, "v1", DEBOUNCE)
        # The call has read the burst of v1, and comes when v1 executes.
        before_submit(app, lambda: asyncio.sleep(31))
        second = await submit(app, "v2", DEBOUNCE)
        assert second.id != first.id
        await asyncio.sleep(31)
        return await ran(app)

    found = worker(world).do(main)
    assert [document for document, _ in found] == ["v1", "v2"]
    assert found[1][1] - found[0][1] == pytest.approx(31, abs=1)


def test_a_claim_that_comes_first_is_cancelled_by_a_replacement(world):
    async def main(app):
        first = await submit(app, "v1", REPLACE, seconds=100)
        before_submit(app, lambda: asyncio.sleep(5))
        second = await submit(app, "v2", REPLACE)
        await asyncio.sleep(5)
        return [app.store.run(one.id).status for one in (first, second)]

    assert worker(world).do(main) == ["cancelled", "done"]


def test_process_that_dies_after_its_cancel_leaves_no_run_and_a_repeat_submits_one(world):
    async def main(app):
        first = await submit(app, "v1", REPLACE, seconds=100)
        await asyncio.sleep(5)
        await actions.cancel(app._open, first.id, "replaced")
        await asyncio.sleep(5)
        second = await submit(app, "v2", REPLACE)
        await asyncio.sleep(5)
        return [app.store.run(one.id).status for one in (first, second)]

    assert worker(world).do(main) == ["cancelled", "done"]


@pytest.mark.parametrize("policy", [REJECT, JOIN, DEBOUNCE], ids=str)
def test_caller_that_was_frozen_past_its_window_starts_no_second_run_in_it(world, policy):
    async def main(app):
        another = App(app.store, clock=world.clock)
        async with another:
            before_submit(app, lambda: asyncio.sleep(200))
            frozen = asyncio.create_task(submit(app, "frozen", policy))
            await asyncio.sleep(10)
            first = await submit(another, "v1", policy)
            await asyncio.sleep(90)
            second = await submit(another, "v2", policy)
            assert second.id != first.id
            try:
                late = (await frozen).id
            except AlreadySubmitted as error:
                late = error.id
            await asyncio.sleep(100)
            return late == first.id, late == second.id, [name for name, _ in await ran(app)]

    is_first, is_second, documents = worker(world).do(main)
    if policy is DEBOUNCE:
        # It is in no burst any more, so it begins one.
        assert documents == ["v1", "v2", "frozen"]
        assert (is_first, is_second) == (False, False)
    else:
        assert documents == ["v1", "v2"]
        assert (is_first, is_second) == (True, False)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_process_that_is_frozen_before_it_opens_the_window_finds_that_of_another(world, policy):
    async def main(app):
        another = App(app.store, clock=world.clock)
        async with another:
            windows = app._open.windows
            write = windows._write

            async def late(*args):
                windows._write = write
                await asyncio.sleep(10)
                return await write(*args)

            windows._write = late
            frozen = asyncio.create_task(submit(app, "frozen", policy))
            await asyncio.sleep(1)
            first = await submit(another, "v1", policy)
            try:
                late_id = (await frozen).id
            except AlreadySubmitted as error:
                late_id = error.id
            return first.id == late_id, len(await app.runs())

    # No worker claims the run.
    assert world.do(main) == (True, 1)


def test_window_whose_run_was_pruned_runs_again(world):
    async def main(app):
        first = await submit(app, "v1", JOIN)
        await asyncio.sleep(5)
        await app._open.writer.execute(Prune(app._open.store.now(), 10))
        second = await submit(app, "v2", JOIN)
        assert second.id == first.id
        await asyncio.sleep(5)
        return await app.result(second.id)

    assert worker(world).do(main) == "v2"


def test_burst_whose_run_was_pruned_is_debounced_again(world):
    async def main(app):
        first = await submit(app, "v1", BOUNDED)
        await asyncio.sleep(100)
        await app._open.writer.execute(Prune(app._open.store.now(), 10))
        second = await submit(app, "v2", BOUNDED)
        assert second.id != first.id
        row = app.store.run(second.id)
        return row.due - row.created

    assert worker(world).do(main) == pytest.approx(30.0)


def test_pointer_that_expired_is_forgotten_and_no_id_is_used_again(world):
    async def main(app):
        first = await submit(app, "v1", JOIN)
        await asyncio.sleep(40 * 86_400)
        assert await app._open.windows._read("doc") is None
        second = await submit(app, "v2", JOIN)
        await asyncio.sleep(5)
        return second.id != first.id, await app.result(second.id)

    assert worker(world).do(main) == (True, "v2")


def test_pointer_of_a_burst_that_waits_for_long_does_not_expire(world):
    async def main(app):
        first = await submit(app, "v0", DEBOUNCE)
        ids = {first.id}
        for number in range(3):
            await asyncio.sleep(20 * 86_400)
            ids.add((await submit(app, f"v{number}", DEBOUNCE)).id)
        return ids == {first.id}, len(await app.runs())

    # No worker claims the run.
    assert world.do(main) == (True, 1)


@pytest.mark.parametrize("back", [1.0, 40.0, 3600.0])
def test_clock_that_is_set_back_uses_no_id_again(world, back):
    async def main(app):
        first = await submit(app, "v1", DEBOUNCE)
        await asyncio.sleep(40)
        world.clock.advance(-back)
        second = await submit(app, "v2", DEBOUNCE)
        await asyncio.sleep(3700)
        return second.id != first.id, [name for name, _ in await ran(app)]

    assert worker(world).do(main) == (True, ["v1", "v2"])
