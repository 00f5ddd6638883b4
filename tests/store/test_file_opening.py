"""Opening the folder of a file store: its format, its lock and its address."""

import os
import signal
import subprocess

import pytest
from file_history import dump, opened, submit, write_history
from store_processes import Child

from outlast.errors import SettingsError, StoreBroken, StoreTooNew, StoreUnavailable
from outlast.store.address import store_at
from outlast.store.file.row_changes import SCHEMA, SEQUENCE
from outlast.store.file.store import FileStore
from outlast.store.rows import RunQuery
from outlast.store.sqlite import migrate
from outlast.testing.store_hooks import kill

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def store(tmp_path):
    store = opened(tmp_path / "store")
    yield store
    store.close()


def test_folder_of_another_program_is_broken_and_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StoreBroken, match="was not created by Outlast"):
        opened(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(StoreBroken, match="it is a file"):
        opened(tmp_path / "notes.txt")
    (tmp_path / "format").write_text("of something else")
    with pytest.raises(StoreBroken, match="does not identify"):
        opened(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["format", "notes.txt"]


def test_empty_folder_fresh_volume_and_half_created_store_are_accepted(tmp_path):
    for name, inside in (
        ("empty", ()),
        ("volume", ("lost+found/",)),
        ("died", ("lock", "commits.jsonl", "format.new")),
    ):
        folder = tmp_path / name
        folder.mkdir()
        for file in inside:
            (folder / file).mkdir() if file.endswith("/") else (folder / file).touch()
        store = opened(folder)
        assert store.commit([submit("r")])[0].new
        store.close()


def test_newer_format_or_schema_is_too_new_and_left_alone(tmp_path, monkeypatch):
    store = opened(tmp_path / "store")
    store.commit([submit("r")])
    store.close()
    steps = migrate.migrations()
    monkeypatch.setattr(migrate, "migrations", lambda: steps[:-1])
    with pytest.raises(StoreTooNew, match="schema is version"):
        opened(tmp_path / "store")
    monkeypatch.undo()
    (tmp_path / "store" / "format").write_text('{"outlast": "file store", "format": 2}\n')
    with pytest.raises(StoreTooNew, match="its format is 2"):
        opened(tmp_path / "store")


def test_migration_to_a_newer_schema_is_one_commit(tmp_path, monkeypatch):
    store = opened(tmp_path / "store")
    write_history(store)
    store.close()
    more = """
    ALTER TABLE runs ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm';
    UPDATE runs SET mood = 'glad' WHERE id = 'two';
    CREATE TABLE moods (name TEXT PRIMARY KEY, n INTEGER) WITHOUT ROWID;
    INSERT INTO moods SELECT mood, count(*) FROM runs GROUP BY mood;
    """
    steps = migrate.migrations()
    monkeypatch.setattr(migrate, "migrations", lambda: [*steps, more])
    store = opened(tmp_path / "store")
    assert dict(store._db.execute("SELECT id, mood FROM runs").fetchall()) == {
        "two": "glad",
        "three": "calm",
    }
    store.commit([submit("four")])
    before = dump(store)
    assert before["moods"] == [("calm", 1), ("glad", 1)]
    kill(store)
    again = opened(tmp_path / "store")
    assert dump(again) == before
    again.close()


def test_every_table_is_journaled_and_numbers_are_restored_exactly(store):
    tables = [name for name in store._changes.tables if name not in (SCHEMA.name, SEQUENCE.name)]
    triggers = store._db.execute(
        "SELECT count(*) FROM sqlite_temp_schema WHERE type = 'trigger'"
    ).fetchone()[0]
    assert triggers == 3 * len(tables) > 30
    store._clock.now = 1731744655.1234567
    store.commit([submit("r", delay=0.1 + 0.2)])
    row = store.run("r")
    kill(store)
    again = opened(store.folder)
    assert again.run("r") == row
    again.close()


HOLD = """
from outlast.store.file.store import FileStore
store = FileStore(sys.argv[1])
store.open()
store.commit([submit("r")])
say("open")
sys.stdin.readline()
"""


def test_second_process_learns_which_process_has_the_folder_open(tmp_path):
    with Child(HOLD, tmp_path / "store") as child:
        assert child.line() == "open"
        with pytest.raises(
            StoreUnavailable, match=rf"process {child.pid} on .* has it open. .*end that one first"
        ):
            opened(tmp_path / "store")
        child.kill()
        store = opened(tmp_path / "store")
        assert store.run("r") is not None
        with pytest.raises(StoreUnavailable, match="this process itself has it open"):
            opened(tmp_path / "store")
        store.close()


def test_forked_child_must_not_write_and_does_not_keep_the_lock(tmp_path):
    store = opened(tmp_path / "store")
    store.commit([submit("r")])
    told_read, told_write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            store.commit([submit("of the child")])
        except StoreUnavailable:
            os.write(told_write, b"refused")
            signal.pause()  # it lives on until it is killed
        finally:
            os._exit(1)
    os.close(told_write)
    try:
        assert os.read(told_read, 100) == b"refused"
        assert store.commit([submit("of the parent")])[0].new
        kill(store)  # as a dead parent's: the child still lives
        again = opened(tmp_path / "store")
        assert {row.id for row in again.runs(RunQuery())} == {"r", "of the parent"}
        again.close()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(told_read)


def test_started_program_does_not_inherit_the_lock(tmp_path):
    store = opened(tmp_path / "store")
    with subprocess.Popen(["sleep", "60"], close_fds=False) as sleeper:
        kill(store)
        opened(tmp_path / "store").close()
        sleeper.kill()


def test_address_names_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert store_at("file:///data/outlast").folder.as_posix() == "/data/outlast"
    assert store_at("file:name/of it").folder == tmp_path / "name/of it"
    assert store_at("file:///a%20b%3Fc").folder.as_posix() == "/a b?c"
    assert isinstance(store_at("file:x"), FileStore)
    assert store_at("file:x").place == "x"


@pytest.mark.parametrize(
    "address",
    ["file:", "file:///", "file://host/dir", "file:///a?x=1", "file:///a#b", "file:///a%00b"],
)
def test_address_without_a_folder_is_refused(address):
    with pytest.raises(SettingsError, match="file"):
        store_at(address)
