"""Full, failing and read-only disks under the file store."""

import errno
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from file_fault_tools import as_opened_elsewhere, failing
from file_history import (
    Disk,
    dump,
    opened,
    small_files,
    submit,
)
from store_processes import Child

from outlast.errors import StoreBroken, StoreUnavailable
from outlast.store.commands import Record, RecordDurations, Submit, UpdateSession
from outlast.store.file.store import FileState, FileStore
from outlast.store.rows import RunQuery

ROOT = os.geteuid() == 0


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


def test_full_disk_loses_nothing_and_the_store_goes_on_when_there_is_room(small_disk, tmp_path):
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


def test_creating_a_store_on_a_full_disk_fails_with_a_reason(small_disk):
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
    command = submit(f"r{number}")._replace(args="x" * 30_000)
    try:
        store.commit([command])
        number += 1
    except StoreError as error:
        errors.append(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
if isinstance(errors[0], CommitUnknown):
    store.recover()
say(type(errors[0]).__name__, number, store.commit([command])[0].new)
"""


def test_limit_on_the_size_of_files_loses_nothing(tmp_path):
    with Child(FILE_SIZE_LIMIT, tmp_path / "store") as child:
        error, acknowledged, new = child.line().split()
        child.kill()
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
store.acquire_liveness("w")
row = store.commit([RegisterWorker("w", "host", 1, 600.0), submit("own")._replace(worker="w")])[1].row
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
def test_failing_fsync_loses_no_acknowledged_commit_and_repeats_none(tmp_path, when):
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
    assert {row.id for row in store.runs(RunQuery())} == {
        "own",
        *(f"r{number}" for number in range(1, 30)),
    }
    own = store.run("own")
    assert [(entry.seq, entry.key) for entry in store.journal(own.pk)] == [
        (n, str(n)) for n in range(1, 30)
    ]
    store.close()


def test_read_only_place_is_unavailable_and_says_so(tmp_path):
    place = tmp_path / "place"
    opened(place).close()
    if ROOT:  # whom modes do not stop
        view = tmp_path / "view"
        view.mkdir()
        if subprocess.run(
            ["mount", "--bind", place, view], capture_output=True, check=False
        ).returncode:
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
def test_folder_that_is_taken_away_while_in_use_is_broken(tmp_path, what):
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


def test_process_that_lost_its_lock_stops_writing(tmp_path):
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


def test_file_in_place_of_the_folder_is_broken_and_an_unreadable_one_unavailable(tmp_path):
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


def test_log_is_kept_until_the_rename_of_a_rewritten_file_is_durable(tmp_path):
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
    store.commit([RecordDurations((("flow", "step", 1.0),))])
    store.close()
    store = opened(tmp_path / "store")  # all names in the folder are durable
    with small_files(), Disk(tmp_path / "store", meddle).on():
        for number in range(40):
            store.commit([RecordDurations((("flow", f"step{number}", 1.0),))])
            if not failing and store._state is not FileState.CURRENT:
                break
        assert not failing
        del seen[:]
        store.commit([RecordDurations((("flow", "more", 1.0),))])
    assert seen.index(("fsync", "store")) < seen.index(("ftruncate", "commits.jsonl"))
    store.close()


def test_bad_value_writes_nothing_and_the_next_commit_succeeds(tmp_path):
    store = opened(tmp_path / "store")
    with pytest.raises(Exception, match="surrogate"):
        store.commit([submit("good"), submit("bad", args="\ud800")])
    assert store.commit([submit("r")])[0].new
    assert {row.id for row in store.runs(RunQuery())} == {"r"}
    assert dump(store) == as_opened_elsewhere(store, tmp_path)
    store.close()


def test_commit_on_the_loop_is_durable(tmp_path):
    store = opened(tmp_path / "store")
    store.acquire_liveness("w")
    row = store.commit([Submit("r", "flow", "[]", "t", "s")])
    assert row[0].new
    assert store.try_commit([UpdateSession("s", "t", {"a": "1"})]) == [1]
    assert dump(store) == as_opened_elsewhere(store, tmp_path)
    meddle, _ = failing({1}, errno.EIO)
    with Disk(store.folder, meddle).on(), pytest.raises(StoreUnavailable):
        store.try_commit([Record(1, 1, 1, "step", "k", 1.0), UpdateSession("s", "t2", {"a": "2"})])
    assert store.try_commit([UpdateSession("s", "t3", {"a": "3"})]) == [2]
    store.close()
