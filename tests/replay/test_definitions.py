"""What a decorator and a call refuse: names, arguments, annotations."""

import asyncio
import threading
from typing import Annotated, Any

import pytest

from outlast import (
    BadName,
    Unrecordable,
    Unrecorded,
    step,
    workflow,
)


@step
async def work(label: str = "") -> str:
    return label


@workflow
async def other() -> str:
    return await work("other")


@pytest.mark.parametrize("name", ["a/b", "a#1", "", "a\x00b", "a\nb", "\ud800"])
def test_a_name_that_would_break_a_key_is_refused_where_it_is_written(name):
    with pytest.raises(BadName):
        step(name=name)(lambda: None)
    with pytest.raises(BadName):
        workflow(name=name)(lambda: None)


def test_a_wrong_argument_is_the_functions_own_type_error(world):
    @workflow
    async def one() -> None:
        await work("a", "b", "c")

    with pytest.raises(TypeError):
        world.run(one())
    with pytest.raises(TypeError):
        other("unexpected")


def test_an_argument_that_cannot_be_fingerprinted_is_refused_unless_it_is_marked(world):
    @step
    async def bad(client: Any) -> str:
        return "?"

    @step
    async def good(client: Annotated[Any, Unrecorded], label: str) -> str:
        return label

    @workflow
    async def one() -> str:
        lock = threading.Lock()
        try:
            await bad(lock)
        except Unrecordable as error:
            assert "Unrecorded" in str(error)
        return await good(lock, "good")

    assert world.run(one()) == "good"
    assert world.replays(one()) == "good"
    assert world.journal()[0].args == '{"label":"good"}'


def test_a_result_annotation_that_nothing_can_carry_is_refused_before_the_step_executes(world):
    executed = []

    @step
    async def odd() -> threading.Thread:
        executed.append(1)
        return threading.current_thread()

    @workflow
    async def one() -> None:
        await odd()

    with pytest.raises(Unrecordable):
        world.run(one())
    assert executed == []


def test_a_step_is_a_method_too_and_its_object_is_no_part_of_the_call(world):
    class Agent:
        def __init__(self, mood: str) -> None:
            self.mood = mood

        @step
        async def say(self, word: str) -> str:
            return f"{word} {self.mood}"

    @workflow
    async def one() -> str:
        return await Agent("gladly").say("yes")

    assert world.run(one()) == "yes gladly"
    assert world.replays(one()) == "yes gladly"
    assert world.journal()[0].key == "Agent.say#1"


def test_a_name_is_the_qualified_name_without_the_functions_around_it_and_without_its_module():
    class Group:
        @step
        async def inner(self) -> None: ...

    @workflow
    async def local() -> None: ...

    assert local.name == "local"
    assert Group.inner.name == "Group.inner"
    assert work.name == "work"
    assert step(name="given")(work.fn).name == "given"


def test_a_decorated_function_keeps_its_name_its_text_and_its_plain_function():
    @workflow
    async def documented(a: int) -> int:
        """What it does."""
        return a

    assert (documented.__name__, documented.__doc__) == ("documented", "What it does.")
    assert asyncio.run(documented.fn(3)) == 3


def test_a_decorator_on_something_that_is_no_function_says_so():
    for decorator in (step, workflow):
        with pytest.raises(TypeError, match="decorates a function"):
            decorator(5)


def test_a_workflow_moved_to_another_module_is_still_the_same(world):
    async def moved() -> str:
        first = await work("a")
        await asyncio.sleep(100)
        return first

    world.die(workflow(moved)(), after=10)
    moved.__module__ = "somewhere.else"
    assert world.run(workflow(moved)()) == "a"
