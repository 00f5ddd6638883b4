"""Steps that wait long for a limiter: their run is released, and no attempt is used up."""

from __future__ import annotations

import asyncio

import pytest

import outlast.sync
from outlast import current, effect, limiter, step, workflow
from outlast.engine.limiter_queue import LIMITERS, STATE
from outlast.engine.limiter_state import LimiterState
from outlast.testing import App

PERIOD = 60.0


def worker(world, *workflows, **settings) -> App:
    options = {"ramp": 0, "poll": 5.0, "heartbeat": 1e4, "lease": 1e6, "concurrency": 1}
    return App(
        world.open(), clock=world.clock, worker=True, workflows=workflows, **(options | settings)
    )


def line_of(store) -> list:
    return LimiterState.read(store.session("model", LIMITERS).fields[STATE]).tickets


def asking(times: list[float], world, *, retries: int = 0, hold: float = 5.0):
    """Return a workflow of one step that uses a limiter of one call a minute."""
    model = limiter("model", requests="1/1m", hold=hold)

    @step(retries=retries, backoff=1)
    async def ask() -> int:
        async with model.use():
            times.append(world.clock.elapsed)
        return current().attempt

    @workflow
    async def one() -> int:
        return await ask()

    return one


def test_waiting_run_is_released_and_its_slot_is_free(memory_world):
    times: list[float] = []
    one = asking(times, memory_world)

    @workflow
    async def other() -> str:
        return "done"

    async def main(app):
        runs = [await app.submit(one(), id=f"r{number}") for number in range(2)]
        await asyncio.sleep(20)
        statuses = sorted([info.status for info in await app.runs()])
        # The only slot is free for other work.
        quick = await app.submit(other())
        assert await quick.result(timeout=20) == "done"
        for run in runs:
            await run.result()
        return statuses

    assert worker(memory_world, one, other).do(main) == ["done", "waiting"]
    assert times[1] - times[0] >= PERIOD


def test_postponed_step_uses_up_no_attempt(memory_world):
    times: list[float] = []
    one = asking(times, memory_world)

    async def main(app):
        runs = [await app.submit(one(), id=f"r{number}") for number in range(4)]
        return [await run.result() for run in runs]

    assert worker(memory_world, one).do(main) == [1, 1, 1, 1]
    assert len(times) == 4


def test_postponed_steps_keep_their_places(memory_world):
    model = limiter("model", requests="1/1m")
    began: list[int] = []

    @step
    async def ask(number: int) -> None:
        async with model.use():
            began.append(number)

    @workflow
    async def one(number: int) -> None:
        await ask(number)

    async def main(app):
        runs = []
        for number in range(6):
            runs.append(await app.submit(one(number), id=f"r{number}"))
            await asyncio.sleep(7)
        for run in runs:
            await run.result()

    worker(memory_world, one, concurrency=3).do(main)
    assert began == list(range(6))


def test_failed_attempts_are_counted_as_without_a_limiter(memory_world):
    model = limiter("model", requests="1/1m")
    attempts: list[int] = []

    @step(retries=2, backoff=1)
    async def ask() -> int:
        async with model.use():
            attempts.append(current().attempt)
            if len(attempts) < 3:
                raise OSError
        return current().attempt

    @workflow
    async def one() -> int:
        return await ask()

    async def main(app):
        return await (await app.submit(one())).result()

    assert worker(memory_world, one).do(main) == 3
    assert attempts == [1, 2, 3]


def test_process_without_a_worker_waits_and_repeats_the_body(memory_world):
    times: list[float] = []
    one = asking(times, memory_world)

    async def main(app):
        runs = [await app.start(one(), id=f"r{number}") for number in range(3)]
        return [await run.result() for run in runs]

    assert memory_world.do(main) == [1, 1, 1]
    assert times[2] - times[0] >= 2 * PERIOD
    assert memory_world.kinds("r2").count("attempt") >= 1


def test_sync_step_is_postponed_too(memory_world):
    model = limiter("model", requests="1/1m")
    times: list[float] = []

    @outlast.sync.step
    def ask() -> int:
        with model.use() as used:
            times.append(memory_world.clock.elapsed)
            used.actual(requests=1)
        return current().attempt

    @workflow
    async def one() -> int:
        return await ask.aio()

    async def main(app):
        runs = [await app.submit(one(), id=f"r{number}") for number in range(2)]
        await asyncio.sleep(20)
        statuses = sorted([info.status for info in await app.runs()])
        return statuses, [await run.result() for run in runs]

    assert worker(memory_world, one).do(main) == (["done", "waiting"], [1, 1])
    assert times[1] - times[0] >= PERIOD


def test_sync_step_that_waits_briefly_keeps_its_thread(memory_world):
    model = limiter("model", requests="2/4s")
    times: list[float] = []

    @outlast.sync.step
    def ask(number: int) -> None:
        with model.use():
            times.append(memory_world.clock.elapsed)

    @workflow
    async def one() -> None:
        await asyncio.gather(*(ask.aio(number) for number in range(4)))

    memory_world.run(one())
    assert times[2] - times[0] >= 4
    assert "attempt" not in memory_world.kinds()


def test_effect_waits_and_is_never_cut_off(memory_world):
    model = limiter("model", requests="1/1m")
    acts: list[float] = []

    @effect(idempotent=True, timeout=600)
    async def book(number: int) -> None:
        async with model.use():
            acts.append(memory_world.clock.elapsed)

    @workflow
    async def one() -> None:
        await book(1)
        await book(2)

    memory_world.run(one())
    assert len(acts) == 2
    assert acts[1] - acts[0] >= PERIOD
    assert memory_world.kinds().count("intent") == 2


def test_uses_within_a_step_do_not_cut_each_other_off(memory_world):
    model = limiter("model", requests="2/1m")
    calls: list[int] = []

    @step
    async def ask_all() -> int:
        async def ask(number: int) -> None:
            async with model.use():
                calls.append(number)
                await asyncio.sleep(30)

        await asyncio.gather(*(ask(number) for number in range(3)))
        return len(calls)

    @workflow
    async def one() -> int:
        return await ask_all()

    assert memory_world.run(one()) == 3
    assert calls == [0, 1, 2]


def test_body_that_changes_its_arguments_starts_again_with_the_first_ones(memory_world):
    model = limiter("model", requests="1/1m")
    seen: list[list[int]] = []

    @step
    async def ask(items: list[int]) -> None:
        seen.append(list(items))
        items.append(1)
        async with model.use():
            pass

    @workflow
    async def one() -> None:
        await ask([])
        await ask([])

    async def main(app):
        await (await app.submit(one())).result()

    worker(memory_world, one).do(main)
    assert seen == [[], [], []]


def test_cancelled_run_does_not_wait_for_room(memory_world):
    times: list[float] = []
    one = asking(times, memory_world)

    async def main(app):
        for number in range(2):
            await app.submit(one(), id=f"r{number}")
        await asyncio.sleep(20)
        (waiting,) = await app.runs(status="waiting")
        await app.cancel(waiting.id)
        await asyncio.sleep(10)
        return [info.status for info in await app.runs()]

    assert sorted(worker(memory_world, one).do(main)) == ["cancelled", "done"]
    assert len(times) == 1


def test_step_that_the_workflow_gives_up_is_recorded_as_cancelled(memory_world):
    times: list[float] = []
    model = limiter("model", requests="1/1m", hold=5.0)

    @step
    async def ask() -> None:
        async with model.use():
            times.append(memory_world.clock.elapsed)

    @workflow
    async def impatient() -> str:
        await ask()
        try:
            async with asyncio.timeout(20):
                await ask()
        except TimeoutError:
            return "gave up"
        return "waited"

    async def main(app):
        return await (await app.submit(impatient())).result()

    assert worker(memory_world, impatient).do(main) == "gave up"
    assert len(times) == 1


def test_drain_does_not_wait_for_room(file_world):
    times: list[float] = []
    one = asking(times, file_world, hold=1e6)

    async def first(app):
        await (await app.submit(one(), id="r0")).result()
        await app.submit(one(), id="r1")
        await asyncio.sleep(10)
        report = await app.drain("a deploy")
        return report.seconds, (await app.runs(prefix="r1"))[0].status

    seconds, status = worker(file_world, one).do(first)
    assert seconds < 5
    assert status == "waiting"

    async def second(app):
        return await app.result("r1")

    file_world.restart()
    assert worker(file_world, one).do(second) == 1
    assert times[1] - times[0] >= PERIOD


def test_claimed_ticket_leaves_the_line(memory_world):
    times: list[float] = []
    one = asking(times, memory_world)

    async def main(app):
        runs = [await app.submit(one(), id=f"r{number}") for number in range(3)]
        await asyncio.sleep(20)
        owners = [ticket.owner for ticket in line_of(app.store)]
        for run in runs:
            await run.result()
        return owners, line_of(app.store)

    owners, line = worker(memory_world, one).do(main)
    assert len(owners) == 2
    assert all(owner is not None for owner in owners)
    assert all(ticket.owner is None for ticket in line)


def test_journal_says_what_a_postponed_step_waits_for(memory_world):
    times: list[float] = []
    one = asking(times, memory_world)

    async def main(app):
        for number in range(2):
            await app.submit(one(), id=f"r{number}")
        await asyncio.sleep(20)
        (waiting,) = await app.runs(status="waiting")
        return await app.journal(waiting.id)

    entries = worker(memory_world, one).do(main)
    (entry,) = [entry for entry in entries if entry.kind == "attempt"]
    assert (entry.args, entry.attempt, entry.error) == ("postponed: limiter model", 0, None)


@pytest.mark.parametrize("hold", [-1.0, float("nan")])
def test_impossible_hold_is_refused(hold):
    with pytest.raises(outlast.SettingsError, match="hold"):
        limiter("model", requests="1/1m", hold=hold)
