"""The SQLite file: creating, opening, migrating, addressing and closing it."""

import gc
import os
import shutil
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest
from sqlite_file_tools import look, submit

from outlast.errors import SettingsError, StoreBroken, StoreTooNew, StoreUnavailable
from outlast.store.address import store_at
from outlast.store.commands import RegisterWorker, Sweep
from outlast.store.sqlite import migrate
from outlast.store.sqlite.store import SQLiteStore
from outlast.testing.conformance.harness import NOBODY
from support.waiting import wait_until

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*fork.*:DeprecationWarning"
)  # what is tested is just that


@pytest.fixture
def path(tmp_path):
    return tmp_path / "outlast.db"


@pytest.fixture
def store(path):
    store = SQLiteStore(path)
    store.open()
    yield store
    store.close()


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_descriptors() -> int:
    # Connections of earlier tests may wait for the garbage collector.
    gc.collect()
    return len(list(Path("/dev/fd").iterdir()))


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_only_the_owner_may_read_the_database_and_its_companions(path, umask):
    before = os.umask(umask)
    try:
        store = SQLiteStore(path)
        store.open()
        store.acquire_liveness("w")
        store.listen(lambda: None)
        store.commit([submit("r")])
        beside = path.with_name("outlast.db.d")
        files = [path, path.with_name("outlast.db-wal"), path.with_name("outlast.db-shm")]
        assert {mode(file) for file in files} == {0o600}
        assert mode(beside) == 0o700
        inside = list(beside.iterdir())
        assert len(inside) == 5  # gate, room, files, a lock, a fifo
        assert {mode(file) for file in inside} == {0o600}
        store.close()
    finally:
        os.umask(before)


def test_missing_folders_are_created(tmp_path):
    path = tmp_path / "a" / "b c" / "outlast.db"
    store = store_at(f"sqlite:///{path}")
    store.open()
    store.commit([submit("r")])
    store.close()
    assert look(path) == [("r",)]


def test_closed_store_leaves_only_the_database_and_the_fair_lock(path):
    store = SQLiteStore(path)
    store.open()
    store.acquire_liveness("w")
    store.listen(lambda: None)
    store.release_liveness("w")
    store.close()
    assert sorted(p.name for p in path.parent.iterdir()) == ["outlast.db", "outlast.db.d"]
    assert sorted(p.name for p in path.with_name("outlast.db.d").iterdir()) == [
        "files",
        "gate",
        "turn",
    ]


def test_ids_never_become_paths(store, path):
    store.commit([submit("../../escape"), submit("/etc/x")])
    names = {p.name for p in path.parent.rglob("*")}
    assert names == {
        "outlast.db",
        "outlast.db-wal",
        "outlast.db-shm",
        "outlast.db.d",
        "files",
        "gate",
        "turn",
    }


def test_file_that_is_not_a_database_is_refused_and_left_alone(path):
    path.write_bytes(b"my letters\n" * 1000)
    before = path.read_bytes()
    with pytest.raises(StoreBroken, match="not a SQLite database"):
        SQLiteStore(path).open()
    assert path.read_bytes() == before


def test_database_of_another_program_is_refused_and_left_alone(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE customers (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreBroken, match="was not created by Outlast"):
        SQLiteStore(path).open()
    assert path.read_bytes() == before
    assert not path.with_name("outlast.db-wal").exists()


def test_empty_file_becomes_a_store(path):
    path.touch()
    store = SQLiteStore(path)
    store.open()
    store.close()
    assert look(path) == []


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_newer_schema_is_refused_and_left_alone(path, journal):
    store = SQLiteStore(path)
    store.open()
    store.commit([submit("r")])
    store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
        db.execute(f"PRAGMA journal_mode = {journal}")
    before = path.read_bytes()
    with pytest.raises(StoreTooNew, match="99"):
        SQLiteStore(path).open()
    assert path.read_bytes() == before
    assert look(path) == [("r",)]


def test_folder_in_place_of_the_database_is_unavailable(tmp_path):
    with pytest.raises(StoreUnavailable):
        SQLiteStore(tmp_path).open()
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable):
        SQLiteStore(tmp_path / "file" / "outlast.db").open()


def test_store_that_could_not_be_opened_can_be_opened_later(path):
    path.write_bytes(b"not yet a database" * 100)
    store = SQLiteStore(path)
    descriptors = open_descriptors()
    for _ in range(5):
        with pytest.raises(StoreBroken):
            store.open()
    assert open_descriptors() == descriptors
    path.unlink()
    store.open()
    store.commit([submit("r")])
    store.close()


ADD_COLUMN = "ALTER TABLE runs ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue';\nCREATE INDEX colours ON runs (colour);\n"


def test_older_store_is_migrated_and_keeps_its_rows(store, path, monkeypatch):
    store.commit([submit("r")])
    store.close()
    steps = migrate.migrations()
    monkeypatch.setattr(
        migrate, "migrations", lambda: [*steps, ADD_COLUMN, "CREATE TABLE extra (x);"]
    )
    newer = SQLiteStore(path)
    newer.open()
    newer.commit([submit("r2")])
    newer.close()
    assert look(path, "SELECT id, colour FROM runs") == [("r", "blue"), ("r2", "blue")]
    assert look(path, "PRAGMA user_version") == [(len(steps) + 2,)]
    monkeypatch.undo()
    with pytest.raises(StoreTooNew):
        SQLiteStore(path).open()


def test_migration_that_fails_changes_nothing(store, path, monkeypatch):
    store.commit([submit("r")])
    store.close()
    steps = migrate.migrations()
    schema = look(path, "SELECT sql FROM sqlite_schema")
    monkeypatch.setattr(
        migrate, "migrations", lambda: [*steps, ADD_COLUMN + "INSERT INTO nowhere VALUES (1);\n"]
    )
    with pytest.raises(StoreBroken):
        SQLiteStore(path).open()
    assert look(path, "PRAGMA user_version") == [(len(steps),)]
    assert look(path, "SELECT sql FROM sqlite_schema") == schema
    monkeypatch.undo()
    store.open()
    assert store.run("r") is not None


def test_step_that_succeeded_stays_when_the_next_one_fails(store, path, monkeypatch):
    store.close()
    steps = migrate.migrations()
    monkeypatch.setattr(migrate, "migrations", lambda: [*steps, ADD_COLUMN, "nonsense;"])
    with pytest.raises(StoreUnavailable):
        SQLiteStore(path).open()
    assert look(path, "PRAGMA user_version") == [(len(steps) + 1,)]


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_file_that_is_removed_or_replaced_while_in_use_is_broken(store, path, how):
    store.commit([submit("r")])
    path.unlink()
    if how == "replaced":
        other = SQLiteStore(path.with_name("other.db"))
        other.open()
        other.close()
        path.with_name("other.db").rename(path)
    with pytest.raises(StoreBroken, match="removed or replaced"):
        store.commit([submit("lost")])


def test_folder_beside_can_be_removed_while_in_use(store, path):
    store.listen(lambda: None)
    store.acquire_liveness("w")
    shutil.rmtree(path.with_name("outlast.db.d"))
    assert store.commit([submit("r"), RegisterWorker("w", "host", 1, 60.0)])[0].new
    assert store.commit([Sweep()]) == [NOBODY]
    assert store.run("r") is not None


@pytest.mark.parametrize(
    ("query", "level"), [("", 2), ("?synchronous=full", 2), ("?synchronous=NORMAL", 1)]
)
def test_address_sets_the_durability_of_commits(path, query, level):
    store = store_at(f"sqlite:///{path}{query}")
    store.open()
    assert isinstance(store, SQLiteStore)
    assert store._db.execute("PRAGMA synchronous").fetchone() == (level,)
    assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "outlast.db",
        "/data/outlast.db",
        "mysql://host/db",
        "sqlite://",
        "sqlite:///",
        "sqlite://outlast.db",
        "sqlite://host/outlast.db",
        "sqlite:///a%00b.db",
        "sqlite:///a.db?synchronous=off",
        "sqlite:///a.db?mode=ro",
    ],
)
def test_address_of_no_store_is_a_settings_error(address):
    with pytest.raises(SettingsError):
        store_at(address)


def test_path_may_have_any_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for address, name in (
        ("sqlite:///plain.db", "plain.db"),
        ("sqlite:///with%20space%3F.db", "with space?.db"),
        ("sqlite:///file%3Ax.db", "file:x.db"),
        ("sqlite:///%F0%9F%8C%8A.db", "🌊.db"),
    ):
        store = store_at(address)
        store.open()
        store.close()
        assert (tmp_path / name).is_file()


def test_relative_path_stays_where_it_was_when_the_program_changes_its_folder(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    store = store_at("sqlite:///outlast.db")
    store.open()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert store.commit([submit("r")])[0].new
    store.close()


def test_close_waits_for_a_commit_that_is_under_way(path):
    store = SQLiteStore(path)
    store.open()
    store.commit([submit("r"), RegisterWorker("w", "host", 1, 60.0)])
    done: list[object] = []

    def write() -> None:
        for n in range(10_000):
            try:
                store.commit([submit(f"r{n}-{m}") for m in range(20)])
            except StoreUnavailable as error:
                done.append(error)
                return
            done.append(n)

    thread = threading.Thread(target=write)
    thread.start()
    wait_until(lambda: len(done) > 3)
    store.close()
    thread.join()
    assert isinstance(done[-1], StoreUnavailable)
    assert look(path, "SELECT count(*) FROM runs") == [(1 + 20 * (len(done) - 1),)]


def test_unexpected_fault_leaves_no_transaction_open(store, monkeypatch):
    def fail(worker: str) -> bool:
        raise PermissionError(worker)

    store.commit([RegisterWorker("w", "host", 1, 60.0)])
    monkeypatch.setattr(store._liveness, "is_dead", fail)
    with pytest.raises(StoreUnavailable):
        store.commit([submit("r"), Sweep()])
    with pytest.raises(KeyError):
        store.commit([submit("r"), "not a command"])
    monkeypatch.undo()
    assert store.run("r") is None
    assert store.commit([submit("r"), Sweep()])[0].new
