"""Values that would not round-trip are refused, and records cannot be changed."""

import enum
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from outlast import Unrecordable, step, workflow


@dataclass
class Note:
    topic: str
    pages: tuple[int, ...] = ()
    tags: set[str] = field(default_factory=set)


class Colour(enum.Enum):
    RED = "r"
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: int
    y: float


WHEN = datetime(2026, 2, 28, 23, 59, 59, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {1: "one"},
        {"a": (1,)},
        {1, 2},
        b"raw",
        WHEN,
        Note("x"),
        Colour.RED,
        Level.LOW,
        object(),
        [Point(1, 2)],
    ],
    ids=lambda v: type(v).__name__,
)
def test_value_that_would_not_round_trip_fails_its_step(world, value):
    @step
    async def before() -> int:
        return 1

    @step
    async def produce() -> Any:
        return value

    @step
    async def after() -> int:
        return 2

    @workflow
    async def one() -> str:
        await before()
        try:
            await produce()
        except Unrecordable as error:
            return f"{await after()} {type(error).__name__}"
        return "recorded"

    assert world.run(one()) == "2 Unrecordable"
    assert world.replays(one()) == "2 Unrecordable"


def test_a_value_that_cannot_be_recorded_is_not_tried_again(world):
    @step(retries=5)
    async def produce() -> Any:
        return (1, 2)

    @workflow
    async def one() -> None:
        await produce()

    with pytest.raises(Unrecordable, match="annotate"):
        world.run(one())
    assert world.kinds() == ["step"]


def test_a_result_that_does_not_fit_its_annotation_is_refused(world):
    @step
    async def produce() -> Note:
        return "not a note"

    @workflow
    async def one() -> None:
        await produce()

    with pytest.raises(Unrecordable, match="Note"):
        world.run(one())


def test_the_workflow_gets_a_copy_so_what_the_step_keeps_and_changes_does_not_leak(world):
    kept: list[list[int]] = []
    seen = []

    @step
    async def produce() -> list[int]:
        kept.append([1])
        return kept[0]

    @step
    async def change() -> None:
        kept[0].append(2)

    @workflow
    async def one() -> list[int]:
        got = await produce()
        seen.append(got is kept[0])
        await change()
        got.append(3)
        return got

    assert world.run(one()) == [1, 3]
    assert seen == [False]
    assert world.replays(one()) == [1, 3]


def test_a_mutable_argument_changed_by_its_step_does_not_change_what_was_recorded(world):
    @step
    async def greedy(items: list[int]) -> int:
        items.append(99)
        return len(items)

    @workflow
    async def one() -> int:
        items = [1]
        return await greedy(items) + await greedy([1])

    assert world.run(one()) == 4
    assert world.replays(one()) == 4


def test_the_result_of_a_run_is_typed_too(world):
    @workflow
    async def one() -> dict[Colour, tuple[Note, ...]]:
        return {Colour.RED: (Note("a"),)}

    assert world.run(one()) == {Colour.RED: (Note("a"),)}
    world.restart()
    assert world.run(one()) == {Colour.RED: (Note("a"),)}


def test_a_result_of_a_run_that_cannot_be_recorded_fails_it(world):
    @workflow
    async def one() -> Any:
        return object()

    with pytest.raises(Unrecordable):
        world.run(one())
    assert world.status() == "failed"


def test_arguments_reach_the_workflow_as_their_types_in_every_life(world):
    seen = []

    @step
    async def pause() -> None: ...

    @workflow
    async def one(note: Note, *colours: Colour, when: datetime, **more: tuple[int, ...]) -> None:
        seen.append((note, colours, when, more))
        await pause()

    call = one(Note("a"), Colour.RED, Colour.BLUE, when=WHEN, x=(1, 2))
    world.run(call)
    world.replays(call)
    assert seen == [(Note("a"), (Colour.RED, Colour.BLUE), WHEN, {"x": (1, 2)})] * 2
