"""Exceptions of steps come back as their own type where that is safe."""

import asyncio
import json
import sys

import pytest

from outlast import RunFailed, StepFailed, step, workflow


class Custom(Exception):
    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Strange(Exception):
    """Its constructor wants what it does not keep, and must not be called again."""

    calls = 0

    def __init__(self, *, request: object, retries: int) -> None:
        type(self).calls += 1
        self.retries = retries
        super().__init__(f"strange {retries}")


class Holds(Exception):
    """Holds something that JSON cannot carry."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.client = object()


class BadText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class Reduced(Exception):
    def __reduce__(self):
        return eval, ("1/0",)


class ReduceRaises(Exception):
    def __reduce__(self):
        raise RuntimeError("I will not be reduced")


class Nested:
    class Inner(ValueError):
        pass


def lives(world, error):
    """The exception that `except` caught: live, and on replay."""
    seen = []

    @step
    async def fails() -> None:
        raise error

    @workflow
    async def one() -> None:
        try:
            await fails()
        except Exception as caught:
            seen.append(caught)

    world.run(one())
    world.replays(one())
    assert len(seen) == 2
    return seen


BUILTIN = [
    ValueError("no"),
    ValueError(),
    KeyError("key"),
    IndexError(3),
    ZeroDivisionError("division by zero"),
    RuntimeError("two", 2, None, ["x"]),
    TimeoutError("late"),
    NotImplementedError("\x00 \ud800 日"),
    StopAsyncIteration("stop"),
    asyncio.QueueEmpty(),
    LookupError("x"),
]


@pytest.mark.parametrize("error", BUILTIN, ids=lambda e: type(e).__name__)
def test_a_builtin_exception_comes_back_with_its_arguments(world, error):
    for caught in lives(world, error):
        assert type(caught) is type(error)
        assert caught.args == error.args
        assert str(caught) == str(error)


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file", "/etc/none"),
        OSError(13, "denied", "a", None, "b"),
        ConnectionResetError(104, "reset"),
        OSError("only text"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_an_oserror_comes_back_with_its_number_and_its_file(world, error):
    for caught in lives(world, error):
        assert type(caught) is type(error)
        assert (caught.errno, caught.strerror, caught.filename, caught.filename2) == (
            error.errno,
            error.strerror,
            error.filename,
            error.filename2,
        )
        assert str(caught) == str(error)


def test_an_exception_of_the_users_comes_back_with_its_attributes(world):
    for caught in lives(world, Custom("no", 7)):
        assert type(caught) is Custom
        assert (str(caught), caught.code) == ("no", 7)


def test_an_exception_with_a_strange_constructor_comes_back_without_calling_it(world):
    Strange.calls = 0
    for caught in lives(world, Strange(request=object(), retries=4)):
        assert type(caught) is Strange
        assert (str(caught), caught.retries) == ("strange 4", 4)
    assert Strange.calls == 1


def test_a_nested_class_is_found(world):
    for caught in lives(world, Nested.Inner("x")):
        assert type(caught) is Nested.Inner


@pytest.mark.parametrize(
    "error",
    [Holds("kept"), Reduced("reduced"), ReduceRaises("raises")],
    ids=lambda e: type(e).__name__,
)
def test_unrebuildable_exception_becomes_step_failed_live_and_on_replay(world, error):
    for caught in lives(world, error):
        assert type(caught) is StepFailed
        assert caught.type_name == f"{__name__}.{type(error).__name__}"
        assert caught.message == str(error)
        assert "in fails" in caught.traceback_text
        assert str(caught) == f"{caught.type_name}: {error}"


def test_an_exception_of_a_local_class_is_a_step_failed(world):
    class Local(Exception):
        pass

    for caught in lives(world, Local("here")):
        assert type(caught) is StepFailed
        assert caught.type_name.endswith("Local")


def test_broken_str_of_an_exception_does_not_hide_the_error(world):
    for caught in lives(world, BadText()):
        assert isinstance(caught, (BadText, StepFailed))


def test_the_original_traceback_is_shown_as_the_cause(world):
    for caught in lives(world, ValueError("x")):
        assert "in fails" in str(caught.__cause__)


@pytest.mark.parametrize(
    "error", [ExceptionGroup("many", [ValueError("a"), Custom("b", 1)])], ids=["group"]
)
def test_a_group_comes_back_the_same_way_in_every_life(world, error):
    live, replayed = lives(world, error)
    assert type(live) is type(replayed)
    assert str(live) == str(replayed)


class Odd(BaseException):
    """Like what pytest.fail() raises."""


def test_a_step_that_raises_a_base_exception_does_not_leave_its_run_hanging(world):
    @step
    async def fails() -> None:
        raise Odd("odd")

    @workflow
    async def one() -> str:
        try:
            await fails()
        except StepFailed as error:
            return error.message
        return "?"

    assert world.run(one()) == "odd"


def test_a_module_is_never_imported_because_a_journal_says_so(world):
    @step
    async def fails() -> None:
        raise ValueError("x")

    @workflow
    async def one() -> str:
        try:
            await fails()
        except Exception as error:
            return f"{type(error).__name__} {error}"
        return "?"

    world.run(one())
    text = json.dumps({"type": "this:Evil", "message": "m", "args": ["x"]})
    world.store._db.execute("UPDATE entries SET error = ?", (text,))
    assert "this" not in sys.modules
    assert world.replays(one()) == "StepFailed this.Evil: m"
    assert "this" not in sys.modules


@pytest.mark.parametrize(
    "name",
    ["builtins:eval", "builtins:SystemExit", "os:system", "builtins:object", "builtins:", ":", "x"],
)
def test_a_journal_cannot_name_something_that_is_no_exception(world, name):
    @step
    async def fails() -> None:
        raise ValueError("x")

    @workflow
    async def one() -> str:
        try:
            await fails()
        except Exception as error:
            return type(error).__name__
        return "?"

    world.run(one())
    text = json.dumps({"type": name, "message": "m", "args": ["exit 1"]})
    world.store._db.execute("UPDATE entries SET error = ?", (text,))
    assert world.replays(one()) == "StepFailed"


def test_a_run_that_failed_raises_the_workflows_own_exception_now_and_later(world):
    @workflow
    async def one() -> None:
        raise Custom("no", 7)

    for _ in range(2):
        with pytest.raises(Custom) as caught:
            world.run(one())
        assert caught.value.code == 7
        world.restart()


def test_a_run_whose_exception_cannot_be_rebuilt_is_a_run_failed(world):
    @workflow
    async def one() -> None:
        raise Holds("kept")

    with pytest.raises(RunFailed, match="kept") as caught:
        world.run(one())
    assert "in one" in caught.value.traceback_text


def test_long_messages_and_tracebacks_are_cut_not_refused(world):
    world.settings["error_text_max"] = 1000
    live, replayed = lives(world, ValueError("x" * 100_000))
    assert str(live) == str(replayed)
    assert max(len(entry.error or "") for entry in world.journal()) < 4000
