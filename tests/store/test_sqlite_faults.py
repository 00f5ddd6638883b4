"""Full disks, read-only places, damage and locks under the SQLite store."""

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing

import pytest
from sqlite_fault_tools import check_file, submit
from store_processes import Child

from outlast.errors import StoreBroken, StoreUnavailable
from outlast.store.rows import RunQuery
from outlast.store.sqlite import connection
from outlast.store.sqlite.store import SQLiteStore

ROOT = os.geteuid() == 0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "outlast.db"


@pytest.fixture
def opened():
    """Opens stores, and closes them at the end."""
    stores = []

    def open_at(path, **options):
        store = SQLiteStore(path, **options)
        store.open()
        stores.append(store)
        return store

    yield open_at
    for store in stores:
        store.close()


@pytest.fixture
def small_disk(tmp_path):
    if not ROOT:
        pytest.skip("only root can mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this machine does not let us mount")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_full_disk_loses_nothing_and_the_store_goes_on_when_there_is_room(small_disk, opened):
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 1_500_000)
    store = opened(small_disk / "outlast.db")
    acknowledged = []
    with pytest.raises(StoreUnavailable, match="disk is full"):
        for number in range(100):
            store.commit([submit(f"r{number}", 50_000)])
            acknowledged.append(number)
    assert acknowledged
    for _ in range(3):  # it stays full, and says so each time
        with pytest.raises(StoreUnavailable, match="disk is full"):
            store.commit([submit("more", 500_000)])
    assert {row.id for row in store.runs(RunQuery())} == {f"r{number}" for number in acknowledged}
    ballast.unlink()
    assert store.commit([submit("more", 50_000), submit("r0")])[0].new
    store.close()
    check_file(small_disk / "outlast.db")
    again = opened(small_disk / "outlast.db")
    assert {row.id for row in again.runs(RunQuery())} == {
        "more",
        *(f"r{number}" for number in acknowledged),
    }


def test_creating_a_store_on_a_full_disk_fails_with_a_reason(small_disk):
    left = shutil.disk_usage(small_disk).free
    (small_disk / "ballast").write_bytes(b"x" * (left - 8192))
    store = SQLiteStore(small_disk / "outlast.db")
    with pytest.raises(StoreUnavailable):
        store.open()
    (small_disk / "ballast").unlink()
    store.open()
    assert store.commit([submit("r")])[0].new
    store.close()


FILE_SIZE_LIMIT = """
import resource
from outlast.errors import StoreError
from outlast.store.protocol import CommitUnknown
store = SQLiteStore(sys.argv[1])
store.open()
store.commit([submit("first")])
size = os.path.getsize(sys.argv[1] + "-wal")
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 200_000, hard))
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


def test_limit_on_the_size_of_files_loses_nothing(path, opened):
    with Child(FILE_SIZE_LIMIT, path) as child:
        error, acknowledged, new = child.line().split()
        child.kill()
    assert error in ("StoreUnavailable", "CommitUnknown")
    assert new == "True"
    check_file(path)
    ids = {row.id for row in opened(path).runs(RunQuery())}
    assert ids == {"first", *(f"r{number}" for number in range(int(acknowledged) + 1))}


def test_read_only_place_is_unavailable_and_says_so(tmp_path, opened):
    place = tmp_path / "place"
    opened(place / "outlast.db").close()
    if ROOT:  # whom modes do not stop
        view = tmp_path / "view"
        view.mkdir()
        bound = subprocess.run(["mount", "--bind", place, view], capture_output=True, check=False)
        if bound.returncode:
            pytest.skip("this machine does not let us mount")
        subprocess.run(["mount", "-o", "remount,bind,ro", view], check=True)
    else:
        view = place
        (place / "outlast.db").chmod(0o400)
        place.chmod(0o500)
    try:
        with pytest.raises(StoreUnavailable, match=r"read-only|not permitted"):
            SQLiteStore(view / "outlast.db").open()
        with pytest.raises(StoreUnavailable, match=r"read-only|not permitted"):
            SQLiteStore(view / "new.db").open()
    finally:
        if ROOT:
            subprocess.run(["umount", "-l", view], check=True)
        else:
            place.chmod(0o700)


@pytest.mark.parametrize("damage", ["garbage", "zeros"])
def test_damaged_page_is_a_broken_store(path, opened, damage):
    store = opened(path)
    store.commit([submit(f"r{number}", 1000) for number in range(500)])
    store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        for page in range(1, size // 4096):
            file.seek(page * 4096)
            file.write((b"\xa5" if damage == "garbage" else b"\0") * 4096)
    with pytest.raises(StoreBroken, match="damaged"):
        store = opened(path)
        store.commit([submit("new")])
    with pytest.raises(StoreBroken, match="damaged"):
        opened(path).runs(RunQuery(limit=1000))


@pytest.mark.parametrize(
    "change", ["DROP TABLE runs", "ALTER TABLE runs RENAME COLUMN fence TO height"]
)
def test_removed_or_changed_table_is_a_broken_store(path, opened, change):
    store = opened(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute(change)
    with pytest.raises(StoreBroken, match="is missing, or lacks a column"):
        store.commit([submit("new")])
    with pytest.raises(StoreBroken, match="is missing, or lacks a column"):
        store.run("new")


def test_damaged_header_is_broken(path, opened):
    opened(path).close()
    with path.open("r+b") as file:
        file.write(b"Not a format 3\0\0")
    with pytest.raises(StoreBroken, match="not a SQLite database"):
        opened(path)


def test_torn_log_loses_only_what_was_not_acknowledged(path, opened):
    """The tail of the log is garbage, as after a power cut in the middle of a write."""
    script = """
store = SQLiteStore(sys.argv[1])
store.open()
for n in range(20):
    store.commit([submit(f"r{n}")])
say("done")
sys.stdin.readline()
"""
    with Child(script, path) as child:
        child.line()
        child.kill()
    with path.with_name("outlast.db-wal").open("ab") as log:
        log.write(os.urandom(4096 + 24 + 100))
    assert {row.id for row in opened(path).runs(RunQuery())} == {
        f"r{number}" for number in range(20)
    }


KEEP_LOCK = """
import sqlite3
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
say("locked")
sys.stdin.readline()
db.execute("ROLLBACK")
say("free")
sys.stdin.readline()
"""


def test_store_is_unavailable_while_another_program_holds_its_lock(path, opened, monkeypatch):
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.2)
    store = opened(path)
    with Child(KEEP_LOCK, path) as child:
        assert child.line() == "locked"
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="holds its lock"):
                store.commit([submit("r")])
        assert store.run("r") is None  # reading goes on
        child.tell()
        assert child.line() == "free"
        assert store.commit([submit("r")])[0].new


def test_long_reader_blocks_only_recovery(path, opened, monkeypatch):
    monkeypatch.setattr(connection, "BUSY_SECONDS", 0.1)
    store = opened(path)
    store.commit([submit("r")])
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM runs").fetchall()
        store.commit([submit("r2")])
        with pytest.raises(StoreUnavailable, match="another program is reading"):
            store.recover()
        assert store.commit([submit("r3")])[0].new
        reader.execute("ROLLBACK")
    store.recover()
    assert path.with_name("outlast.db-wal").stat().st_size == 0
