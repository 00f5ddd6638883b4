"""Processes that die or are paused around a use of a limiter: never more than the limit begins, and
a crash costs at most what was reserved.
"""

from __future__ import annotations

import asyncio

import pytest

from outlast import limiter, step, workflow
from outlast.engine.limiter_queue import LIMITERS, STATE, Granted, LimiterQueue
from outlast.engine.limiter_state import LimiterState
from outlast.testing import crash_everywhere

PERIOD = 60.0


def state_of(store) -> LimiterState:
    return LimiterState.read(store.session("model", LIMITERS).fields[STATE])


def line_of(world) -> list:
    return state_of(world.store).tickets


def used(world) -> dict[str, int]:
    return state_of(world.store).used(world.clock())


class Agent:
    """A workflow of one step, and the times at which its calls began."""

    def __init__(self, world, *, rate: str = "10/1m", hold: float = 5.0) -> None:
        self.calls: list[float] = []
        self.model = model = limiter("model", requests=rate, hold=hold)

        @step
        async def ask() -> None:
            async with model.use():
                self.calls.append(world.clock.elapsed)
                await asyncio.sleep(1)

        @workflow
        async def one() -> None:
            await ask()

        self.one = one


def test_death_before_the_reservation_costs_nothing(world):
    agent = Agent(world)
    world.die(agent.one(), after=0)
    world.run(agent.one())
    assert len(agent.calls) == 1
    assert used(world) == {"requests": 1}


def test_death_in_a_use_costs_one_reservation(world):
    agent = Agent(world)
    world.die(agent.one(), until=lambda: agent.calls)
    assert used(world) == {"requests": 1}
    world.run(agent.one())
    # The first call may have reached the provider, so it counts too.
    assert len(agent.calls) == 2
    assert used(world) == {"requests": 2}


def test_reservation_of_a_dead_process_ages_out_of_its_window(world):
    agent = Agent(world, rate="1/1m", hold=1e6)
    world.die(agent.one(), until=lambda: agent.calls)
    world.run(agent.one())
    first, second = agent.calls
    assert PERIOD <= second - first < PERIOD * 1.1


def test_death_before_the_settlement_counts_what_was_reserved(world):
    model = limiter("model", tokens="1000/1m")

    @step
    async def ask() -> None:
        async with model.use(tokens=800) as use:
            use.actual(tokens=10)
        await asyncio.sleep(1)

    @workflow
    async def one() -> None:
        await ask()

    def is_reserved() -> bool:
        return world.store.session("model", LIMITERS) is not None

    world.die(one(), until=is_reserved)
    assert used(world) == {"tokens": 800}


def test_ticket_of_a_dead_process_expires_and_blocks_no_other(world):
    agent = Agent(world, rate="1/1m", hold=1e6)
    world.run(agent.one(), id="first")
    world.die(agent.one(), id="second", until=lambda: line_of(world))
    world.run(agent.one(), id="third")
    # The dead one's turn came first.
    first, third = agent.calls
    assert 2 * PERIOD <= third - first < 2 * PERIOD * 1.1


def test_postponed_step_finds_its_ticket_after_a_death(world):
    agent = Agent(world, rate="1/1m")
    world.run(agent.one(), id="first")
    world.die(agent.one(), id="second", until=lambda: any(one.owner for one in line_of(world)))
    (ticket,) = [one for one in line_of(world) if one.owner is not None]
    world.run(agent.one(), id="second")
    assert 0 <= world.clock.start + agent.calls[1] - ticket.at < 1


def test_paused_process_does_not_begin_in_a_later_window(world):
    """Its grant is void, although the reservation was written."""
    agent = Agent(world, rate="5/1m")
    paused: list[float] = []
    execute = None

    async def main(app):
        nonlocal execute
        writer = app._open.writer
        execute = writer.execute

        async def slow(command, **options):
            outcome = await execute(command, **options)
            if getattr(command, "space", None) == LIMITERS and not paused:
                paused.append(world.clock.elapsed)
                # The process is paused for a minute, and the commit has happened.
                world.clock.advance(PERIOD)
            return outcome

        writer.execute = slow
        await (await app.start(agent.one())).result()

    world.do(main)
    assert len(agent.calls) == 1
    assert agent.calls[0] - paused[0] >= PERIOD
    # The grant that was void is given back, and the call counts in the window in which it began.
    assert used(world) == {"requests": 1}


def test_process_paused_while_its_ticket_comes_due_moves_it(memory_world):
    model = limiter("model", requests="1/1m", hold=1e6)

    async def main(app):
        queue: LimiterQueue = app._open.limiters.get("model", model._rates)
        assert isinstance(await queue.reserve({"requests": 1}, None, 1e6), Granted)
        waiting = asyncio.ensure_future(queue.reserve({"requests": 1}, None, 1e6))
        behind = asyncio.ensure_future(queue.reserve({"requests": 1}, None, 1e6))
        await asyncio.sleep(1)
        memory_world.clock.advance(3 * PERIOD)
        first, second = await waiting, await behind
        assert not queue.is_late(second)
        return second.at - first.at

    assert memory_world.do(main) >= PERIOD


def test_use_begins_exactly_once_wherever_the_process_dies():
    """The limit holds at each crash, and the run ends the same."""
    calls: list[str] = []
    model = limiter("model", requests="2/1m", hold=1.0)

    @step
    async def ask(name: str) -> str:
        async with model.use() as use:
            calls.append(name)
            use.actual(requests=1)
        return name

    @workflow
    async def three() -> str:
        return await ask("a") + await ask("b") + await ask("c")

    def check() -> None:
        # A crash in a use repeats at most that one.
        assert len(calls) <= 4
        assert set(calls) == {"a", "b", "c"}

    report = crash_everywhere(three(), fresh=calls.clear, check=check)
    assert report.result == "abc"
    assert report.crashes > 8


@pytest.mark.parametrize("every_life", [False, pytest.param(True, marks=pytest.mark.extended)])
def test_no_window_exceeds_the_limit_at_any_crash(every_life):
    calls: list[float] = []
    model = limiter("model", requests="2/1m", hold=1e6)

    @step
    async def ask(number: int) -> None:
        async with model.use():
            calls.append(asyncio.get_running_loop().time())

    @workflow
    async def fan_out() -> None:
        await asyncio.gather(*(ask(number) for number in range(5)))

    def check() -> None:
        for begin in calls:
            assert sum(begin <= at < begin + PERIOD for at in calls) <= 2

    crash_everywhere(fan_out(), fresh=calls.clear, check=check, every_life=every_life)
