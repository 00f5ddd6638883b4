"""Values that would come back changed are refused; equal values share a fingerprint."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr

from outlast import StepFailed, Unrecordable
from outlast.codec.codecs import codec_for
from outlast.codec.exceptions import decode_error, encode_error
from outlast.codec.signature import Signature

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Base(BaseModel):
    a: int = 1


class Derived(Base):
    b: int = 2


class Hides(BaseModel):
    a: int = 1
    b: int = Field(default=5, exclude=True)


class Anything(BaseModel):
    x: Any


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (str | bytes, b"abc"),
        (str | datetime, NOON),
        (str | Path, Path("/x")),
        (list[int] | set[int], {1, 2}),
        (SecretStr, SecretStr("word")),
        (Base, Derived(b=9)),
        (list[Base], [Derived(b=9)]),
        (Hides, Hides(b=7)),
        (Anything, Anything(x=(1, 2))),
        (Anything, Anything(x=NOON)),
        (tuple[Any, ...], (NOON, {1}, b"x")),
        (dict[int, Any], {1: (1, 2)}),
        (dict[str, tuple], {"a": ((1,),)}),
    ],
    ids=lambda it: type(it).__name__,
)
def test_a_value_that_would_come_back_changed_is_refused(annotation, value):
    with pytest.raises(Unrecordable):
        codec_for(annotation).round_trip(value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int | str | None, True),
        (str | None | Path, "x"),
        (float | str, 1),
        (set[str | int], {"1", 1}),
        (tuple[int, int] | list[int], [1, 2]),
        (Derived, Derived(b=9)),
        (Hides, Hides()),
        (list[float] | None, [float("nan")]),
    ],
    ids=lambda it: type(it).__name__,
)
def test_a_value_that_comes_back_as_it_was_is_not_refused(annotation, value):
    _, back = codec_for(annotation).round_trip(value)
    assert type(back) is type(value)
    assert repr(back) == repr(value) or back == value


def test_codec_does_not_depend_on_annotations_seen_before():
    """`str | bytes` and `bytes | str` are equal, but pydantic tries their members in the order they are written in."""
    for first, second in [(str | Path, Path | str), (bytes | str, str | bytes)]:
        codec_for(first)
        assert list(codec_for(second).annotation.__args__) == list(second.__args__)


def test_an_argument_that_would_come_back_changed_is_refused():
    def fn(a: str | bytes) -> None: ...

    with pytest.raises(Unrecordable, match="argument 'a'"):
        Signature(fn).encode((b"abc",), {})


@pytest.mark.parametrize(
    ("error", "names"),
    [
        (ImportError("x", name="m", path="p"), ["msg"]),
        (OSError(2, "x", "f"), ["errno", "strerror", "filename"]),
        (BlockingIOError(11, "x", 5), ["errno", "characters_written"]),
        (AttributeError("x", name="n"), ["name"]),
        (StopIteration(5), ["value"]),
    ],
    ids=lambda it: type(it).__name__ if isinstance(it, Exception) else "-".join(it),
)
def test_an_exception_comes_back_with_what_it_knows_or_as_step_failed(error, names):
    back = decode_error(encode_error(error, 20_000))
    if not isinstance(back, StepFailed):
        assert type(back) is type(error)
        assert {name: getattr(back, name) for name in names} == {
            name: getattr(error, name) for name in names
        }


def test_no_module_is_asked_to_make_what_a_recorded_exception_names(monkeypatch):
    asked, lazy = [], ModuleType("lazy")

    def make(name: str) -> type:
        asked.append(name)
        return ValueError

    lazy.__getattr__ = make
    monkeypatch.setitem(sys.modules, "lazy", lazy)
    back = decode_error(json.dumps({"type": "lazy:Thing", "message": "m", "args": []}))
    assert isinstance(back, StepFailed)
    assert asked == []


def fingerprint(fn, *args, **kwargs) -> str:
    return Signature(fn).fingerprint(args, kwargs)


def test_order_of_keys_does_not_change_a_fingerprint():
    def fn(x: Any) -> None: ...

    def keywords(**more: Any) -> None: ...

    assert fingerprint(fn, {"a": 1, "b": 2}) == fingerprint(fn, {"b": 2, "a": 1})
    assert fingerprint(fn, {"a": {"c": 1, "d": [2]}}) == fingerprint(fn, {"a": {"d": [2], "c": 1}})
    assert fingerprint(keywords, a=1, b=[2]) == fingerprint(keywords, b=[2], a=1)
    assert fingerprint(keywords, a=1, b=2) == fingerprint(keywords, b=2, a=1)


def test_set_and_list_have_different_fingerprints():
    def fn(x: Any) -> None: ...

    assert fingerprint(fn, {1}) != fingerprint(fn, ["1"])
    assert fingerprint(fn, frozenset({"a"})) != fingerprint(fn, ['"a"'])


def test_keys_of_several_types_have_a_fingerprint_too():
    def fn(x: Any) -> None: ...

    assert fingerprint(fn, {1: "a", "b": 2}) != fingerprint(fn, {1: "a", "b": 3})
