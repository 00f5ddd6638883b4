"""Errors name what explains them, in a note: whichever way they come about, and nowhere else."""

import copy
import json
import pickle
import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

import outlast
from outlast import errors, run, step, workflow
from outlast.codec.exceptions import decode_error, encode_error
from outlast.effects import FileNotWritten
from outlast.errors import (
    Backpressure,
    BadName,
    Diverged,
    Evicted,
    OutlastError,
    StepTimeout,
    StoreUnavailable,
    explained,
)
from outlast.settings.checks import InvalidSettings
from outlast.store.address import store_at
from outlast.store.protocol import whole_journal
from support.waiting import WAIT_SECONDS

NOTE = "outlast explain Backpressure"


class OwnFull(Backpressure):
    """A program's, whose constructor does not call the one above it."""

    def __init__(self, why: str) -> None:
        self.why = why

    def __str__(self) -> str:
        return self.why


class OwnDeeper(OwnFull):
    pass


def test_every_error_has_its_own_name_in_a_note_and_not_in_its_text():
    full = Backpressure("default", 3, 2)
    assert full.__notes__ == [NOTE]
    assert "explain" not in str(full)
    assert "explain" not in repr(full)
    assert full.args == ("default", 3, 2)
    assert Diverged("a", "b").__notes__ == ["outlast explain Diverged"]
    assert Evicted("it waits").__notes__ == ["outlast explain Evicted"]
    assert StepTimeout("late").__notes__ == ["outlast explain StepTimeout"]
    assert FileNotWritten("/a", "no room").__notes__ == ["outlast explain FileNotWritten"]
    assert InvalidSettings("no", "grace").__notes__ == ["outlast explain SettingsError"]


def test_traceback_shows_the_note_of_an_error():
    shown = traceback.format_exception(Backpressure("default", 3, 2))
    assert shown[-1] == f"{NOTE}\n"


@pytest.mark.parametrize("kind", [OwnFull, OwnDeeper])
def test_a_programs_subclass_names_the_nearest_that_has_a_text(kind):
    error = kind("too much")
    assert error.__notes__ == [NOTE]
    assert error.explained_as == "Backpressure"


class OwnTimeout(StepTimeout):
    def __init__(self, host: str, port: int, *, why: str) -> None:
        self.why = why
        super().__init__(f"{host}:{port}: {why}")


class OwnOSError(OutlastError, OSError):
    def __init__(self, *, path: str) -> None:
        super().__init__(2, "no such file", path)


def test_a_programs_subclass_that_is_an_oserror_has_the_arguments_that_its_constructor_gives_it():
    late = OwnTimeout("db", 5432, why="silent")
    assert (str(late), late.args, late.errno) == ("db:5432: silent", ("db:5432: silent",), None)
    assert late.__notes__ == ["outlast explain StepTimeout"]
    gone = OwnOSError(path="/a")
    assert (gone.errno, gone.filename, str(gone)) == (2, "/a", "[Errno 2] no such file: '/a'")


def test_errors_of_others_have_no_note():
    assert not hasattr(ValueError("x"), "__notes__")


def test_catching_and_telling_apart_are_as_they_were():
    with pytest.raises(ValueError) as odd:
        raise BadName("odd")
    assert str(odd.value) == "odd"
    with pytest.raises(TimeoutError):
        raise StepTimeout("late")
    assert not issubclass(Diverged, Exception)
    assert not issubclass(Evicted, OutlastError)
    assert Diverged.__mro__[-3:] == (explained.Explained, BaseException, object)


def test_a_copy_and_a_pickled_one_have_it_once():
    full = Backpressure("default", 3, 2)
    for again in (copy.copy(full), copy.deepcopy(full), pickle.loads(pickle.dumps(full))):
        assert again.__notes__ == [NOTE]
        assert (str(again), vars(again)["limit"]) == (str(full), 2)
    twice = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(full))))
    assert twice.__notes__ == [NOTE]


def fail_there() -> None:
    raise Backpressure("default", 3, 2)


def test_one_that_comes_from_another_process_has_it_once():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        error = pool.submit(fail_there).exception(timeout=WAIT_SECONDS)
    assert error.__notes__ == [NOTE]


def test_in_a_chain_and_in_a_group_each_has_its_own():
    try:
        try:
            raise StoreUnavailable("away")
        except StoreUnavailable as cause:
            raise Backpressure("default", 3, 2) from cause
    except Backpressure as error:
        text = "".join(traceback.format_exception(error))
    assert text.count("outlast explain StoreUnavailable") == text.count(NOTE) == 1
    group = ExceptionGroup("both", [StoreUnavailable("away"), Backpressure("default", 3, 2)])
    assert not hasattr(group, "__notes__")
    assert "".join(traceback.format_exception(group)).count("outlast explain") == 2


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def without_notes(monkeypatch) -> None:
    monkeypatch.delattr(explained.Explained, "__notes__")


CASES = [
    lambda: Backpressure("default", 3, 2),
    lambda: StepTimeout("late"),
    lambda: OwnFull("too much"),
    lambda: FileNotWritten("/a", "no room", 28),
    lambda: errors.RunFailed("r", "why", "trace"),
    lambda: ExceptionGroup("both", [raised(StoreUnavailable("away")), ValueError("x")]),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_note_is_not_recorded(number, monkeypatch):
    def recorded() -> str:
        return encode_error(raised(CASES[number](), raised(StoreUnavailable("before"))), 20_000)

    with_notes = recorded()
    without_notes(monkeypatch)
    assert with_notes == recorded()
    assert "outlast explain" not in with_notes
    assert "StoreUnavailable: before" in with_notes


def test_a_programs_own_notes_are_recorded_as_ever():
    error = raised(Backpressure("default", 3, 2))
    error.add_note("asked for by the importer")
    error.add_note(f"see {NOTE} for more")
    trace = json.loads(encode_error(error, 20_000))["traceback"]
    assert "asked for by the importer" in trace
    assert f"see {NOTE} for more" in trace
    assert f"\n{NOTE}\n" not in trace


def test_notes_that_are_no_list_of_texts_do_not_keep_an_error_from_being_recorded():
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("no")

    for odd in ([Odd()], "a text", 7, None):
        error = raised(ValueError("x"))
        error.__notes__ = odd
        assert json.loads(encode_error(error, 20_000))["message"] == "x"


def test_one_that_comes_back_from_a_journal_has_it_too():
    for error in (Backpressure("default", 3, 2), StepTimeout("late"), OwnFull("too much")):
        again = decode_error(encode_error(raised(error), 20_000))
        assert type(again) is type(error)
        assert again.__notes__ == error.__notes__


@step
async def fill(queue: str) -> None:
    raise Backpressure(queue, 3, 2)


@workflow
async def filling(queue: str) -> str:
    try:
        await fill(queue)
    except Backpressure as error:
        return "; ".join(error.__notes__)
    return "nothing"


def journal_of(address: str, id: str) -> list[tuple]:
    store = store_at(address)
    store.open()
    try:
        return [
            (one.kind, one.key, one.args, one.value, one.error)
            for one in whole_journal(store, store.run(id).pk)
        ]
    finally:
        store.close()


def test_a_run_sees_the_note_and_its_journal_does_not_have_it(tmp_path, monkeypatch):
    address = f"sqlite:///{tmp_path}/with.db"
    assert run(filling("q"), id="r", store=address) == NOTE
    [entry] = journal_of(address, "r")
    assert "outlast explain" not in str(entry)
    without_notes(monkeypatch)
    with pytest.raises(AttributeError):
        run(filling("q"), id="r", store=f"sqlite:///{tmp_path}/without.db")
    monkeypatch.undo()
    assert journal_of(f"sqlite:///{tmp_path}/without.db", "r")[0] == entry


def test_exported_errors_are_those_that_have_it():
    kinds = [
        kind
        for kind in map(vars(outlast).get, outlast.__all__)
        if isinstance(kind, type) and issubclass(kind, BaseException)
    ]
    assert kinds
    assert all(issubclass(kind, explained.Explained) for kind in kinds)
