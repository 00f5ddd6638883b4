"""Calls inside a scope, and calls with an explicit key, keep their keys in other tasks."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

from outlast import BadName, NotInRun, NotInStep, effect, now, scope, step, uuid, workflow
from outlast.testing import crash_everywhere


@step
async def work(label: str, seconds: float = 0.0) -> str:
    await asyncio.sleep(seconds)
    return label


@step(name="files/read#1")
async def read(label: str) -> str:
    return label


@workflow
async def child(label: str) -> str:
    return label


@effect(timeout=5, idempotent=True, undo=None)
async def pay(label: str) -> str:
    return label


def steps_of(world, id: str) -> list[str]:
    return [entry.key for entry in world.journal(id) if entry.kind == "step"]


def test_scope_leaves_tasks_out_of_the_keys(world):
    async def in_a_task(label: str) -> str:
        return await asyncio.create_task(work(label, 1))

    @workflow
    async def one() -> list[str]:
        async with scope("agent:1"), asyncio.TaskGroup() as group:
            tasks = [group.create_task(in_a_task(label)) for label in "ab"]
        return [task.result() for task in tasks] + [await work("after")]

    assert world.run(one(), id="r") == ["a", "b", "after"]
    assert world.keys("r") == ["agent:1#1/work#1", "agent:1#1/work#2", "work#1"]


def test_run_continues_when_a_library_creates_other_tasks(world):
    """The same calls are made directly, in tasks of asyncio, and in a task group of anyio."""

    async def directly() -> list[str]:
        return [await work("a", 0), await work("b", 5), await work("c", 0)]

    async def in_tasks() -> list[str]:
        async def wrapped(label: str, seconds: float) -> str:
            return await asyncio.create_task(work(label, seconds))

        return [await asyncio.create_task(wrapped(*one)) for one in (("a", 0), ("b", 5), ("c", 0))]

    async def in_a_group() -> list[str]:
        found: list[str] = []

        async def all_of_them() -> None:
            for label, seconds in (("a", 0), ("b", 5), ("c", 0)):
                found.append(await work(label, seconds))

        async with anyio.create_task_group() as group:
            group.start_soon(all_of_them)
        return found

    def version(library):
        async def agent() -> list[str]:
            async with scope("agent"):
                return await library()

        return workflow(name="agent")(agent)()

    for number, (old, new) in enumerate(
        [(directly, in_tasks), (in_tasks, in_a_group), (in_a_group, directly)]
    ):
        world.die(version(old), id=f"r{number}", after=2)
        assert steps_of(world, f"r{number}") == ["agent#1/work#1"]
        assert world.run(version(new), id=f"r{number}") == ["a", "b", "c"]
        assert steps_of(world, f"r{number}") == [f"agent#1/work#{n}" for n in (1, 2, 3)]


def test_scopes_nest_and_a_repeated_name_is_numbered(world):
    @workflow
    async def one() -> None:
        for _ in range(2):
            async with scope("turn"):
                await work("x")
                async with scope("tools"):
                    await work("y")
                await work("z")

    world.run(one(), id="r")
    assert world.keys("r") == [
        "turn#1/work#1", "turn#1/tools#1/work#1", "turn#1/work#2",
        "turn#2/work#1", "turn#2/tools#1/work#1", "turn#2/work#2",
    ]  # fmt: skip


def test_explicit_key_replaces_the_order_of_calls(world):
    def calls(labels: str):
        async def agent() -> list[str]:
            async with scope("agent"):
                return sorted(
                    await asyncio.gather(*(work.keyed(f"call/{one}")(one, 5) for one in labels))
                )

        return workflow(name="agent")(agent)()

    world.die(calls("abc"), id="r", after=2)
    assert world.run(calls("cab"), id="r") == ["a", "b", "c"]
    assert sorted(steps_of(world, "r")) == [f"agent#1/work[call%2F{one}]#1" for one in "abc"]


def test_explicit_key_outside_a_scope_ignores_the_task(world):
    async def in_a_task() -> str:
        return await work.keyed("k")("x") + await work.keyed("k")("y")

    @workflow
    async def one() -> str:
        return await asyncio.create_task(in_a_task())

    assert world.run(one(), id="r") == "xy"
    assert world.keys("r") == ["work[k]#1", "work[k]#2"]


def test_effects_children_and_identifiers_are_numbered_in_the_scope(world):
    async def in_a_task() -> list[str]:
        return [await pay.keyed("k")("x"), await child("y"), str(uuid()), str(now())]

    def version(make_task: bool):
        async def agent() -> list[str]:
            async with scope("agent"):
                return await (asyncio.create_task(in_a_task()) if make_task else in_a_task())

        return workflow(name="agent")(agent)()

    found = world.run(version(True), id="r")
    kinds = {entry.kind: entry.key for entry in world.journal("r")}
    assert kinds["intent"] == "agent#1/pay[k]#1"
    assert kinds["child"] == "agent#1/child#1"
    assert world.replays(version(False), id="r") == found


def test_every_crash_inside_a_scope_is_survived():
    @workflow
    async def one() -> list[str]:
        async with scope("agent"):
            first = await asyncio.gather(*(work.keyed(label)(label, 1) for label in "abc"))
            async with asyncio.timeout(5):
                return [*first, await work("d", 1), await pay("e")]

    assert crash_everywhere(one()).crashes > 10


def test_names_may_contain_separators(world):
    @workflow(name="a/b#c")
    async def one() -> str:
        async with scope("x/y#1%"):
            return await read("z")

    assert world.run(one(), id="r") == "z"
    assert world.keys("r") == ["x%2Fy%231%25#1/files%2Fread%231#1"]


@pytest.mark.parametrize("name", ["", "a\nb", 7])
def test_bad_name_of_a_scope_or_key_is_refused(name):
    with pytest.raises(BadName, match="scope name"):
        scope(name)
    with pytest.raises(BadName, match="key"):
        work.keyed(name)


def test_scope_outside_a_run_is_refused():
    with pytest.raises(NotInRun, match="scope"), scope("x"):
        pass


def test_inline_scope_executes_functions_for_threads_on_the_loop(world):
    def node(value: int) -> int:
        asyncio.get_running_loop().call_soon_threadsafe(seen.append, value)
        return value + 1

    def router() -> int:
        raise ValueError("no route")

    seen: list[int] = []

    @workflow
    async def one() -> list[int | str]:
        async with scope("graph", inline=True), scope("node"):
            first = await asyncio.to_thread(node, 1)
            await work("between", 5)
            loop = asyncio.get_running_loop()
            try:
                await loop.run_in_executor(None, router)
            except ValueError as error:
                return [first, str(error)]
        return []

    world.die(one(), id="r", after=2)
    assert world.run(one(), id="r") == [2, "no route"]
    assert seen == [1, 1]


def test_threads_are_refused_in_a_scope_that_is_not_inline(world):
    @workflow
    async def one() -> None:
        async with scope("graph"):
            await asyncio.to_thread(len, "abc")

    with pytest.raises(NotInStep, match="run_in_executor"):
        world.run(one())


def test_tasks_of_a_left_inline_scope_do_not_make_others_inline(world):
    @workflow
    async def one() -> None:
        async with scope("graph", inline=True):
            await asyncio.to_thread(len, "abc")
        await asyncio.to_thread(len, "abc")

    with pytest.raises(NotInStep, match="run_in_executor"):
        world.run(one())


def test_scope_of_an_adapter_leaves_out_the_task_that_enters_it(world):
    async def library(label: str, seconds: float) -> str:
        async with scope("agent", in_task=False):
            return await work(label, seconds)

    @workflow
    async def one() -> list[str]:
        tasks = [asyncio.create_task(library("a", 2)), asyncio.create_task(library("b", 1))]
        first = [await task for task in tasks]
        async with scope("outer"):
            return [*first, await asyncio.create_task(library("c", 0))]

    world.die(one(), id="r", after=1.5)
    assert world.run(one(), id="r") == ["a", "b", "c"]
    assert sorted(steps_of(world, "r")) == [
        "agent#1/work#1",
        "agent#2/work#1",
        "outer#1/agent#1/work#1",
    ]


def test_inline_scope_executes_on_the_loop_whichever_executor_is_given(world):
    threads: list[str] = []

    def function() -> None:
        threads.append(threading.current_thread().name)

    @workflow
    async def one() -> None:
        with ThreadPoolExecutor() as pool:
            async with scope("graph", inline=True):
                await asyncio.get_running_loop().run_in_executor(pool, function)

    world.run(one())
    assert threads == [threading.current_thread().name]
