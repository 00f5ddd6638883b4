"""Processes that die or are paused around a use of a budget: no more is spent than the limit, and a
crash costs at most what was reserved.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from budget_tools import parked, spender, spent_of, until_done, worker

from outlast import budget, step, workflow
from outlast.engine.budget_state import BudgetState
from outlast.engine.budget_store import BUDGETS, QUESTIONS, RAISED, STATE
from outlast.store.commands import Resume, UpdateSession, UpdateSessions
from outlast.testing import crash_everywhere

ID = "run:run/answer"


def state_of(world) -> BudgetState:
    return BudgetState.read(world.store.session(ID, BUDGETS).fields[STATE])


def spent(world) -> dict[str, str]:
    state = state_of(world)
    return {name: str(amount) for name, amount in state.spent + state.reserved}


class Agent:
    """A workflow of one step that makes one paid call."""

    def __init__(self, limit: float = 5, *, seconds: float = 1) -> None:
        self.calls: list[float] = []
        spend = budget("answer", usd=limit)

        @step
        async def ask() -> None:
            async with spend.use(usd=1) as used:
                self.calls.append(1)
                await asyncio.sleep(seconds)
                used.actual(usd=0.25)

        @workflow
        async def one() -> None:
            await ask()

        self.one = one


def test_death_before_the_reservation_of_a_budget_costs_nothing(world):
    agent = Agent()
    world.die(agent.one(), after=0)
    world.run(agent.one())
    assert spent(world) == {"usd": "0.25"}


def test_death_in_a_paid_call_costs_one_reservation(world):
    agent = Agent()
    world.die(agent.one(), until=lambda: agent.calls)
    world.run(agent.one())
    assert len(agent.calls) == 2
    assert spent(world) == {"usd": "1.25"}
    assert not state_of(world).held


def test_reservation_of_a_dead_process_exhausts_the_budget_and_blocks_nobody(world):
    agent = Agent(limit=1)
    world.die(agent.one(), until=lambda: agent.calls)

    async def main(app):
        await app.start(agent.one(), id="run")
        info = await parked(app, "run")
        await app.decide("run", "answer", limit={"usd": 2})
        await (await app.start(agent.one(), id="run")).result()
        return info.reason

    assert "1 of 1 usd are spent" in world.do(main)
    assert len(agent.calls) == 2


def test_reservation_of_another_run_that_died_becomes_spent(file_world):
    """A use that would wait for it asks a person instead, and does not wait forever."""
    spend = budget("customer", usd=1, per="key")
    calls: list[str] = []

    @step
    async def ask() -> None:
        async with spend.use(usd=1):
            calls.append("ask")
            await asyncio.sleep(1e6 if len(calls) == 1 else 0)

    @workflow
    async def one() -> None:
        await ask()

    async def first(app):
        await app.submit(one(), id="first", key="c")
        while not calls:
            await asyncio.sleep(0.1)
        await app.cancel("first")
        await asyncio.sleep(1)

    async def second(app):
        await app.submit(one(), id="second", key="c")
        return (await parked(app, "second")).reason

    worker(file_world, one).do(first)
    assert "1 of 1 usd are spent" in worker(file_world, one).do(second)


def test_two_processes_never_reserve_the_same_rest(file_world):
    spend = budget("customer", usd=3, per="key")
    calls: list[str] = []

    @step
    async def ask(name: str) -> None:
        async with spend.use(usd=1):
            calls.append(name)

    @workflow
    async def fan_out(name: str) -> None:
        await asyncio.gather(*(ask(f"{name}{number}") for number in range(4)))

    async def main(app):
        await app.submit(fan_out("a"), id="a", key="c")
        await app.submit(fan_out("b"), id="b", key="c")
        for id in ("a", "b"):
            await parked(app, id)
        return await spent_of(app, "key:c/customer")

    async def both(app):
        async with worker(file_world, fan_out, concurrency=1):
            return await main(app)

    assert worker(file_world, fan_out, concurrency=1).do(both) == {"usd": 3}
    assert len(calls) == 3


# -- a person's answer


class _Dies(Exception):
    """Stands for the end of the process."""


@contextlib.contextmanager
def dying_at(engine, is_last) -> None:
    """Let the process die just before a command is written."""
    execute = engine.writer.execute

    async def until(command, **options):
        if is_last(command):
            raise _Dies
        return await execute(command, **options)

    engine.writer.execute = until
    try:
        with pytest.raises(_Dies):
            yield
    finally:
        engine.writer.execute = execute


def changes_of(command) -> tuple:
    if isinstance(command, UpdateSessions):
        return command.changes
    return (command,) if isinstance(command, UpdateSession) else ()


@pytest.mark.parametrize(
    "is_last",
    [
        pytest.param(lambda command: isinstance(command, Resume), id="before the resume"),
        pytest.param(
            lambda command: any(
                one.space == QUESTIONS and None in one.fields.values()
                for one in changes_of(command)
            ),
            id="before the question is removed",
        ),
    ],
)
def test_worker_resumes_what_a_process_that_died_has_raised(memory_world, is_last):
    calls: list[str] = []
    several = spender(budget("answer", usd=2), calls)

    async def main(app):
        await app.submit(several("abc"), id="run")
        await parked(app, "run")
        with dying_at(app._open, is_last):
            await app.decide("run", "answer", limit={"usd": 3}, by="olga")
        await until_done(app, "run")
        assert calls == ["a", "b", "c"]
        await asyncio.sleep(2e4)
        assert app._open.store.session(ID, RAISED) is None
        assert app._open.store.session("run", QUESTIONS).fields == {}
        journal = await app.journal("run")
        return [entry.value for entry in journal if entry.kind == "resume"]

    resumed = worker(memory_world, several).do(main)
    assert len(resumed) == 1
    assert "olga" in resumed[0]


def test_death_before_the_raise_changes_nothing(memory_world):
    several = spender(budget("answer", usd=2), [])

    async def main(app):
        await app.submit(several("abc"), id="run")
        await parked(app, "run")
        with dying_at(app._open, lambda command: bool(changes_of(command))):
            await app.decide("run", "answer", limit={"usd": 3})
        await asyncio.sleep(20)
        return (await parked(app, "run")).status, await app.budgets()

    status, (info,) = worker(memory_world, several).do(main)
    assert (status, info.limits, info.waiting) == ("parked", {"usd": 2}, ("run",))


def test_raise_between_the_question_and_the_parking_is_not_lost(memory_world):
    """The question is written, and the run is not parked yet when a person answers."""
    calls: list[str] = []
    several = spender(budget("answer", usd=2), calls)

    async def main(app):
        engine = app._open
        store_execute = engine.services.store.execute
        raised: list[str] = []

        async def execute(command):
            if getattr(command, "status", None) == "parked" and not raised:
                raised.append("now")
                await app.raise_budget(ID, {"usd": 3})
            return await store_execute(command)

        engine.services.store.execute = execute
        await app.submit(several("abc"), id="run")
        await until_done(app, "run")
        return raised

    assert worker(memory_world, several).do(main) == ["now"]
    assert calls == ["a", "b", "c"]


def test_question_of_a_run_that_was_cancelled_is_forgotten_at_the_next_raise(memory_world):
    several = spender(budget("answer", usd=2), [])

    async def main(app):
        await app.submit(several("abc"), id="run")
        await parked(app, "run")
        await app.cancel("run")
        info = await app.raise_budget(ID, {"usd": 3})
        return info.waiting, app._open.store.session("run", QUESTIONS).fields

    assert worker(memory_world, several).do(main) == ((), {})


# -- crashes at every write


@pytest.mark.parametrize("every_life", [False, pytest.param(True, marks=pytest.mark.extended)])
def test_no_crash_lets_more_through_than_the_limit(every_life):
    provider: list[float] = []
    spend = budget("answer", usd=100)

    @step
    async def ask(name: str) -> str:
        async with spend.use(usd=2) as used:
            provider.append(1.5)
            used.actual(usd=1.5)
        return name

    @workflow
    async def three() -> str:
        return await ask("a") + await ask("b") + await ask("c")

    report = crash_everywhere(
        three(),
        fresh=provider.clear,
        # A crash repeats at most the call that it cut off.
        check=lambda: _assert(len(provider) <= (4 if not every_life else 100)),
        every_life=every_life,
    )
    assert report.result == "abc"
    assert report.crashes > 8


def _assert(condition: bool) -> None:
    assert condition


def test_exhausted_run_is_answered_wherever_the_process_dies():
    """The provider never counts more than the limit, and the run ends in any case."""
    provider: list[int] = []
    spend = budget("answer", usd=2)

    @step
    async def ask(name: str) -> str:
        async with spend.use(usd=1):
            provider.append(1)
        return name

    @workflow
    async def three() -> str:
        return await ask("a") + await ask("b") + await ask("c")

    @workflow
    async def parent() -> str:
        """A parent waits while its child is parked, so no life ends there."""
        return await three()

    async def person(app) -> None:
        while True:
            for info in await app.budgets():
                if info.waiting:
                    assert sum(provider) <= info.limits["usd"]
                    await app.decide(info.waiting[0], "answer", limit={"usd": 10})
            await asyncio.sleep(1)

    report = crash_everywhere(
        parent(), outside=person, fresh=provider.clear, check=lambda: _assert(sum(provider) <= 4)
    )
    assert report.result == "abc"
    assert report.crashes > 20
