"""Limiters on a virtual clock: how much begins in a window, in which order, and what it costs."""

from __future__ import annotations

import asyncio

import pytest

from outlast import NotInRun, SettingsError, StoreUnavailable, limiter, step, workflow
from outlast.engine.limiter_queue import LIMITERS, STATE
from outlast.store.commands import UpdateSession

PERIOD = 60.0


class Provider:
    """An outside provider that notes when each call arrives and how much it takes."""

    def __init__(self, world) -> None:
        self._world = world
        self.calls: list[tuple[float, int]] = []

    def call(self, amount: int = 1) -> None:
        self.calls.append((self._world.clock.elapsed, amount))

    def most_in_a_window(self, period: float) -> int:
        """Return the largest sum in any window of this length."""
        return max(
            sum(amount for at, amount in self.calls if begin <= at < begin + period)
            for begin, _ in self.calls
        )

    @property
    def minutes(self) -> list[int]:
        """Return the number of calls in each minute since the first."""
        first = self.calls[0][0]
        counts: dict[int, int] = {}
        for at, _ in self.calls:
            minute = int((at - first) / PERIOD)
            counts[minute] = counts.get(minute, 0) + 1
        return [counts.get(number, 0) for number in range(max(counts) + 1)]


@pytest.fixture
def provider(memory_world):
    return Provider(memory_world)


def parallel(body):
    """Return a workflow that executes a step so many times at once."""
    called = step(body)

    @workflow
    async def fan_out(count: int) -> int:
        await asyncio.gather(*(called(number) for number in range(count)))
        return count

    return fan_out


def test_no_window_has_more_than_the_limit_and_room_is_used(memory_world, provider):
    model = limiter("model", requests="10/1m", hold=1e6)

    async def ask(number: int) -> None:
        async with model.use():
            provider.call()

    assert memory_world.run(parallel(ask)(45)) == 45
    assert provider.most_in_a_window(PERIOD) == 10
    assert provider.minutes == [10, 10, 10, 10, 5]


def test_every_limit_holds_by_itself(memory_world, provider):
    model = limiter("model", tokens="1000/1m", requests="6/1m", hold=1e6)

    async def ask(number: int) -> None:
        async with model.use(tokens=300 if number % 2 else 10):
            provider.call(300 if number % 2 else 10)

    memory_world.run(parallel(ask)(20))
    assert provider.most_in_a_window(PERIOD) <= 1000
    assert max(provider.minutes) <= 6


def test_uses_begin_in_the_order_in_which_they_were_asked_for(memory_world):
    model = limiter("model", tokens="100/1m", hold=1e6)
    began: list[int] = []

    async def ask(number: int) -> None:
        # A large use is not overtaken by small ones behind it.
        async with model.use(tokens=90 if number == 3 else 20):
            began.append(number)

    memory_world.run(parallel(ask)(12))
    assert began == list(range(12))


def test_unused_reservation_lets_the_next_begin_earlier(memory_world, provider):
    model = limiter("model", tokens="1000/1m", hold=1e6)

    async def ask(number: int) -> None:
        async with model.use(tokens=500) as used:
            provider.call()
            used.actual(tokens=10)

    memory_world.run(parallel(ask)(50))
    assert provider.calls[-1][0] - provider.calls[0][0] < 1.0


def test_use_that_took_more_than_it_reserved_delays_the_next(memory_world, provider):
    model = limiter("model", tokens="1000/1m", hold=1e6)

    @step
    async def ask(really: int) -> None:
        async with model.use(tokens=100) as used:
            provider.call()
            used.actual(tokens=really)

    @workflow
    async def two() -> None:
        await ask(1000)
        await ask(100)

    memory_world.run(two())
    (first, _), (second, _) = provider.calls
    assert second - first >= PERIOD


def test_hundred_concurrent_steps_share_their_writes(memory_world):
    model = limiter("model", requests="1000/1m")

    async def ask(number: int) -> None:
        async with model.use(requests=2) as used:
            await asyncio.sleep(1)
            used.actual(requests=1)

    memory_world.run(parallel(ask)(100))
    # One for all reservations, one for all settlements.
    assert memory_world.store.session("model", LIMITERS).version <= 3


def test_step_that_fits_writes_once(memory_world):
    model = limiter("model", requests="1000/1m")

    async def ask(number: int) -> None:
        async with model.use():
            pass

    memory_world.run(parallel(ask)(1))
    assert memory_world.store.session("model", LIMITERS).version == 1


def test_long_wait_takes_few_reads(memory_world):
    model = limiter("model", requests="1/1h", hold=1e6)
    reads: list[float] = []
    find = memory_world.store.session

    def counted(*args):
        reads.append(memory_world.clock.elapsed)
        return find(*args)

    memory_world.store.session = counted

    async def ask(number: int) -> None:
        async with model.use():
            pass

    memory_world.run(parallel(ask)(2))
    assert len(reads) < 40


def test_two_processes_share_one_limit(file_world):
    provider = Provider(file_world)
    model = limiter("model", requests="10/1m", hold=1e6)

    @step
    async def ask(number: int) -> None:
        async with model.use():
            provider.call()

    @workflow
    async def fan_out(count: int) -> None:
        await asyncio.gather(*(ask(number) for number in range(count)))

    async def main(app):
        async with file_world.another() as other:
            runs = [await app.start(fan_out(15)), await other.start(fan_out(15))]
            for run in runs:
                await run.result()

    file_world.do(main)
    assert provider.most_in_a_window(PERIOD) == 10
    assert provider.minutes == [10, 10, 10]


def test_waiting_use_is_in_the_list(memory_world):
    model = limiter("model", tokens="100/1m", requests="5/1m", hold=1e6)

    async def ask(number: int) -> None:
        async with model.use(tokens=60):
            pass

    async def main(app):
        run = await app.start(parallel(ask)(3))
        await asyncio.sleep(5)
        (info,) = await app.limiters()
        await run.result()
        return info

    info = memory_world.do(main)
    assert (info.name, info.waiting) == ("model", 2)
    assert info.limits["tokens"][:3] == (100, 60.0, 60)
    assert info.limits["tokens"].waiting == 120
    assert info.limits["requests"].used == 1
    assert info.next_at is not None


def test_cancelled_wait_gives_its_place_to_the_next(memory_world, provider):
    model = limiter("model", requests="1/1m", hold=1e6)

    @step
    async def ask() -> None:
        async with model.use():
            provider.call()

    @workflow
    async def impatient() -> None:
        await ask()
        for _ in range(3):
            try:
                async with asyncio.timeout(5):
                    await ask()
            except TimeoutError:
                continue
        await ask()

    memory_world.run(impatient())
    assert len(provider.calls) == 2
    assert provider.calls[1][0] - provider.calls[0][0] < PERIOD + 3


def test_line_that_is_full_loses_no_use(memory_world, monkeypatch):
    monkeypatch.setattr("outlast.engine.limiter_queue.TICKETS_MAX", 3)
    provider = Provider(memory_world)
    model = limiter("model", requests="2/1m", hold=1e6)

    async def ask(number: int) -> None:
        async with model.use():
            provider.call()

    memory_world.run(parallel(ask)(20))
    assert len(provider.calls) == 20
    assert provider.most_in_a_window(PERIOD) == 2
    assert max(provider.minutes) == 2


def test_code_outside_of_runs_shares_the_limit(memory_world, provider):
    async def main(app):
        model = app.limiter("model", requests="2/1m")
        for _ in range(4):
            async with model.use():
                provider.call()

    memory_world.do(main)
    assert provider.most_in_a_window(PERIOD) == 2


def test_amounts_from_before_the_clock_was_set_back_count_once(memory_world):
    model = limiter("model", requests="1/1m", hold=1e6)

    async def ask(number: int) -> None:
        async with model.use():
            pass

    memory_world.run(parallel(ask)(1))
    memory_world.restart()
    memory_world.clock.elapsed -= 86_400
    began = memory_world.clock.elapsed
    memory_world.run(parallel(ask)(1), id="later")
    assert memory_world.clock.elapsed - began < 2 * PERIOD + 5


def test_damaged_limiter_counts_as_used_up(memory_world, provider, caplog):
    model = limiter("model", requests="5/1m", hold=1e6)

    async def ask(number: int) -> None:
        async with model.use():
            provider.call()

    async def damage(app):
        command = UpdateSession("model", "t", {STATE: '{"tickets":7}'}, space=LIMITERS)
        await app._open.writer.execute(command)

    memory_world.do(damage)
    began = memory_world.clock.elapsed
    memory_world.run(parallel(ask)(1))
    assert provider.calls[0][0] - began >= PERIOD
    assert "is damaged" in caplog.text


def test_closed_app_ends_a_wait_outside_of_runs(memory_world):
    async def main(app):
        model = memory_world.app.limiter("model", requests="1/1h")
        async with model.use():
            pass
        return asyncio.create_task(enter(model))

    async def enter(model) -> None:
        async with model.use():
            raise AssertionError

    async def outer() -> None:
        async with memory_world.app as app:
            task = await main(app)
            await asyncio.sleep(1)
        with pytest.raises(StoreUnavailable, match="was closed"):
            await task

    memory_world.clock.run(outer())


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ({}, "has no limits"),
        ({"tokens": "many"}, "write an amount per period"),
        ({"tokens": "0/1m"}, "allow 1 to"),
        ({"tokens": "5/1ms"}, "a period has"),
        ({"tokens": 500}, "write an amount per period"),
    ],
)
def test_impossible_limiter_is_refused(rates, message):
    with pytest.raises(SettingsError, match=message):
        limiter("model", **rates)


@pytest.mark.parametrize(
    ("amounts", "message"),
    [
        ({"tokens": 1001}, "can never begin"),
        ({"images": 1}, "has no limit 'images', only: tokens"),
        ({"tokens": -1}, "whole number"),
        ({"tokens": 0.5}, "whole number"),
        ({"tokens": True}, "whole number"),
    ],
)
def test_impossible_use_is_refused_at_once(amounts, message):
    with pytest.raises(SettingsError, match=message):
        limiter("model", tokens="1000/1m").use(**amounts)


def test_limiter_is_for_steps(memory_world):
    model = limiter("model", requests="1/1m")

    @workflow
    async def wrong() -> None:
        async with model.use():
            pass

    with pytest.raises(NotInRun, match="step's body"):
        memory_world.run(wrong())


def test_two_definitions_of_a_limiter_in_one_program_are_an_error(memory_world):
    first, second = limiter("model", requests="1/1m"), limiter("model", requests="2/1m")

    async def ask(number: int) -> None:
        async with (first if number else second).use():
            pass

    with pytest.raises(SettingsError, match="defined twice"):
        memory_world.run(parallel(ask)(2))
