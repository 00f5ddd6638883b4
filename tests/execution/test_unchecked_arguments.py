"""Unchecked arguments are recorded, but may differ when a run is replayed."""

import itertools
from typing import Annotated

import pytest

from outlast import RunParked, Unchecked, effect, step, workflow

STAMPS = itertools.count()
"""What a framework takes from its own clock."""


@step
async def ask(messages: Annotated[list[str], Unchecked], model: str) -> str:
    return f"{model}: {messages[0]}"


@workflow
async def child(messages: Annotated[list[str], Unchecked]) -> str:
    return await ask(messages, "child")


@effect(timeout=5, idempotent=True, undo=None)
async def pay(messages: Annotated[list[str], Unchecked], amount: int) -> str:
    return f"{amount}: {messages[0]}"


@workflow
async def agent(model: str) -> list[str]:
    def history() -> list[str]:
        return [f"hello at {next(STAMPS)}"]

    return [await ask(history(), model), await child(history()), await pay(history(), 5)]


def test_a_run_continues_with_other_values(world):
    first = world.run(agent("m"), id="r")
    assert world.replays(agent("m"), id="r") == first


def test_effects_and_children_record_them(world):
    world.run(agent("m"), id="r")
    intents = [entry for entry in world.journal("r") if entry.kind == "intent"]
    assert "hello at" in intents[0].value
    assert "hello at" in world.row("r/child#1").args


def test_a_child_that_exists_is_joined(world):
    """The parent dies before the child's end is recorded, and asks for it with other values."""
    from outlast import sleep

    @workflow(name="slow")
    async def slow(messages: Annotated[list[str], Unchecked]) -> str:
        await sleep(100)
        return messages[0]

    @workflow(name="parent")
    async def parent() -> str:
        return await slow([f"hello at {next(STAMPS)}"])

    world.die(parent(), id="r", after=5)
    recorded = world.row("r/slow#1").args
    found = world.run(parent(), id="r")
    assert found in recorded


def test_the_other_arguments_are_compared(world):
    def version(model: str):
        @workflow(name="agent")
        async def one() -> str:
            return await ask(["x"], model)

        return one()

    world.run(version("a"), id="r")
    with pytest.raises(RunParked):
        world.replays(version("b"), id="r")
