"""The disk is full, read-only or failing, or somebody interrupts: nothing acknowledged is lost, and memory and files are one again."""

import errno
import os
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from file_tale import (
    Disk,
    dump,
    opened,
    quick_folder,
    small_files,
    states,
    submit,
    tale,
)
from store_processes import Child

from outlast.errors import StoreBroken, StoreUnavailable
from outlast.store.file.store import FileStore
from outlast.store.protocol import CommitUnknown
from outlast.store.rows import RunQuery
from outlast.store.verbs import Claim, Keep, Measured, Record, Renew, Submit
from outlast.testing.conformance import HandClock

ROOT = os.geteuid() == 0
LONG = "OUTLAST_TEST_KILLS" in os.environ
"""At every single operation; otherwise at some of them."""


def as_opened_elsewhere(store, tmp_path) -> dict:
    """What somebody finds who opens a copy of the folder as it is now."""
    copy = tmp_path / "copy"
    shutil.copytree(store.folder, copy, ignore=shutil.ignore_patterns("lock"))
    other = opened(copy)
    found = dump(other)
    other.close()
    shutil.rmtree(copy)
    return found


@pytest.fixture
def quick_path():
    with quick_folder() as path:
        yield path


class Patient(FileStore):
    """Commits as the writer does: until it is definite, and done."""

    errors: Counter

    def commit(self, verbs):
        for _ in range(1000):
            try:
                return super().commit(verbs)
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
    store = Patient(folder, clock=HandClock())
    store.errors = Counter()
    store.open()
    return store


def failing(numbers, error):
    """Operations with these numbers fail; a write has been done by half then."""
    count = [0]

    def meddle(name, path, act, *args):
        count[0] += 1
        if count[0] in numbers:
            if name == "write":
                act(args[0][: len(args[0]) // 2])
            raise OSError(error, os.strerror(error))
        return act()

    return meddle, count


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_whichever_operation_fails_the_tale_ends_the_same(quick_path, error):
    expected = states(quick_path / "quiet")
    errors, at, last = Counter(), 1, None
    step = 1 if LONG else 5 + 2 * (error == errno.ENOSPC)
    while last is None or at <= last:
        folder = quick_path / "store"
        store = patient(folder)
        meddle, count = failing({at}, error)
        with small_files(), Disk(folder, meddle).on():
            tale(store)
        errors += store.errors
        assert dump(store) == expected[-1], at
        store.die()
        again = opened(folder)
        assert dump(again) == expected[-1], at
        again.close()
        shutil.rmtree(folder)
        at, last = at + step, count[0]
    assert errors["unknown"]
    assert errors["unavailable"]


@pytest.mark.parametrize("every", [3, 7])
def test_when_operations_keep_failing_the_tale_ends_the_same(quick_path, every):
    expected = states(quick_path / "quiet")
    for offset in range(every):
        folder = quick_path / f"store-{offset}"
        store = patient(folder)
        meddle, _ = failing({*range(offset + 1, 400, every), *range(20, 60)}, errno.EIO)
        with small_files(), Disk(folder, meddle).on():
            tale(store)
        assert dump(store) == expected[-1] == as_opened_elsewhere(store, quick_path)
        store.close()


def test_interrupted_at_any_operation_memory_and_files_are_one_after_the_next_commit(quick_path):
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
                tale(store)
        except KeyboardInterrupt:
            interrupted = True
        store.commit([Renew("w", 500.0 + at), submit(f"new-{at}")])
        assert dump(store) == as_opened_elsewhere(store, quick_path), at
        store.close()
        shutil.rmtree(folder)
        at += 1 if LONG else 5
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
def test_interrupted_around_the_commit_in_memory_files_follow_memory(tmp_path, when):
    store = opened(tmp_path / "store")
    store.commit([submit("r0")])
    real, store._db = store._db, Interrupted(store._db, when)
    with pytest.raises(KeyboardInterrupt):
        store.commit([submit("r1"), Keep("s", "t", {"a": "1"})])
    store._db = real
    assert (store.run("r1") is not None) == (when == "after")
    store.commit([submit("r2")])
    assert dump(store) == as_opened_elsewhere(store, tmp_path)
    store.close()


def test_a_failed_sync_is_unknown_and_recover_makes_it_definite(tmp_path):
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


def test_a_commit_that_changes_nothing_touches_no_file(tmp_path):
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


def test_a_commit_is_one_sync_whatever_it_touches(tmp_path):
    store = opened(tmp_path / "store")
    store.hold("w")
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
                *(Keep(f"s{n}", "t", {"a": "1"}) for n in range(20)),
                *(submit(f"i{n}", workflow="") for n in range(20)),
            ]
        )
    assert len(runs) == 3
    assert synced == [str(store.folder / "commits.jsonl")] * 2
    store.close()


# -- a full disk


@pytest.fixture
def small_disk(tmp_path):
    """Root mounts one; anybody else has a file system of the machine's own, or none."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if not ROOT or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let us mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk_loses_nothing_and_the_store_goes_on_when_there_is_room(small_disk, tmp_path):
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 1_000_000)
    store = opened(small_disk / "store")
    acknowledged = []
    with pytest.raises(StoreUnavailable, match="disk is full"):
        for number in range(100):
            store.commit([submit(f"r{number}", args="x" * 30_000)])
            acknowledged.append(f"r{number}")
    assert acknowledged
    for _ in range(3):  # it stays full, and says so each time
        with pytest.raises(StoreUnavailable, match="disk is full"):
            store.commit([submit("more", args="x" * 600_000)])
    assert {row.id for row in store.runs(RunQuery())} == set(acknowledged)
    ballast.unlink()
    assert store.commit([submit("more", args="x" * 30_000)])[0].new
    assert dump(store) == as_opened_elsewhere(store, tmp_path)
    store.close()
    again = opened(small_disk / "store")
    assert {row.id for row in again.runs(RunQuery())} == {"more", *acknowledged}
    again.close()


def test_a_store_cannot_be_made_on_a_full_disk_and_says_so(small_disk):
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * shutil.disk_usage(small_disk).free)
    store = FileStore(small_disk / "store")
    with pytest.raises(StoreUnavailable, match="disk is full"):
        store.open()
    ballast.unlink()
    store.open()
    assert store.commit([submit("r")])[0].new
    store.close()


FILE_SIZE_LIMIT = """
import resource
from outlast.errors import StoreError
from outlast.store.file.store import FileStore
from outlast.store.protocol import CommitUnknown
store = FileStore(sys.argv[1])
store.open()
store.commit([submit("first")])
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
number, errors = 0, []
while not errors:
    verb = submit(f"r{number}")._replace(args="x" * 30_000)
    try:
        store.commit([verb])
        number += 1
    except StoreError as error:
        errors.append(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
if isinstance(errors[0], CommitUnknown):
    store.recover()
say(type(errors[0]).__name__, number, store.commit([verb])[0].new)
"""


def test_a_limit_on_the_size_of_files_loses_nothing(tmp_path):
    with Child(FILE_SIZE_LIMIT, tmp_path / "store") as child:
        error, acknowledged, new = child.line().split()
        child.process.kill()
        child.wait()
    assert (error, new) == ("StoreUnavailable", "True")
    store = opened(tmp_path / "store")
    ids = {row.id for row in store.runs(RunQuery())}
    assert ids == {"first", *(f"r{number}" for number in range(int(acknowledged) + 1))}
    store.close()


FAILING_SYNC = """
from outlast.store.file.store import FileStore
from outlast.store.protocol import CommitUnknown
from outlast.errors import StoreUnavailable
store = FileStore(sys.argv[1])
store.open()
store.hold("w")
row = store.commit([Enlist("w", "host", 1, 600.0), submit("own")._replace(worker="w")])[1].row
say("open")
unknown = 0
for n in range(1, 30):
    while True:
        try:
            assert store.commit([submit(f"r{n}"), Record(row.pk, n, row.fence, "step", str(n), 1.0)])[1] is None
            break
        except CommitUnknown:
            unknown += 1
        except StoreUnavailable:
            pass
    say("acknowledged", n)
say("end", unknown, os.getpid())
sys.stdin.readline()
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("when", ["12..14", "15+3"])
def test_when_fsync_fails_what_was_acknowledged_stays_and_the_rest_ends_once(tmp_path, when):
    inject = (
        "strace",
        "-f",
        "-qq",
        "-o",
        str(tmp_path / "trace"),
        "-e",
        "trace=fsync",
        "-e",
        f"inject=fsync:error=EIO:when={when}",
    )
    with Child(FAILING_SYNC, tmp_path / "store", wrap=inject) as child:
        try:
            assert child.line() == "open"
        except AssertionError:
            pytest.skip("this machine does not let us trace")
        for number in range(1, 30):
            assert child.line() == f"acknowledged {number}"
        _, unknown, pid = child.line().split()
        os.kill(int(pid), signal.SIGKILL)  # the program itself, not strace
        child.wait()
    assert int(unknown) > 0
    store = opened(tmp_path / "store")
    assert {row.id for row in store.runs(RunQuery())} == {"own", *(f"r{number}" for number in range(1, 30))}
    own = store.run("own")
    assert [(entry.seq, entry.key) for entry in store.journal(own.pk)] == [(n, str(n)) for n in range(1, 30)]
    store.close()


# -- other people's hands


def test_a_read_only_place_is_unavailable_and_says_so(tmp_path):
    place = tmp_path / "place"
    opened(place).close()
    if ROOT:  # whom modes do not stop
        view = tmp_path / "view"
        view.mkdir()
        if subprocess.run(["mount", "--bind", place, view], capture_output=True, check=False).returncode:
            pytest.skip("this machine does not let us mount")
        subprocess.run(["mount", "-o", "remount,bind,ro", view], check=True)
    else:
        view = place
        place.chmod(0o500)
        (place / "lock").chmod(0o400)
    try:
        with pytest.raises(StoreUnavailable, match=r"read-only|not permitted"):
            FileStore(view).open()
        with pytest.raises(StoreUnavailable, match=r"read-only|not permitted"):
            FileStore(view / "new" / "store").open()
    finally:
        if ROOT:
            subprocess.run(["umount", "-l", view], check=True)
        else:
            place.chmod(0o700)


@pytest.mark.parametrize("what", ["removed", "replaced"])
def test_a_folder_that_is_taken_away_while_in_use_is_broken(tmp_path, what):
    store = opened(tmp_path / "store")
    store.commit([submit("r")])
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    if what == "replaced":
        opened(tmp_path / "store").close()
    with pytest.raises(StoreBroken, match="removed or replaced"):
        store.commit([submit("r2")])
    store.close()
    again = opened(tmp_path / "elsewhere")
    assert [row.id for row in again.runs(RunQuery())] == ["r"]
    again.close()


def test_who_lost_its_lock_writes_nothing_more_beside_the_next(tmp_path):
    store = opened(tmp_path / "store")
    store.commit([submit("r")])
    (tmp_path / "store/lock").unlink()
    other = opened(tmp_path / "store")
    for number in range(2):
        with pytest.raises(StoreBroken, match="removed or replaced"):
            store.commit([submit(f"lost{number}")])
        other.commit([submit(f"r{number}")])
    store.close()
    other.close()
    again = opened(tmp_path / "store")
    assert sorted(row.id for row in again.runs(RunQuery())) == ["r", "r0", "r1"]
    again.close()


def test_a_file_in_the_place_of_the_folder_is_broken_and_what_cannot_be_looked_at_is_unavailable(tmp_path):
    store = opened(tmp_path / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "stat", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "planted")))
        with pytest.raises(StoreUnavailable, match="planted"):
            store.commit([submit("r")])
    store.commit([submit("r")])
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    (tmp_path / "store").write_text("a file")
    with pytest.raises(StoreBroken, match="removed or replaced"):
        store.commit([submit("r2")])
    store.close()


def test_the_log_is_not_emptied_before_the_new_name_of_a_rewritten_file_is_durable(tmp_path):
    """The sync of the folder fails after the rename: with the log gone, a power cut could bring back the old file, never synced."""
    seen: list[tuple[str, str]] = []
    failing = [tmp_path / "store"]

    def meddle(name, path, act, *_):
        if name == "fsync" and path in map(str, failing) and ("replace", "store.jsonl.new") in seen:
            failing.clear()
            raise OSError(errno.EIO, "planted")
        seen.append((name, Path(path).name))
        return act()

    store = opened(tmp_path / "store")
    store.commit([Measured((("flow", "step", 1.0),))])
    store.close()
    store = opened(tmp_path / "store")  # all names in the folder are durable
    with small_files(), Disk(tmp_path / "store", meddle).on():
        for number in range(40):
            store.commit([Measured((("flow", f"step{number}", 1.0),))])
            if not failing and not store._sound:
                break
        assert not failing
        del seen[:]
        store.commit([Measured((("flow", "more", 1.0),))])
    assert seen.index(("fsync", "store")) < seen.index(("ftruncate", "commits.jsonl"))
    store.close()


def test_a_bad_value_writes_nothing_and_what_is_next_is_written(tmp_path):
    store = opened(tmp_path / "store")
    with pytest.raises(Exception, match="surrogate"):
        store.commit([submit("good"), submit("bad", args="\ud800")])
    assert store.commit([submit("r")])[0].new
    assert {row.id for row in store.runs(RunQuery())} == {"r"}
    assert dump(store) == as_opened_elsewhere(store, tmp_path)
    store.close()


def test_what_a_lone_run_writes_itself_is_as_durable(tmp_path):
    store = opened(tmp_path / "store")
    store.hold("w")
    row = store.commit([Submit("r", "flow", "[]", "t", "s")])
    assert row[0].new
    assert store.try_commit([Keep("s", "t", {"a": "1"})]) == [1]
    assert dump(store) == as_opened_elsewhere(store, tmp_path)
    meddle, _ = failing({1}, errno.EIO)
    with Disk(store.folder, meddle).on(), pytest.raises(StoreUnavailable):
        store.try_commit([Record(1, 1, 1, "step", "k", 1.0), Keep("s", "t2", {"a": "2"})])
    assert store.try_commit([Keep("s", "t3", {"a": "3"})]) == [2]
    store.close()
