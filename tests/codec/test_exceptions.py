"""Exceptions are encoded, decoded and described."""

import asyncio
import json
from dataclasses import dataclass
from functools import cached_property

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.codec.exceptions import decode_error, describe_error, encode_error
from outlast.errors import (
    Conflict,
    LimitExceeded,
    RunCancelled,
    StepFailed,
    StepTimeout,
    UnknownRun,
)

KINDS = [
    ValueError,
    KeyError,
    RuntimeError,
    OSError,
    LookupError,
    ArithmeticError,
    AssertionError,
    UnicodeError,
]
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False)
    | st.text()
)


def again(error: BaseException, text_max: int = 20_000) -> BaseException:
    return decode_error(encode_error(error, text_max))


@given(st.sampled_from(KINDS), st.lists(scalars, max_size=4))
def test_builtins_come_back_with_their_arguments_or_as_step_failed(kind, args):
    error = kind(*args)
    back = again(error)
    assert str(back).endswith(str(error)) or isinstance(back, StepFailed)
    if not isinstance(back, StepFailed):
        assert type(back) is type(error)
        assert back.args == error.args


@given(st.text())
def test_any_message_survives(text):
    encoded = encode_error(ValueError(text), 20_000)
    assert encoded.isascii()
    assert str(decode_error(encoded)) == text


@pytest.mark.parametrize(
    "error",
    [
        LimitExceeded("value_size_max", 10, 20, "the value"),
        Conflict("id", "a", "b"),
        UnknownRun("id"),
        RunCancelled("id", "why"),
        StepTimeout("late"),
        StepFailed("other.Error", "message", "trace"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_outlasts_own_errors_come_back_whole(error):
    back = again(error)
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back).keys() >= vars(error).keys()


def test_a_cancellation_comes_back_as_one():
    assert isinstance(again(asyncio.CancelledError("why")), asyncio.CancelledError)


@given(st.text(min_size=100, max_size=3000), st.integers(10, 90))
def test_long_texts_are_cut_and_marked(text, limit):
    encoded = encode_error(ValueError(text), limit)
    recorded = json.loads(encoded)
    assert recorded["message"].startswith(text[:limit])
    assert "more characters" in recorded["message"]
    back = decode_error(encoded)
    assert (type(back), str(back)) == (ValueError, recorded["message"])
    back = again(ValueError(503, text), limit)
    assert (type(back), back.args[0], back.args[1][:limit]) == (ValueError, 503, text[:limit])
    assert isinstance(again(ValueError([text]), limit), StepFailed), "only texts are cut"


def test_notes_and_causes_do_not_break_encoding():
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as error:
        error.add_note("a note")
        encoded = encode_error(error, 20_000)
    back = decode_error(encoded)
    assert type(back) is ValueError
    assert "inner" in str(back.__cause__)
    assert "a note" in str(back.__cause__)


class Evil(Exception):
    def __init__(self) -> None:
        self.__dict__["__class__"] = "x"
        super().__init__("evil")


class Slots(Exception):
    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class Property(Exception):
    """Its text needs what only its constructor sets."""

    def __init__(self, a: int) -> None:
        super().__init__()
        self._a = a

    def __str__(self) -> str:
        return f"a is {self._a}"


class ReduceRaises(Exception):
    def __reduce__(self):
        raise RuntimeError("no")


class NewRaises(Exception):
    def __new__(cls, *args):
        if not args:
            raise TypeError("needs arguments")
        return super().__new__(cls)

    def __init__(self, *args) -> None:
        super().__init__()


@pytest.mark.parametrize(
    "error",
    [Evil(), Slots(5), Property(3), ReduceRaises("x"), NewRaises(1)],
    ids=lambda e: type(e).__name__,
)
def test_strange_exceptions_come_back_with_their_message_one_way_or_the_other(error):
    back = again(error)
    if isinstance(back, StepFailed):
        assert back.message == str(error)
    else:
        assert type(back) is type(error)
        assert str(back) == str(error)


def test_an_attribute_that_slots_hold_is_not_silently_lost():
    back = again(Slots(5))
    assert isinstance(back, StepFailed) or back.code == 5


def test_a_description_is_short_and_for_people():
    assert describe_error(encode_error(ValueError("no"), 100)) == "ValueError: no"
    assert describe_error(encode_error(ValueError(), 100)) == "ValueError"


@pytest.mark.parametrize("args", [None, "text", 5, {}, [[]], [{"a": 1}]])
def test_a_journal_with_odd_arguments_is_still_an_exception(args):
    text = json.dumps({"type": "builtins:ValueError", "message": "m", "args": args})
    assert isinstance(decode_error(text), Exception)


@pytest.mark.parametrize(
    "state", [None, [], "x", {"__class__": 1}, {"__traceback__": 5}, {"args": 7}]
)
def test_a_journal_with_odd_state_is_still_an_exception(state):
    text = json.dumps({"type": "builtins:ValueError", "message": "m", "args": [], "state": state})
    assert isinstance(decode_error(text), Exception)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["type", "message", "args", "state"]) | st.text(), inner)
    ),
)
DEEP = ["[" * 100_000, '{"type":' * 5_000 + "1" + "}" * 5_000, "9" * 5_000, "", "NaN"]


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_text_that_is_no_recorded_exception_is_described_verbatim(text):
    assert describe_error(text) == text
    with pytest.raises(ValueError, match="cannot be read"):
        decode_error(text)


@given(ANYTHING)
def test_any_recorded_text_decodes_to_an_exception_or_none(value):
    text = json.dumps(value)
    assert isinstance(describe_error(text), str)
    try:
        error = decode_error(text)
    except ValueError:
        return
    assert isinstance(str(error), str)


def test_exception_that_needs_its_arguments_becomes_step_failed():
    text = json.dumps({"type": "outlast.errors:Backpressure", "message": "it is full", "args": []})
    error = decode_error(text)
    assert isinstance(error, StepFailed)
    assert error.message == "it is full"


class Unsayable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def test_exception_without_a_message_comes_back_as_itself():
    back = again(Unsayable("a", 1))
    assert type(back) is Unsayable
    assert back.args == ("a", 1)


class ApiDown(ConnectionError):
    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(f"{url} is down")


class NoSuchFile(OSError):
    def __init__(self, path: str) -> None:
        super().__init__(2, "gone", path)


def test_an_oserror_with_a_constructor_of_its_own_comes_back_as_what_it_is():
    """Take the arguments in `__new__`, and not where other exceptions do."""
    down = again(ApiDown("http://a"))
    assert type(down) is ApiDown
    assert (str(down), down.args, down.url) == (
        "http://a is down",
        ("http://a is down",),
        "http://a",
    )
    gone = again(NoSuchFile("/a"))
    assert type(gone) is NoSuchFile
    assert (str(gone), gone.args, gone.errno, gone.filename) == (
        "[Errno 2] gone: '/a'",
        (2, "gone"),
        2,
        "/a",
    )


def test_json_decode_error_comes_back_as_itself():
    with pytest.raises(json.JSONDecodeError) as raised:
        json.loads('{"a": ')
    back = again(raised.value)
    assert type(back) is json.JSONDecodeError
    assert (str(back), back.args, back.pos, back.doc) == (
        str(raised.value), raised.value.args, raised.value.pos, '{"a": '
    )  # fmt: skip
    assert type(again(back)) is json.JSONDecodeError


@dataclass(frozen=True)
class Frozen(Exception):
    """As some make all their classes."""


def test_exception_that_refuses_attributes_still_comes_back():
    try:
        raise Frozen
    except Frozen as error:
        back = again(error)
    assert type(back) is Frozen
    assert "Frozen" in str(back.__cause__)


def raised_by(code: str) -> BaseException:
    try:
        exec(code, {})
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        ("from os import nothing_of_this_name", ["msg"]),
        ("import nothing_of_this_name", ["msg"]),
        ("unknown_name", []),
        ("''.nothing", ["name"]),
        ("'\u00e4'.encode('ascii')", ["encoding", "object", "start", "end", "reason"]),
        ("raise UnicodeTranslateError('abc', 0, 1, 'why')", ["object", "start", "end", "reason"]),
        ("raise StopIteration(5)", ["value"]),
        ("open('/nothing/of/this/name')", ["errno", "strerror", "filename"]),
        ("import os; os.rename('/nothing/a', '/nothing/b')", ["errno", "filename", "filename2"]),
        ("raise BlockingIOError(11, 'full', 3)", ["errno", "characters_written"]),
        ("{}['a']", []),
        ("raise SyntaxError('of my own')", ["msg"]),
    ],
)
def test_builtin_error_comes_back_with_its_safe_attributes(code, kept):
    error = raised_by(code)
    back = again(error)
    assert type(back) is type(error)
    assert (str(back), back.args) == (str(error), error.args)
    assert {name: getattr(back, name) for name in kept} == {
        name: getattr(error, name) for name in kept
    }


@pytest.mark.parametrize(
    "code", ["a b", "b'\\xff'.decode()", "raise ExceptionGroup('x', [ValueError(1)])"]
)
def test_builtin_error_with_unencodable_state_comes_back_with_its_message(code):
    error = raised_by(code)
    back = again(error)
    assert isinstance(back, StepFailed)
    assert back.message == str(error)


class Counted(Exception):
    """With a default, a cached property and attributes of its own."""

    code = 1

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code
        self.details = {"tried": [1, 2]}

    @cached_property
    def doubled(self) -> int:
        return 2 * self.code


def test_attributes_of_a_user_exception_come_back():
    error = Counted(5)
    assert error.doubled == 10
    back = again(error)
    assert type(back) is Counted
    assert vars(back) == {"code": 5, "details": {"tried": [1, 2]}, "doubled": 10}


def test_a_recorded_traceback_is_part_of_the_next_one_without_a_name():
    def fail() -> None:
        raise ValueError("boom")

    def fail_again(error: BaseException) -> None:
        raise error

    for wrap in (lambda error: error, lambda error: ExceptionGroup("two", [error, KeyError("k")])):
        error: BaseException = ValueError()
        for times in range(3):
            try:
                fail() if times == 0 else fail_again(wrap(again(error)))
            except (ValueError, ExceptionGroup) as raised:
                error = raised
        trace = json.loads(encode_error(error, 20_000))["traceback"]
        assert "RecordedTraceback" not in trace
        assert 'raise ValueError("boom")' in trace
        assert "\n\n\n" not in trace
