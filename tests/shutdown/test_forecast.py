"""Forecasts of whether a step will end in the time left."""

import asyncio

import pytest

from outlast import step, workflow
from outlast.execution.durations import FRESH_MAX, KNOWN_MAX, Durations
from outlast.shutdown.forecast import ENOUGH, completion_probability
from outlast.testing import App
from outlast.testing.store_hooks import reopen


@pytest.mark.parametrize("known", range(ENOUGH))
def test_few_durations_allow_no_forecast(known):
    assert completion_probability([1000.0] * known, 0.0, 1.0) == 0.5
    assert completion_probability([0.001] * known, 0.0, 1.0) == 0.5


def test_a_step_longer_than_all_others_allows_no_forecast():
    assert completion_probability([1.0] * 50, 1.0, 100.0) == 0.5
    assert completion_probability([1.0] * 50, 2.0, 0.0) == 0.5


@pytest.mark.parametrize(
    ("elapsed", "left", "expected"),
    [
        (0.0, 10.0, 1.0),
        (0.0, 5.0, 0.5),
        (0.0, 0.5, 0.0),
        (5.0, 5.0, 1.0),
        (5.0, 1.0, 0.2),
        (9.0, 0.5, 0.0),
        (9.0, 1.0, 1.0),
    ],
)
def test_the_forecast_is_a_share_of_the_longer_durations(elapsed, left, expected):
    assert completion_probability([float(n) for n in range(1, 11)], elapsed, left) == pytest.approx(
        expected
    )


def test_more_time_never_lowers_the_forecast():
    durations = [0.1 * n * n for n in range(40)]
    for elapsed in (0.0, 1.0, 17.0, 150.0, 1e6):
        chances = [
            completion_probability(durations, elapsed, left)
            for left in (0.0, 0.1, 1.0, 10.0, 100.0, 1e9)
        ]
        assert chances == sorted(chances)
        assert all(0.0 <= one <= 1.0 for one in chances)


def test_the_order_of_durations_does_not_matter():
    durations = [5.0, 1.0, 9.0, 2.0, 7.0, 3.0]
    assert completion_probability(durations, 1.5, 4.0) == completion_probability(
        sorted(durations), 1.5, 4.0
    )


def test_only_the_last_durations_are_kept():
    durations = Durations()
    for number in range(KNOWN_MAX + 50):
        durations.add("flow", "a", float(number))
    durations.add("flow", "b", 1.0)
    assert list(durations.of("flow", "a")) == [float(n) for n in range(50, KNOWN_MAX + 50)]
    assert (list(durations.of("flow", "b")), list(durations.of("other", "a"))) == ([1.0], [])


def test_durations_of_the_store_come_before_own_durations():
    durations = Durations()
    durations.add("flow", "a", 3.0)
    durations.learn({("flow", "a"): [1.0, 2.0], ("flow", "b"): [9.0], ("flow", "c"): []})
    assert list(durations.of("flow", "a")) == [1.0, 2.0, 3.0]
    assert list(durations.of("flow", "b")) == [9.0]
    assert list(durations.of("flow", "c")) == []
    durations.add("flow", "b", 8.0)
    assert list(durations.of("flow", "b")) == [9.0, 8.0]


def test_durations_of_the_store_do_not_replace_own_durations():
    durations = Durations()
    for _ in range(KNOWN_MAX):
        durations.add("flow", "a", 1.0)
    durations.learn({("flow", "a"): [2.0] * KNOWN_MAX})
    assert set(durations.of("flow", "a")) == {1.0}


def test_each_duration_is_stored_once_and_their_number_is_bounded():
    durations = Durations()
    durations.add("flow", "a", 1.0)
    assert durations.fresh() == (("flow", "a", 1.0),)
    assert durations.fresh() == ()
    durations.learn({("flow", "a"): [5.0]})
    assert durations.fresh() == (), "what came from the store is no news to it"
    for _ in range(FRESH_MAX + 10):
        durations.add("flow", "a", 2.0)
    assert len(durations.fresh()) == FRESH_MAX


# -- in an engine


@step(name="steady", retries=3, backoff=10)
async def steady(seconds: float, fails: bool = False) -> str:
    await asyncio.sleep(seconds)
    if fails:
        raise ValueError
    return "end"


@workflow(name="measured")
async def measured(*seconds: float) -> str:
    for one in seconds:
        await steady(one)
    return "end"


def test_durations_of_successful_steps_are_stored():
    app = App(worker=True, workflows=[measured], ramp=0, poll=2.0, heartbeat=0.2, lease=1e7)

    async def main(app):
        await (await app.submit(measured(1.0, 2.0, 3.0))).result()
        here = list(app._open.services.steps.durations.of("measured", "steady"))
        await asyncio.sleep(10)
        return here

    assert app.do(main) == pytest.approx([1.0, 2.0, 3.0], abs=0.01)
    (stored,) = app.store.durations([("measured", "steady")]).values()
    assert stored == pytest.approx([1.0, 2.0, 3.0], abs=0.01)


def test_failed_attempts_and_pauses_are_not_measured():
    failures = []

    @step(name="flaky", retries=3, backoff=100, backoff_max=100)
    async def flaky() -> str:
        await asyncio.sleep(5)
        failures.append(1)
        if len(failures) < 3:
            raise ValueError
        return "end"

    @workflow(name="flow")
    async def flow() -> str:
        return await flaky()

    async def main(app):
        await (await app.start(flow())).result()
        return list(app._open.services.steps.durations.of("flow", "flaky"))

    assert App().do(main) == pytest.approx([5.0], abs=0.01)


def test_a_replayed_step_is_not_measured(world):
    world.run(measured(1.0))
    world.restart()
    reopen(world.store, "run")

    async def main(app):
        await (await app.start(measured(1.0), id="run")).result()
        return list(app._open.services.steps.durations.of("measured", "steady"))

    assert world.do(main) == []


def test_a_store_without_an_answer_about_durations_is_reported():
    from outlast import StoreUnavailable

    async def main(app):
        def broken(pairs):
            raise StoreUnavailable("no answer")

        await app.start(measured(5.0), id="run")
        await asyncio.sleep(1)
        app.store.durations = broken
        return await app.drain("test")

    report = App().do(main)
    assert report.completed == 1
    assert any("how long steps took" in what for what in report.blocked)
