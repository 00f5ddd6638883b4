"""anyio works in workflow code and replays the same way after a crash."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from outlast import RunCancelled, effect, receive, sleep, step, workflow
from outlast.testing import crash_everywhere
from support.crash_points import crash_at_some

LONG = "OUTLAST_TEST_KILLS" in os.environ


@step
async def work(label: str, seconds: float = 1.0) -> str:
    await asyncio.sleep(seconds)
    return label


@step
async def tidies_up(label: str) -> str:
    """Take a while to stop when cancelled."""
    try:
        await asyncio.sleep(1000)
    finally:
        await asyncio.sleep(3)
    return label


@step
async def insists() -> str:
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        return "I insist"
    return "?"


@step
async def fails(label: str) -> str:
    await asyncio.sleep(2)
    raise ValueError(label)


@effect(timeout=30, idempotent=True)
async def pays(label: str) -> str:
    await asyncio.sleep(10)
    return label


@workflow
async def task_group() -> list[str]:
    results: list[str] = []

    async def one(label: str, seconds: float) -> None:
        results.append(await work(label, seconds))
        results.append(await work(f"{label} again"))

    async with anyio.create_task_group() as group:
        for label, seconds in (("a", 3), ("b", 1), ("c", 2)):
            group.start_soon(one, label, seconds)
        group.start_soon(work, "a step itself")
    return [*sorted(results), await work("after")]


@workflow
async def started() -> list[str]:
    results: list[str] = []

    async def serve(*, task_status: Any) -> None:
        task_status.started(await work("ready"))
        results.append(await work("served"))

    async with anyio.create_task_group() as group:
        results.append(await group.start(serve))
    return results


@workflow
async def move_on() -> list[str]:
    results = []
    with anyio.move_on_after(5) as scope:
        results.append(await tidies_up("too slow"))
    with anyio.move_on_after(5) as other:
        results.append(await work("in time"))
    return [*results, str(scope.cancelled_caught), str(other.cancelled_caught), await work("after")]


@workflow
async def fail_after() -> list[str]:
    try:
        with anyio.fail_after(5):
            await tidies_up("too slow")
    except TimeoutError:
        return ["timed out", await work("after")]
    return ["?"]


@workflow
async def insisting() -> list[str]:
    with anyio.move_on_after(5) as scope:
        return [await insists(), str(scope.cancel_called), await work("cancelled at once")]
    return ["left", str(scope.cancelled_caught)]


@workflow
async def group_cancelled() -> list[str]:
    ended: list[str] = []

    async def child(label: str) -> None:
        try:
            await tidies_up(label)
        finally:
            ended.append(label)

    async with anyio.create_task_group() as group:
        group.start_soon(child, "a")
        group.start_soon(child, "b")
        await work("meanwhile")
        group.cancel_scope.cancel()
    return [*sorted(ended), await work("after")]


@workflow
async def group_failed() -> list[str]:
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(tidies_up, "sibling")
            group.start_soon(fails, "broken")
    except* ValueError as errors:
        failure = str(errors.exceptions[0])
    return [failure, await work("after")]


@workflow
async def shielded() -> list[str]:
    results: list[str] = []
    with anyio.move_on_after(1) as scope:
        try:
            await anyio.sleep(100)
        finally:
            with anyio.CancelScope(shield=True):
                results.append(await work("cleaned up", 5))
    return [*results, str(scope.cancelled_caught), await work("after")]


@workflow
async def asyncio_group_within() -> list[str]:
    """asyncio's task group waits again after each cancellation."""
    with anyio.move_on_after(2) as scope:
        async with asyncio.TaskGroup() as group:
            group.create_task(tidies_up("x"))
            group.create_task(tidies_up("y"))
    return [str(scope.cancelled_caught), await work("after")]


@workflow
async def gathered_within() -> list[str]:
    with anyio.move_on_after(2) as scope:
        await asyncio.gather(tidies_up("x"), tidies_up("y"), anyio.sleep(100))
    return [str(scope.cancelled_caught), await work("after")]


@workflow
async def anyio_within_timeout() -> list[str]:
    try:
        async with asyncio.timeout(2):
            async with anyio.create_task_group() as group:
                group.start_soon(tidies_up, "x")
                await tidies_up("y")
    except TimeoutError:
        return ["timed out", await work("after")]
    return ["?"]


@workflow
async def nested_scopes() -> list[str]:
    with anyio.move_on_after(3) as outer:
        with anyio.move_on_after(100) as inner:
            await tidies_up("x")
        return ["?"]
    return [str(outer.cancelled_caught), str(inner.cancelled_caught), await work("after")]


@workflow
async def effect_within() -> list[str]:
    """An effect that acts is not cut: its outcome comes, and then the scope is left."""
    results: list[str] = []
    with anyio.move_on_after(5) as scope:
        results.append(await pays("rent"))
        results.append(await work("cancelled at once"))
    return [*results, str(scope.cancelled_caught), await work("after")]


@workflow
async def waits_cancelled() -> list[str]:
    caught = []
    for wait in (lambda: sleep(100), lambda: receive("never"), lambda: anyio.sleep(100)):
        with anyio.move_on_after(1) as scope:
            await wait()
        caught.append(str(scope.cancelled_caught))
    return [*caught, await work("after")]


@workflow
async def synchronised() -> list[str]:
    order: list[str] = []
    lock, event, condition = anyio.Lock(), anyio.Event(), anyio.Condition()
    semaphore, limiter = anyio.Semaphore(2), anyio.CapacityLimiter(2)

    async def one(label: str, seconds: float) -> None:
        await event.wait()
        async with limiter, semaphore:
            await work(label, seconds)
        async with lock:
            order.append(await work(f"{label} locked"))
        async with condition:
            condition.notify_all()

    async with anyio.create_task_group() as group:
        for n, label in enumerate("abc"):
            group.start_soon(one, label, n + 1)
        await work("first")
        event.set()
        async with condition:
            while len(order) < 3:
                await condition.wait()
    return order


@workflow
async def streams() -> list[str]:
    send, results = anyio.create_memory_object_stream[str](1), []
    sender, receiver = send

    async def produce() -> None:
        async with sender:
            for n in range(4):
                await sender.send(await work(f"item {n}"))

    async with anyio.create_task_group() as group:
        group.start_soon(produce)
        async with receiver:
            async for item in receiver:
                results.append(await work(f"{item} read"))
    return results


EXPECTED: dict[Callable[[], Any], list[str]] = {
    task_group: ["a", "a again", "b", "b again", "c", "c again", "after"],
    started: ["ready", "served"],
    move_on: ["in time", "True", "False", "after"],
    fail_after: ["timed out", "after"],
    insisting: ["left", "True"],
    group_cancelled: ["a", "b", "after"],
    group_failed: ["broken", "after"],
    shielded: ["cleaned up", "True", "after"],
    asyncio_group_within: ["True", "after"],
    gathered_within: ["True", "after"],
    anyio_within_timeout: ["timed out", "after"],
    nested_scopes: ["True", "False", "after"],
    waits_cancelled: ["True", "True", "True", "after"],
    synchronised: ["a locked", "b locked", "c locked"],
    streams: [f"item {n} read" for n in range(4)],
}


EVERY: dict[Callable[[], Any], int] = dict.fromkeys((task_group, started, synchronised, streams), 4)
"""Flows in which nothing is cancelled crash in half of their states, the others in all of them."""


@pytest.mark.parametrize("flow", EXPECTED, ids=lambda flow: flow.name)
def test_anyio_in_a_workflow_ends_the_same_way_wherever_it_crashes(flow):
    report = crash_everywhere(flow()) if LONG else crash_at_some(flow(), every=EVERY.get(flow, 2))
    assert report.result == EXPECTED[flow]
    assert report.crashes > 0


def test_an_effect_that_acts_is_not_cut_by_an_anyio_scope(world):
    assert world.run(effect_within()) == ["rent", "True", "after"]
    assert world.replays(effect_within()) == ["rent", "True", "after"]


def test_a_cancelled_wait_gets_the_message_of_its_cancellation(world):
    @workflow
    async def one() -> list[str]:
        said = []
        for wait in (lambda: tidies_up("x"), lambda: sleep(100), lambda: receive("never")):
            task = asyncio.create_task(wait_for_it(wait))
            await work("meanwhile")
            task.cancel("not needed any more")
            said.append(await task)
        return said

    async def wait_for_it(wait: Callable[[], Any]) -> str:
        try:
            await wait()
        except asyncio.CancelledError as cancelled:
            return str(cancelled)
        return "?"

    assert world.run(one()) == ["not needed any more"] * 3
    assert world.replays(one()) == ["not needed any more"] * 3


def test_a_run_that_is_cancelled_while_an_anyio_scope_waits_ends_as_cancelled(world):
    @workflow
    async def one() -> str:
        with anyio.move_on_after(1):
            await tidies_up("x")
        await anyio.sleep(1000)
        return "done"

    async def cancels(app: Any) -> None:
        handle = await app.start(one(), id="run")
        await asyncio.sleep(2)
        await app.cancel("run", "enough")
        await handle.result()

    with pytest.raises(RunCancelled):
        world.do(cancels)
    assert world.clock.elapsed < 100


def test_tasks_in_scopes_of_their_own_are_cancelled_in_one_order_in_every_life(world):
    @workflow
    async def one() -> str:
        order: list[str] = []

        async def child(n: int) -> None:
            with anyio.move_on_after(1000):
                try:
                    await anyio.sleep(500)
                finally:
                    order.append(str(n))

        async with anyio.create_task_group() as group:
            for n in range(12):
                group.start_soon(child, n)
            await anyio.sleep(1)
            group.cancel_scope.cancel()
        return await work(",".join(order))

    expected = ",".join(map(str, range(12)))
    assert world.run(one()) == expected
    assert world.replays(one()) == expected
