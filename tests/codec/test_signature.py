"""Fingerprints and arguments of calls."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    Field,
    HttpUrl,
    PlainSerializer,
    RootModel,
    SecretStr,
    model_serializer,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass

from outlast import Unrecordable, Unrecorded
from outlast.codec.signature import FINGERPRINT_LENGTH, Signature


@dataclass
class Note:
    topic: str
    tags: frozenset[str] = frozenset()


def plain_function(a: int, b: str = "b", *rest: Any, c: float = 1.0, **more: Any) -> None: ...


def fingerprint(fn, *args, **kwargs) -> str:
    return Signature(fn).fingerprint(args, kwargs)


def test_positional_and_keyword_arguments_have_one_fingerprint():
    def fn(a, b=2): ...

    assert fingerprint(fn, 1, 5) == fingerprint(fn, 1, b=5) == fingerprint(fn, b=5, a=1)


def test_other_arguments_have_another_fingerprint():
    def fn(a, b=2): ...

    prints = [
        fingerprint(fn, *args)
        for args in [(1,), (2,), ("1",), (1, 3), (None,), (1.5,), ([1],), ({"a": 1},), (True,)]
    ]
    assert len(set(prints)) == len(prints)


def test_no_arguments_have_an_empty_fingerprint():
    assert fingerprint(lambda: None) == ""


@given(st.text(max_size=5000))
def test_fingerprint_of_any_argument_is_short_and_printable(text):
    def fn(a): ...

    made = fingerprint(fn, text)
    assert len(made) <= FINGERPRINT_LENGTH + 1
    made.encode()
    assert made == fingerprint(fn, text)


@given(st.text(min_size=300, max_size=400), st.text(min_size=1, max_size=5))
def test_long_arguments_that_differ_at_their_end_differ(text, end):
    def fn(a): ...

    assert fingerprint(fn, text) != fingerprint(fn, text + end)


@pytest.mark.parametrize("text", ["\ud800" * 3, "\ud800" * 300, "\x00", "\udfff" + "x" * 500])
def test_lone_surrogates_can_be_fingerprinted(text):
    def fn(a): ...

    fingerprint(fn, text).encode()


def test_values_of_any_type_pydantic_knows_can_be_fingerprinted():
    def fn(a): ...

    for value in (
        Note("x"),
        datetime(2026, 1, 1),
        b"bytes",
        {1, 2},
        (1, 2),
        {1: 2},
        frozenset({"a"}),
    ):
        assert fingerprint(fn, value) == fingerprint(fn, value)


def test_error_for_an_unsupported_argument_says_how_to_mark_it():
    def fn(client): ...

    with pytest.raises(Unrecordable, match="Unrecorded"):
        fingerprint(fn, object())


def test_unrecorded_argument_is_not_part_of_the_fingerprint():
    def fn(client: Annotated[Any, Unrecorded], other: Annotated[Any, Unrecorded()], x: int): ...

    assert fingerprint(fn, object(), object(), 1) == fingerprint(fn, None, None, 1) == '{"x":1}'


SCRIPT = """
from outlast.codec.signature import Signature
from dataclasses import dataclass, field

@dataclass
class Note:
    topic: str
    tags: frozenset

def fn(a, b=None): ...

sets = {f"word {n}" for n in range(50)}
print(Signature(fn).fingerprint((sets,), {}))
print(Signature(fn).fingerprint(([{"nested": sets}], Note("x", frozenset(sets))), {}))
"""


def test_fingerprint_does_not_depend_on_the_hash_seed():
    made = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    }
    assert len(made) == 1


def test_arguments_come_back_by_position_and_by_name():
    signature = Signature(plain_function)
    for args, kwargs in [
        ((1,), {}),
        ((1, "x"), {}),
        ((1, "x", 2, 3), {"c": 2.5}),
        ((), {"a": 1, "z": [1]}),
    ]:
        bound = signature.decode(signature.encode(args, kwargs))
        assert signature.bind(*bound) == signature.bind(args, kwargs)


def test_arguments_come_back_as_their_annotation_says():
    def fn(note: Note, *numbers: int, when: datetime, **pairs: tuple[int, int]): ...

    signature = Signature(fn)
    when = datetime(2026, 1, 1)
    args, kwargs = signature.decode(
        signature.encode((Note("x"), 1, 2), {"when": when, "p": (1, 2)})
    )
    assert args == (Note("x"), 1, 2)
    assert kwargs == {"when": when, "p": (1, 2)}


@pytest.mark.parametrize(
    ("fn", "args", "kwargs"),
    [
        (lambda: None, (1,), {}),
        (lambda a: None, (), {}),
        (lambda a: None, (1, 2), {}),
        (lambda a: None, (1,), {"b": 2}),
        (lambda a: None, (1,), {"a": 2}),
        (lambda *, a: None, (1,), {}),
    ],
)
def test_wrong_arguments_are_a_type_error(fn, args, kwargs):
    for method in (Signature(fn).encode, Signature(fn).fingerprint, Signature(fn).bind):
        with pytest.raises(TypeError):
            method(args, kwargs)


def test_a_workflow_cannot_take_what_is_unrecorded():
    def fn(client: Annotated[Any, Unrecorded]): ...

    with pytest.raises(Unrecordable, match="client"):
        Signature(fn).encode((1,), {})


def test_annotations_that_cannot_be_resolved_are_a_clear_error():
    def fn(a: "NoSuchName"): ...  # noqa: F821

    with pytest.raises(Unrecordable, match="NoSuchName"):
        Signature(fn).resolve()


def test_fields_that_have_their_default_are_left_out_of_a_fingerprint_as_parameters_are():
    @dataclass
    class State:
        text: str
        count: int = 0
        words: list[str] = field(default_factory=list)
        made: list[int] = field(default_factory=lambda: [1])

    class Model(BaseModel):
        text: str
        count: int = 0

    def fn(*, state: object) -> None: ...

    def of(state: object) -> str:
        return Signature(fn).fingerprint((), {"state": state})

    assert of(State("a")) == '{"state":{"class":"State","made":[1],"text":"a"}}'
    assert (
        of(State("a", 1, ["b"]))
        == '{"state":{"class":"State","count":1,"made":[1],"text":"a","words":["b"]}}'
    )
    assert (
        of(State("a", count=False))
        == '{"state":{"class":"State","count":false,"made":[1],"text":"a"}}'
    )
    assert of(Model(text="a", count=0)) == '{"state":{"class":"Model","text":"a"}}'
    assert of(Model(text="a", count=2)) == '{"state":{"class":"Model","count":2,"text":"a"}}'


def test_two_classes_whose_defaults_differ_make_different_calls():
    @dataclass
    class Human:
        text: str
        role: str = "user"

    @dataclass
    class Assistant:
        text: str
        role: str = "assistant"

    def fn(message: object) -> None: ...

    assert len({Signature(fn).fingerprint((one("hi"),), {}) for one in (Human, Assistant)}) == 2


class Url(BaseModel):
    url: HttpUrl
    key: SecretStr
    masked: Annotated[str, PlainSerializer(lambda text: "…" + text[-2:])] | None = None
    hidden: str = Field("", exclude=True)


class Tag(BaseModel, frozen=True):
    name: str


@pydantic_dataclass
class Base:
    a: int


@dataclass
class Derived(Base):
    extra: int = 0


class Whole(BaseModel):
    secret: str

    @model_serializer
    def written(self) -> str:
        return "…"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            Url(url="https://a.example/", key="hush", masked="4111234", hidden="quiet"),
            '{"class":"Url","key":"**********","masked":"…34","url":"https://a.example/"}',
        ),
        (SecretStr("hush"), '"**********"'),
        ({Tag(name="b"), Tag(name="a")}, r'{"set":["{\"class\":\"Tag\",\"name\":\"a\"}","{\"class\":\"Tag\",\"name\":\"b\"}"]}'),
        (RootModel[list[int]]([1, 2]), '{"class":"RootModel[list[int]]","root":[1,2]}'),
        (Derived(1, 2), '{"a":1,"class":"Derived","extra":2}'),
        (Whole(secret="hush"), '"…"'),
    ],
)  # fmt: skip
def test_fingerprint_of_a_model_uses_its_own_serialisation(value, text):
    def fn(value: object) -> None: ...

    assert json.loads(Signature(fn).fingerprint((value,), {})) == {"value": json.loads(text)}


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        ((), {}, "missing a required argument: 'title'"),
        (("a", 1), {}, "too many positional arguments"),
        (("a",), {"nope": 1}, "got an unexpected keyword argument 'nope'"),
    ],
)
def test_arguments_that_do_not_fit_name_the_function(args, kwargs, problem):
    def publish(title: str) -> None: ...

    with pytest.raises(TypeError, match=rf"publish\(\): {problem}"):
        Signature(publish).bind(args, kwargs)
