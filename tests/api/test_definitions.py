"""What decorators and calls accept and refuse: names, arguments, annotations."""

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


@pytest.mark.parametrize("name", ["", "a\x00b", "a\nb", "\ud800"])
def test_name_that_cannot_be_stored_is_refused_at_definition(name):
    with pytest.raises(BadName):
        step(name=name)(lambda: None)
    with pytest.raises(BadName):
        workflow(name=name)(lambda: None)


def test_wrong_arguments_raise_the_type_error_of_the_function(world):
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


def test_unsupported_result_annotation_is_refused_before_the_step_executes(world):
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


def test_step_can_be_a_method_and_its_object_is_not_recorded(world):
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


def test_name_is_the_qualified_name_without_module_and_enclosing_functions():
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


def test_decorating_something_that_is_not_a_function_is_refused():
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


@pytest.mark.parametrize(
    ("option", "meant"),
    [("retry", "retries"), ("max_retries", "retries"), ("delay", "backoff"), ("timout", "timeout")],
)
def test_misspelled_option_is_answered_with_the_intended_one(option, meant):
    with pytest.raises(TypeError, match=f"has no option '{option}'. Did you mean {meant}?"):
        step(**{option: 3})
