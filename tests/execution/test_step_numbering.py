"""Concurrent steps are numbered the same way in every replay."""

import asyncio

import pytest

from outlast import NotInRun, current, step, workflow


@step
async def work(label: str, seconds: float = 0.0) -> str:
    await asyncio.sleep(seconds)
    return label


def dies_everywhere(world, call, seconds: int):
    """The result undisturbed is the result after a death in every second, and replaying executes nothing."""
    undisturbed = world.run(call, id="undisturbed")
    keys = sorted(entry.key for entry in world.journal("undisturbed") if entry.kind == "step")
    for second in range(seconds):
        id = f"died at {second}"
        world.die(call, id=id, after=second + 0.5)
        assert world.run(call, id=id) == undisturbed
        recorded = [entry.key for entry in world.journal(id) if entry.kind == "step"]
        assert sorted(recorded) == keys
        assert len(set(recorded)) == len(recorded)
    assert world.replays(call, id="undisturbed") == undisturbed
    return undisturbed


def test_steps_of_one_name_are_numbered_in_the_order_of_their_calls(world):
    @workflow
    async def one() -> list[str]:
        return await asyncio.gather(work("slow", 3), work("fast", 1), work("mid", 2))

    assert dies_everywhere(world, one(), 3) == ["slow", "fast", "mid"]
    entries = {entry.key: entry.args for entry in world.journal("undisturbed")}
    assert list(world.keys("undisturbed")) == ["work#2", "work#3", "work#1"]
    assert '"slow"' in entries["work#1"]


def test_step_number_is_assigned_at_the_call_not_the_await(world):
    @workflow
    async def one() -> list[str]:
        first, second = work("first"), work("second")
        return [await second, await first]

    assert dies_everywhere(world, one(), 1) == ["second", "first"]
    assert world.keys("undisturbed") == ["work#2", "work#1"]


def test_a_task_group_and_tasks_in_tasks(world):
    async def deep(label: str, levels: int) -> list[str]:
        found = [await work(f"{label}{levels}", 0.7)]
        if levels:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(deep(f"{label}{n}", levels - 1)) for n in range(2)]
            found += [item for task in tasks for item in task.result()]
        return found

    @workflow
    async def one() -> list[str]:
        return await deep("x", 2)

    result = dies_everywhere(world, one(), 3)
    assert len(result) == 7


def test_tasks_awaited_in_another_order_than_they_were_made(world):
    async def branch(label: str, seconds: float) -> str:
        return await work(label, seconds) + await work(label, seconds)

    @workflow
    async def one() -> list[str]:
        tasks = [
            asyncio.create_task(branch(label, s)) for label, s in (("a", 3), ("b", 1), ("c", 2))
        ]
        await work("between")
        return [await task for task in reversed(tasks)]

    assert dies_everywhere(world, one(), 6) == ["cc", "bb", "aa"]


def test_wait_first_completed_takes_the_same_way_in_every_life(world):
    @workflow
    async def one() -> list:
        tasks = {asyncio.create_task(work(f"t{n}", n + 1), name=f"t{n}") for n in range(5)}
        order = []
        while tasks:
            done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                order.append(task.result())
                await work(f"after {task.result()}")
        return order

    result = world.run(one())
    assert result == ["t0", "t1", "t2", "t3", "t4"]
    assert world.replays(one()) == result


def test_wait_over_a_set_iterates_the_same_way_in_every_life(world):
    @workflow
    async def one() -> list:
        done, _ = await asyncio.wait({asyncio.create_task(work(str(n))) for n in range(20)})
        return [await work(task.result()) for task in done]

    result = world.run(one())
    assert world.replays(one()) == result


@pytest.mark.parametrize(
    "make", [work, lambda label, s: asyncio.create_task(work(label, s))], ids=["steps", "tasks"]
)
def test_as_completed_over_steps_and_tasks(world, make):
    @workflow
    async def one() -> list:
        order = []
        for next_one in asyncio.as_completed([make("a", 3), make("b", 1), make("c", 2)]):
            order.append(await next_one)
            await work(f"then {len(order)}")
        return order

    assert world.run(one()) == ["b", "c", "a"]
    assert world.replays(one()) == ["b", "c", "a"]


def test_as_completed_over_bare_coroutines_is_a_clear_error(world):
    async def bare(n: int) -> str:
        return await work(str(n))

    @workflow
    async def one() -> None:
        coros = [bare(n) for n in range(3)]
        try:
            for next_one in asyncio.as_completed(coros):
                await next_one
        finally:
            for coro in coros:
                coro.close()

    with pytest.raises(NotInRun, match=r"as_completed.*create_task"):
        world.run(one())
    assert world.kinds() == []


def test_wait_for_is_numbered_alike_on_every_python(world):
    async def bare(label: str) -> str:
        return await work(label, 0.5)

    @workflow
    async def one() -> list[str]:
        return [
            await asyncio.wait_for(bare("a"), 10),
            await asyncio.wait_for(work("b", 0.5), 10),
            await asyncio.wait_for(bare("c"), None),
        ]

    assert dies_everywhere(world, one(), 2) == ["a", "b", "c"]
    keys = [entry.key for entry in world.journal("undisturbed")]
    assert keys == ["work#1", "work#2", "work#3"]


def test_two_tasks_of_one_coroutine_do_not_share_their_numbering(world):
    async def branch(label: str) -> list[str]:
        return [await work(label) for _ in range(3)]

    @workflow
    async def one() -> list:
        return await asyncio.gather(branch("a"), branch("b"))

    assert world.run(one()) == [["a"] * 3, ["b"] * 3]
    assert len(set(world.keys())) == 6
    assert world.replays(one()) == [["a"] * 3, ["b"] * 3]


def test_queue_event_and_lock_of_a_run_replay_in_order(world):
    @workflow
    async def one() -> list:
        queue, event, lock, seen = asyncio.Queue(maxsize=1), asyncio.Event(), asyncio.Lock(), []

        async def produce() -> None:
            for n in range(4):
                await queue.put(await work(f"item {n}", 0.4))
            event.set()

        async def consume(name: str) -> None:
            while True:
                item = await queue.get()
                async with lock:
                    seen.append([name, await work(item, 0.3)])
                queue.task_done()

        tasks = [asyncio.create_task(consume(name)) for name in "xy"]
        await asyncio.gather(produce(), event.wait())
        await queue.join()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return seen

    result = dies_everywhere(world, one(), 3)
    assert sorted(item for _, item in result) == [f"item {n}" for n in range(4)]


def test_a_semaphore_bounds_what_is_under_way(world):
    under_way, most = [0], [0]

    @step
    async def counted(n: int) -> int:
        under_way[0] += 1
        most[0] = max(most[0], under_way[0])
        await asyncio.sleep(1)
        under_way[0] -= 1
        return n

    @workflow
    async def one() -> list[int]:
        limit = asyncio.Semaphore(2)

        async def bounded(n: int) -> int:
            async with limit:
                return await counted(n)

        return await asyncio.gather(*[bounded(n) for n in range(7)])

    assert world.run(one()) == list(range(7))
    assert most == [2]
    assert world.replays(one()) == list(range(7))


def test_async_generator_in_a_workflow_replays_in_order(world):
    closed = []

    async def pages(count: int):
        try:
            for n in range(count):
                yield await work(f"page {n}", 0.6)
        finally:
            closed.append(await work("closing"))

    @workflow
    async def one() -> list[str]:
        seen = [page async for page in pages(2)]
        async for page in pages(
            5
        ):  # left early: its finally is a step, executed by the finaliser's aclose
            seen.append(page)
            break
        await work("after")
        return seen

    assert dies_everywhere(world, one(), 2) == ["page 0", "page 1", "page 0"]
    assert closed


def test_results_are_delivered_in_the_order_of_the_journal(world):
    @workflow
    async def one() -> list[str]:
        order: list[str] = []

        async def branch(label: str) -> None:
            order.append(await work(label))

        await asyncio.gather(*[branch(str(n)) for n in range(20)])
        return order

    result = world.run(one())
    by_key = {entry.key: entry for entry in world.journal()}
    assert result == [__import__("json").loads(entry.value) for entry in by_key.values()]
    assert world.replays(one()) == result


@pytest.mark.parametrize("seed", range(5))
def test_replay_follows_the_recorded_order_of_results(world, seed):
    @workflow
    async def one() -> list[str]:
        order: list[str] = []

        async def branch(label: str) -> None:
            order.append(await work(label))
            order.append(await work(label + "'"))

        await asyncio.gather(*[branch(str(n)) for n in range(6)])
        return order

    world.app.seed = seed
    result = world.run(one())
    assert world.replays(one()) == result


def test_tasks_of_one_name_hash_alike_in_every_life_and_differently_in_every_run(world):
    """asyncio keeps the tasks of all runs in one set: equal hashes would make it a list."""
    hashes: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}

    @workflow
    async def one() -> None:
        task = asyncio.create_task(asyncio.sleep(0))
        hashes[current().id].append((hash(asyncio.current_task()), hash(task)))
        await task
        await work("x")

    world.run(one(), id="a")
    world.run(one(), id="b")
    world.replays(one(), id="a")
    first, again, other = *hashes["a"], *hashes["b"]
    assert first == again
    assert first[0] != other[0]
    assert first[1] != other[1]
