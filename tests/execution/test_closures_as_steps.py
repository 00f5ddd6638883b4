"""A closure is a step under a given name, and a replay finds its results under that name."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from outlast import RunParked, step, workflow
from outlast.testing import crash_everywhere

CALLS: list[str] = []


@dataclass
class Finding:
    """What a tool has found. Without `returns`, a replay would get a dict."""

    tool: str
    page: str


@pytest.fixture(autouse=True)
def calls():
    CALLS.clear()
    return CALLS


def tool(name: str, seconds: float = 1.0) -> Callable[[str], Awaitable[Finding]]:
    """Return a new step for a tool, as an agent does that gets its tools at run time."""

    async def call(page: str):
        CALLS.append(f"{name} {page}")
        await asyncio.sleep(seconds)
        return Finding(name, page)

    return step(name=f"tool:{name}", returns=Finding)(call)


@workflow
async def agent() -> list[Finding]:
    search, read = tool("search"), tool("read")
    first = await search("tides")
    return [first, *await asyncio.gather(read(first.page), search("moons")), await read("end")]


FOUND = [
    Finding("search", "tides"),
    Finding("read", "tides"),
    Finding("search", "moons"),
    Finding("read", "end"),
]
KEYS = ["tool:search#1", "tool:read#1", "tool:search#2", "tool:read#2"]


def step_keys(world) -> set[str]:
    return {entry.key for entry in world.journal("r") if entry.kind == "step"}


def test_closures_of_one_function_are_steps_under_their_names(world):
    assert world.run(agent(), id="r") == FOUND
    assert {key.rpartition("/")[2] for key in step_keys(world)} == {*KEYS}


def test_next_life_finds_the_results_of_closures_it_has_created_again(world):
    """The life that dies has recorded one result, and executes two other calls."""
    world.die(agent(), id="r", after=1.5)
    assert CALLS == ["search tides", "read tides", "search moons"]
    assert world.run(agent(), id="r") == FOUND
    assert CALLS.count("search tides") == 1
    assert CALLS.count("read tides") == CALLS.count("search moons") == 2


def test_finished_run_replays_with_the_type_of_the_result(world):
    world.run(agent(), id="r")
    calls = [*CALLS]
    assert world.replays(agent(), id="r") == FOUND
    assert calls == CALLS


def test_name_decides_which_result_a_closure_gets(world):
    """The function may change between two lives. Its name may not."""

    def version(name: str, found: str):
        async def one() -> str:
            async def call(page: str):
                return f"{found} of {page}"

            return await step(name=name, returns=str)(call)("tides")

        return workflow(name="one")(one)()

    assert world.run(version("tool:search", "first"), id="r") == "first of tides"
    assert world.replays(version("tool:search", "second"), id="r") == "first of tides"
    with pytest.raises(RunParked, match=r"recorded step tool:search#1.*asked for step tool:read#1"):
        world.replays(version("tool:read", "first"), id="r")


def test_every_crash_in_a_workflow_of_closures_is_survived():
    report = crash_everywhere(agent())
    assert report.result == FOUND
    assert report.crashes > 4
