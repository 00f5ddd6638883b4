"""Step retries: attempts, backoff, time-outs, and their survival of crashes."""

import asyncio
import json
import threading

import pytest

from outlast import SettingsError, StepTimeout, current, now, run, step, workflow


def waits(world) -> list[float]:
    """The back-offs that were recorded, in seconds."""
    return [float(entry.value) - entry.at for entry in world.journal() if entry.kind == "attempt"]


def failing(world, **options):
    """A workflow of one step that fails as long as `left` says; the attempts it saw, and when."""
    seen, left = [], [100]

    @step(**options)
    async def flaky() -> int:
        seen.append((current().attempt, world.clock.elapsed))
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(f"attempt {current().attempt}")
        return current().attempt

    @workflow
    async def one() -> int:
        return await flaky()

    return one, seen, left


def test_a_step_without_retries_is_tried_once(world):
    one, seen, _ = failing(world)
    with pytest.raises(OSError, match="attempt 1"):
        world.run(one())
    assert len(seen) == 1


def test_settings_error_is_not_retried(world):
    """No attempt can change a setting."""
    seen = []

    @step(retries=3)
    async def misconfigured() -> None:
        seen.append(current().attempt)
        raise SettingsError("the run has no key")

    @workflow
    async def one() -> None:
        await misconfigured()

    with pytest.raises(SettingsError, match="no key"):
        world.run(one())
    assert seen == [1]


def test_the_last_failure_is_raised_when_no_attempt_is_left(world):
    one, seen, _ = failing(world, retries=3)
    with pytest.raises(OSError, match="attempt 4"):
        world.run(one())
    assert [attempt for attempt, _ in seen] == [1, 2, 3, 4]
    assert world.kinds() == ["attempt", "attempt", "attempt", "step"]
    assert world.journal()[-1].attempt == 4


def test_the_back_off_doubles_with_jitter_up_to_its_cap(world):
    one, _, _ = failing(world, retries=12, backoff=1.0, backoff_max=30.0)
    with pytest.raises(OSError):
        world.run(one())
    full = [min(30.0, 2.0**n) for n in range(12)]
    for wait, most in zip(waits(world), full, strict=True):
        assert most / 2 - 1e-6 <= wait <= most + 1e-6
    assert (
        len({round(wait / most, 6) for wait, most in zip(waits(world), full, strict=True)}) > 3
    ), "no jitter"


def test_a_huge_number_of_retries_does_not_overflow(memory_world):
    one, seen, left = failing(memory_world, retries=1200, backoff=0.001, backoff_max=0.001)
    left[0] = 1100
    assert memory_world.run(one()) == 1101
    assert len(seen) == 1101


def test_only_exceptions_of_retry_on_are_retried(world):
    one, seen, _ = failing(world, retries=5, retry_on=(ConnectionError, ValueError))
    with pytest.raises(OSError, match="attempt 1"):
        world.run(one())
    assert len(seen) == 1


def test_crash_during_backoff_resumes_at_the_recorded_due_time(world):
    one, seen, left = failing(world, retries=3, backoff=1000.0, backoff_max=1000.0)
    left[0] = 1
    world.die(one(), after=100.0, gap=50.0)
    assert world.kinds() == ["attempt"]
    due = float(world.journal()[0].value)
    assert world.run(one()) == 2
    assert [attempt for attempt, _ in seen] == [1, 2]
    assert world.clock.start + seen[1][1] == pytest.approx(due, abs=0.1)


def test_backoff_that_ended_between_processes_is_not_repeated(world):
    one, seen, left = failing(world, retries=3, backoff=100.0)
    left[0] = 1
    world.die(one(), after=1.0, gap=5000.0)
    before = world.clock.elapsed
    assert world.run(one()) == 2
    assert seen[1][1] - before < 1.0


def test_the_count_of_attempts_survives_any_number_of_deaths(world):
    one, seen, _ = failing(world, retries=3, backoff=10.0, backoff_max=10.0)
    for _ in range(3):
        world.die(one(), until=lambda n=len(seen) + 1: len(seen) == n)
    with pytest.raises(OSError, match="attempt 4"):
        world.run(one())
    assert [attempt for attempt, _ in seen] == [1, 2, 3, 4]


def test_an_attempt_that_was_under_way_at_a_death_is_repeated_under_its_number(world):
    seen = []

    @step(retries=2, backoff=1.0)
    async def slow() -> int:
        seen.append(current().attempt)
        if current().attempt == 1:
            raise OSError
        await asyncio.sleep(100)
        return current().attempt

    @workflow
    async def one() -> int:
        return await slow()

    world.die(one(), after=50)
    assert world.run(one()) == 2
    assert seen == [1, 2, 2]


def test_the_attempts_are_part_of_no_other_step(world):
    @step(retries=1, backoff=0.1)
    async def flaky(n: int) -> int:
        if current().attempt == 1:
            raise OSError
        return current().attempt

    @workflow
    async def one() -> list[int]:
        return [await flaky(1), *await asyncio.gather(flaky(2), flaky(2))]

    assert world.run(one()) == [2, 2, 2]
    assert world.replays(one()) == [2, 2, 2]


def test_step_timeout_bounds_one_attempt(world):
    cancelled = []

    @step(timeout=5.0)
    async def slow() -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            cancelled.append(world.clock.elapsed)
            raise

    @workflow
    async def one() -> str:
        try:
            await slow()
        except StepTimeout as error:
            assert isinstance(error, TimeoutError)
            return str(error)
        return "?"

    assert "5.0 s" in world.run(one())
    assert cancelled == [pytest.approx(5.0, abs=0.1)]
    assert "5.0 s" in world.replays(one())


def test_timeout_error_raised_by_a_step_is_not_a_step_timeout(world):
    @step(timeout=5.0)
    async def inner_timeout() -> None:
        async with asyncio.timeout(1.0):
            await asyncio.sleep(100)

    @workflow
    async def one() -> str:
        try:
            await inner_timeout()
        except TimeoutError as error:
            return type(error).__name__
        return "?"

    assert world.run(one()) == "TimeoutError"


def test_a_timed_out_attempt_is_retried_with_a_time_of_its_own(world):
    @step(timeout=5.0, retries=2, backoff=1.0)
    async def slow() -> int:
        await asyncio.sleep(100 if current().attempt < 3 else 4)
        return current().attempt

    @workflow
    async def one() -> int:
        return await slow()

    assert world.run(one()) == 3
    failed = world.journal()[:2]
    assert [json.loads(entry.error)["type"] for entry in failed] == [
        "outlast.errors:StepTimeout"
    ] * 2
    assert [entry.seconds for entry in failed] == [pytest.approx(5.0)] * 2


def test_retry_of_a_sync_step_waits_for_the_thread_of_the_last_attempt(address):
    alive, most = [], []

    def attempts(blocked: float) -> int:
        @step(timeout=0.05, retries=100, backoff=0.001)
        def slow() -> int:
            alive.append(1)
            most.append(len(alive))
            if current().attempt == 1:
                threading.Event().wait(blocked)
            alive.pop()
            return current().attempt

        @workflow(name=f"blocked for {blocked}")
        async def one() -> int:
            return await slow.aio()

        return run(one(), store=address)

    # On a busy machine the event loop may notice the end of the thread before it notices the time-out.
    assert any(attempts(blocked) > 1 for blocked in (0.2, 2, 10))
    assert set(most) == {1}


def test_a_failed_attempt_and_a_retry_leave_the_runs_time_deterministic(world):
    seen = []

    @step(retries=1, backoff=10.0)
    async def flaky() -> int:
        if current().attempt == 1:
            raise OSError
        return 1

    @workflow
    async def one() -> None:
        seen.append(now())
        await flaky()
        seen.append(now())

    world.run(one())
    world.replays(one())
    assert seen[:2] == seen[2:]


@pytest.mark.parametrize(
    "options",
    [
        {"retries": -1},
        {"timeout": -1},
        {"backoff": float("nan")},
        {"backoff_max": float("inf")},
        {"retries": "3"},
    ],
)
def test_impossible_options_are_refused_where_the_step_is_written(options):
    with pytest.raises(SettingsError, match=next(iter(options))):

        @step(**options)
        async def one() -> None: ...
