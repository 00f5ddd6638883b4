"""Values round-trip with their type or are refused."""

import json
import math
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast import Unrecordable
from outlast.codec import plain_json
from outlast.codec.codecs import TypedCodec, codec_for, is_plain

# Two surrogates that make a pair are one character in JSON: see test_two_surrogates_are_the_same_in_every_life.
lone = st.text(st.sampled_from("\ud800\udbff\x00\x1fA")) | st.text(
    st.sampled_from("\udc00\udfff\x7fz")
)
texts = st.text() | lone
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=30
)


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (
            a == b and math.copysign(1, a) == math.copysign(1, b)
            if not math.isnan(a)
            else math.isnan(b)
        )
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return a == b


@given(values)
def test_plain_values_come_back_as_they_were(value):
    text = plain_json.encode(value)
    assert text.isascii()
    assert "\x00" not in text
    assert ascii(plain_json.decode(text)) == ascii(value)
    assert same(plain_json.decode(text), value)
    again, copy = plain_json.round_trip(value)
    assert again == text
    assert same(copy, value)
    assert copy is not value or not isinstance(value, list | dict), "what can be changed is copied"


@pytest.mark.parametrize("annotation", [str, list[str], tuple[str, ...]], ids=str)
def test_two_surrogates_are_the_same_in_every_life(annotation):
    value = {str: "\ud800\udc00", list[str]: ["\ud800\udc00"]}.get(annotation, ("\ud800\udc00",))
    codec = codec_for(annotation)
    try:
        text, live = codec.round_trip(value)
    except Unrecordable:
        return
    assert ascii(live) == ascii(codec.decode(text)), "ascii: a failure must be printable"


@pytest.mark.parametrize(
    "value",
    [
        (),
        {1: 2},
        {None: 1},
        {True: 1},
        set(),
        b"",
        1j,
        object(),
        [()],
        {"a": {1: 1}},
        Decimal(1),
        float,
    ],
)
def test_plain_refuses_what_would_change(value):
    with pytest.raises(Unrecordable):
        plain_json.encode(value)


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Items(list):
    pass


@pytest.mark.parametrize("value", [Text("a"), Number(1), Items(), [Text("a")], {Text("k"): 1}])
def test_subclasses_of_plain_types_are_refused(value):
    with pytest.raises(Unrecordable):
        plain_json.encode(value)


def test_a_value_that_contains_itself_is_refused():
    loop: list = []
    loop.append(loop)
    with pytest.raises(Unrecordable, match="deep"):
        plain_json.encode(loop)


def test_an_integer_of_more_digits_than_python_converts_is_refused():
    with pytest.raises(Unrecordable):
        plain_json.encode(10**5000)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (Any, True), (None, True), (int, True), (list, True), (list[int], True), (dict[str, list[float]], True),
        (int | None, True), (str | int | None, True), (object, True), (TypeVar("T"), True),
        (tuple, False), (tuple[int, ...], False), (dict[int, str], False), (set[int], False), (bytes, False),
        (list[bytes], False), (datetime | None, False), (Annotated[int, "x"], False), (Literal["a"], False),
    ],
)  # fmt: skip
def test_pydantic_is_used_only_where_plain_json_is_not_enough(annotation, expected):
    assert is_plain(annotation) is expected
    assert isinstance(codec_for(annotation), TypedCodec) is not expected


TYPED = {
    tuple[int, str]: st.tuples(st.integers(), st.text()),
    set[int]: st.sets(st.integers()),
    frozenset[str]: st.frozensets(st.text()),
    bytes: st.binary(),
    dict[int, str]: st.dictionaries(st.integers(), st.text()),
    datetime: st.datetimes(),
    date: st.dates(),
    timedelta: st.timedeltas(min_value=timedelta(days=-(10**6)), max_value=timedelta(days=10**6)),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    UUID: st.uuids(),
    tuple[float, ...]: st.lists(st.floats(allow_nan=False)).map(tuple),
}


@pytest.mark.parametrize("annotation", TYPED, ids=str)
@given(data=st.data())
def test_typed_values_come_back_as_they_were(annotation, data):
    value = data.draw(TYPED[annotation])
    codec = codec_for(annotation)
    text, copy = codec.round_trip(value)
    assert text.isascii()
    assert copy == value
    assert type(copy) is type(value)
    assert codec.decode(text) == value
    json.loads(text)


@pytest.mark.parametrize("annotation", [tuple[str, ...], frozenset[str], dict[int, str]], ids=str)
@given(text=lone)
def test_lone_surrogates_in_typed_values_come_back_or_are_refused(annotation, text):
    value = {dict[int, str]: {1: text}, frozenset[str]: frozenset({text})}.get(annotation, (text,))
    codec = codec_for(annotation)
    try:
        _, copy = codec.round_trip(value)
    except Unrecordable:
        return
    assert ascii(copy) == ascii(value)


class Colour(Enum):
    RED = "red"


@dataclass
class Note:
    topic: str


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Note, "text"),
        (Note, None),
        (Colour, "red"),
        (set[int], [1]),
        (tuple[int, str], (1,)),
        (bytes, "text"),
        (datetime, 5),
        (dict[int, str], {"a": "b"}),
    ],
    ids=lambda v: getattr(v, "__name__", str(v))[:20],
)
def test_a_value_that_does_not_fit_its_annotation_is_refused(annotation, value):
    with pytest.raises(Unrecordable):
        codec_for(annotation).round_trip(value)


@pytest.mark.parametrize("text", ["", "{", "null", '"x"', "[1]", '{"topic": 1}', "NaN"])
def test_a_record_that_no_longer_fits_is_refused(text):
    with pytest.raises(Unrecordable):
        codec_for(Note).decode(text)


@pytest.mark.parametrize(
    "annotation", [type, object.__init__, open], ids=["type", "slot", "function"]
)
def test_unsupported_annotation_is_unrecordable(annotation):
    with pytest.raises(Unrecordable):
        codec = codec_for(annotation)
        codec.round_trip(object())


def test_a_recorded_value_that_no_longer_fits_names_each_field():
    @dataclass
    class Ticket:
        user: str
        cents: int

    with pytest.raises(Unrecordable) as caught:
        TypedCodec(Ticket).decode('{"cents": "many"}')
    assert str(caught.value).endswith(
        "Ticket: user: Field required; cents: Input should be a valid integer, unable to parse "
        "string as an integer"
    )


def test_a_message_lists_only_the_first_problems_of_a_value():
    with pytest.raises(Unrecordable, match=r"0: .*; 4: [^;]*; and 95 more"):
        TypedCodec(list[date]).decode(json.dumps([None] * 100))
