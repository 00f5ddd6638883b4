"""Failing and interrupted file operations of the file store."""

import errno
import os
import shutil
from collections import Counter

import pytest
from file_fault_tools import as_opened_elsewhere, failing
from file_history import (
    Disk,
    dump,
    opened,
    quick_folder,
    small_files,
    states,
    submit,
    write_history,
)

from outlast.errors import StoreUnavailable
from outlast.store.commands import Claim, Renew, UpdateSession
from outlast.store.protocol import CommitUnknown
from outlast.store.rows import RunQuery
from outlast.testing.conformance import ManualClock
from outlast.testing.store_hooks import kill
from support.quick_files import QuickFileStore

LONG = "OUTLAST_TEST_KILLS" in os.environ
"""Fail at every single operation; otherwise at some of them."""


@pytest.fixture
def quick_path():
    with quick_folder() as path:
        yield path


class Patient(QuickFileStore):
    """Repeat a commit, as the writer does, until it is done."""

    errors: Counter

    def commit(self, commands):
        for _ in range(1000):
            try:
                return super().commit(commands)
            except CommitUnknown:
                self.errors["unknown"] += 1
                try:
                    self.recover()
                except StoreUnavailable:
                    self.errors["not recovered"] += 1
            except StoreUnavailable:
                self.errors["unavailable"] += 1
        raise AssertionError("it never became definite")


def patient(folder) -> Patient:
    store = Patient(folder, clock=ManualClock())
    store.errors = Counter()
    store.open()
    return store


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_any_failing_operation_leads_to_the_same_state(quick_path, error):
    expected = states(quick_path / "quiet")
    errors, at, last = Counter(), 1, None
    step = 1 if LONG else 8 + 4 * (error == errno.ENOSPC)
    while last is None or at <= last:
        folder = quick_path / "store"
        store = patient(folder)
        meddle, count = failing({at}, error)
        with small_files(), Disk(folder, meddle).on():
            write_history(store)
        errors += store.errors
        assert dump(store) == expected[-1], at
        kill(store)
        again = opened(folder)
        assert dump(again) == expected[-1], at
        again.close()
        shutil.rmtree(folder)
        at, last = at + step, count[0]
    assert errors["unknown"]
    assert errors["unavailable"]


@pytest.mark.parametrize("every", [3, pytest.param(7, marks=pytest.mark.extended)])
def test_repeatedly_failing_operations_lead_to_the_same_state(quick_path, every):
    expected = states(quick_path / "quiet")
    for offset in range(every):
        folder = quick_path / f"store-{offset}"
        store = patient(folder)
        meddle, _ = failing({*range(offset + 1, 400, every), *range(20, 60)}, errno.EIO)
        with small_files(), Disk(folder, meddle).on():
            write_history(store)
        assert dump(store) == expected[-1] == as_opened_elsewhere(store, quick_path)
        store.close()


def test_files_match_memory_after_an_interrupt_at_any_operation(quick_path):
    at, interrupted = 1, True
    while interrupted:
        folder = quick_path / "store"
        store = opened(folder)
        count, interrupted = [0], False

        def meddle(name, path, act, *args):
            count[0] += 1
            if count[0] == at:
                raise KeyboardInterrupt
            return act()

        try:
            with small_files(), Disk(folder, meddle).on():
                write_history(store)
        except KeyboardInterrupt:
            interrupted = True
        store.commit([Renew("w", 500.0 + at), submit(f"new-{at}")])
        assert dump(store) == as_opened_elsewhere(store, quick_path), at
        store.close()
        shutil.rmtree(folder)
        at += 1 if LONG else 9
    assert at > 100


class Interrupted:
    """A connection whose COMMIT is interrupted, before it or after it."""

    def __init__(self, db, when: str) -> None:
        self._db, self._when = db, when

    def __getattr__(self, name):
        return getattr(self._db, name)

    def execute(self, statement, *values):
        if statement == "COMMIT" and self._when:
            when, self._when = self._when, ""
            if when == "after":
                self._db.execute(statement)
            raise KeyboardInterrupt
        return self._db.execute(statement, *values)


@pytest.mark.parametrize("when", ["before", "after"])
def test_files_match_memory_after_an_interrupt_around_the_commit(tmp_path, when):
    store = opened(tmp_path / "store")
    store.commit([submit("r0")])
    real, store._db = store._db, Interrupted(store._db, when)
    with pytest.raises(KeyboardInterrupt):
        store.commit([submit("r1"), UpdateSession("s", "t", {"a": "1"})])
    store._db = real
    assert (store.run("r1") is not None) == (when == "after")
    store.commit([submit("r2")])
    assert dump(store) == as_opened_elsewhere(store, tmp_path)
    store.close()


def test_failed_sync_is_unknown_and_recover_makes_it_definite(tmp_path):
    store = opened(tmp_path / "store")
    store.commit([submit("r0")])
    meddle, _ = failing({2}, errno.EIO)  # the line is written, its sync fails
    with Disk(store.folder, meddle).on(), pytest.raises(CommitUnknown):
        store.commit([submit("r1")])
    assert store.run("r1") is None
    store.recover()
    assert "r1" not in as_opened_elsewhere(store, tmp_path)["runs"].__repr__()
    assert store.commit([submit("r1")])[0].new
    store.close()


def test_commit_that_changes_nothing_touches_no_file(tmp_path):
    store = opened(tmp_path / "store")
    store.commit([submit("r0")])
    operations = []

    def meddle(name, path, act, *args):
        operations.append(name)
        return act()

    with Disk(store.folder, meddle).on():
        store.commit([submit("r0"), Renew("nobody", 1.0), Claim("nobody", "t")])
    assert operations == []
    store.close()


def test_commit_is_one_sync_whatever_it_touches(tmp_path):
    store = opened(tmp_path / "store")
    store.acquire_liveness("w")
    synced = []

    def meddle(name, path, act, *args):
        if name == "fsync":
            synced.append(path)
        return act()

    with Disk(store.folder, meddle).on():
        rows = [out.row for out in store.commit([submit(f"r{n}") for n in range(3)])]
        assert rows == [None, None, None]
        runs = store.runs(RunQuery())
        store.commit(
            [
                *(UpdateSession(f"s{n}", "t", {"a": "1"}) for n in range(20)),
                *(submit(f"i{n}", workflow="") for n in range(20)),
            ]
        )
    assert len(runs) == 3
    assert synced == [str(store.folder / "commits.jsonl")] * 2
    store.close()
