"""A step's result is the same value live and on replay."""

import enum
import math
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from outlast import Unrecordable, step, workflow


@dataclass
class Note:
    topic: str
    pages: tuple[int, ...] = ()
    tags: set[str] = field(default_factory=set)


class Answer(BaseModel):
    text: str
    at: datetime
    raw: bytes = b""
    score: float = Field(0.0, alias="the score")

    model_config = {"populate_by_name": True}


@dataclass
class Measure:
    value: float | None


class MeasureModel(BaseModel):
    value: float | None


@dataclass
class Blob:
    raw: bytes | None


class Colour(enum.Enum):
    RED = "r"
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: int
    y: float


class Row(TypedDict):
    id: int
    when: date


WHEN = datetime(2026, 2, 28, 23, 59, 59, 123456, tzinfo=UTC)

TYPED = [
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], ()),
    (Note, Note("tides", (1, 2), {"sea"})),
    (list[Note], [Note("a"), Note("b", (3,))]),
    (Answer, Answer(text="hello", at=WHEN, raw=b"\x00plain", score=0.5)),
    (dict[str, Answer], {"a": Answer(text="x", at=WHEN)}),
    (datetime, WHEN),
    (datetime, datetime(1, 1, 1)),
    (timedelta, timedelta(days=-3, microseconds=7)),
    (set[int], {3, 1, 2}),
    (frozenset[str], frozenset({"a"})),
    (bytes, bytes(range(256))),
    (list[bytes], [b"", b"\xff\xfe"]),
    (Colour, Colour.RED),
    (dict[Colour, int], {Colour.RED: 1}),
    (Level, Level.LOW),
    (Decimal, Decimal("0.10")),
    (UUID, UUID(int=7)),
    (PurePosixPath, PurePosixPath("/tmp/x")),
    (Point, Point(1, 2.5)),
    (Row, Row(id=1, when=date(2026, 1, 2))),
    (dict[int, str], {1: "one", -2: "two"}),
    (int | None, None),
    (Note | None, Note("x")),
    (complex | None, 1 + 2j),
]

PLAIN = [
    None,
    True,
    0,
    -(10**400),
    2**64,
    0.1,
    -0.0,
    5e-324,
    1.7976931348623157e308,
    math.inf,
    -math.inf,
    "",
    "a\x00b",
    "\ud800 lone",
    "\udfff\ud800",
    "日本語 🌊",
    "\u2028\u2029\x7f",
    "x" * 100_000,
    [],
    {},
    {"": [{"a": None}], "\x00": "\ud800"},
    [1, 1.0, True, "1"],
]


def both_lives(world, annotation, value):
    """What the workflow was handed live and on replay."""
    seen = []

    async def produce():
        return value

    produce.__annotations__ = {"return": annotation}
    produced = step(name="produce")(produce)

    @workflow
    async def one() -> None:
        seen.append(await produced())

    world.run(one())
    assert world.executed == {"produce": 1}
    world.replays(one())
    assert len(seen) == 2
    return seen


@pytest.mark.parametrize(
    ("annotation", "value"), TYPED, ids=lambda v: getattr(v, "__name__", None) or type(v).__name__
)
def test_a_typed_result_is_equal_and_of_its_type_live_and_on_replay(world, annotation, value):
    for got in both_lives(world, annotation, value):
        assert got == value
        assert type(got) is type(value)


@pytest.mark.parametrize("value", PLAIN, ids=lambda v: ascii(v)[:20])
def test_a_plain_result_needs_no_annotation(world, value):
    for got in both_lives(world, Any, value):
        assert got == value
        assert type(got) is type(value)
        assert repr(got) == repr(value)


@pytest.mark.parametrize("annotation", [float, Any, list[float], tuple[float, ...]])
def test_nan_stays_nan(world, annotation):
    made = {float: math.nan, Any: math.nan, list[float]: [math.nan]}
    for got in both_lives(world, annotation, made.get(annotation, (math.nan,))):
        one = got if isinstance(got, float) else got[0]
        assert math.isnan(one)


@pytest.mark.parametrize("kind", [Measure, MeasureModel])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_float_in_a_model_is_kept_or_refused_but_never_becomes_none(world, kind, number):
    try:
        lives = both_lives(world, kind, kind(value=number))
    except Unrecordable:
        return
    assert [repr(got.value) for got in lives] == [repr(number)] * 2


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"", b"text", bytes(range(256))])
def test_bytes_within_a_dataclass_come_back_or_are_refused(world, raw):
    try:
        lives = both_lives(world, Blob, Blob(raw))
    except Unrecordable:
        return
    assert lives == [Blob(raw)] * 2


def test_a_value_of_a_union_that_json_cannot_tell_from_another_is_refused(world):
    with pytest.raises(Unrecordable, match="would come back"):
        both_lives(world, str | datetime, WHEN)
