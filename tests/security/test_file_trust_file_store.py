"""A file store follows no link, waits for no pipe and trusts no folder of another user."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from outlast.errors import StoreBroken, StoreError, StoreUnavailable
from outlast.store.commands import Record, RegisterWorker, Submit, UpdateSession
from outlast.store.file.store import FileStore
from outlast.store.sqlite.store import SQLiteStore

STRANGER = 54_321


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outlast.db"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    file = tmp_path / "victim"
    file.write_text("precious")
    return file


def opened(path: Path) -> None:
    store = SQLiteStore(path)
    store.open()
    try:
        store.acquire_liveness("w")
        store.commit(
            [RegisterWorker("w", "host", 1, 60.0), Submit("r", "flow", "{}", "t", "00" * 16)]
        )
    finally:
        store.close()


def given_away(
    path: Path, monkeypatch: pytest.MonkeyPatch, uid: int = STRANGER, gid: int = STRANGER
) -> None:
    """Give it to another user. Root can; others have to pretend."""
    if os.geteuid() == 0:
        os.chown(path, uid, gid)
        return
    real = Path.stat

    def pretended(self: Path, **options: bool) -> os.stat_result | SimpleNamespace:
        found = real(self, **options)
        if self != path:
            return found
        return SimpleNamespace(
            st_uid=uid,
            st_gid=gid,
            st_mode=found.st_mode,
            st_ino=found.st_ino,
            st_size=found.st_size,
        )

    monkeypatch.setattr(Path, "stat", pretended)


@pytest.mark.parametrize("name", ["lock", "format.new"])
def test_links_in_a_file_store_folder_are_not_followed(tmp_path, victim, name) -> None:
    (tmp_path / "store").mkdir(mode=0o700)
    (tmp_path / "store" / name).symlink_to(victim)
    store = FileStore(tmp_path / "store")
    with pytest.raises(StoreBroken, match="link"):
        store.open()
    assert victim.read_text() == "precious"


def filled(folder: Path) -> None:
    """A file store with a run that has a journal of its own, and a session."""
    store = FileStore(folder)
    store.open()
    try:
        row = store.commit(
            [
                RegisterWorker("w", "host", 1, 60.0),
                Submit("r", "flow", "{}", "t", "00" * 16, worker="w"),
            ]
        )[1].row
        store.commit(
            [
                Record(row.pk, 1, row.fence, "step", "a#1", 1.0, value="1"),
                UpdateSession("s", "t", {"field": "1"}),
            ]
        )
    finally:
        store.close()


JOURNALS = ("commits.jsonl", "store.jsonl", "runs/000/000001.jsonl", "sessions/000/000001.jsonl")


@pytest.mark.parametrize("name", ["format", "runs", "sessions", *JOURNALS])
def test_links_in_an_existing_file_store_are_not_followed(tmp_path, name) -> None:
    """The link leads to the old folder: a process that follows it finds everything in order, and writes elsewhere."""
    filled(tmp_path / "store")
    here, elsewhere = tmp_path / "store" / name, tmp_path / "elsewhere"
    here.rename(elsewhere)
    here.symlink_to(elsewhere)
    before = contents(elsewhere)
    with pytest.raises(StoreBroken, match="link"):
        FileStore(tmp_path / "store").open()
    assert contents(elsewhere) == before


def contents(place: Path) -> dict[str, bytes]:
    files = place.rglob("*") if place.is_dir() else [place]
    return {str(one): one.read_bytes() for one in files if one.is_file()}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", ["lock", "format", *JOURNALS])
def test_pipe_without_a_reader_does_not_block_a_file_store(tmp_path, name) -> None:
    filled(tmp_path / "store")
    (tmp_path / "store" / name).unlink()
    os.mkfifo(tmp_path / "store" / name)
    with pytest.raises(StoreBroken, match="not a plain file"):
        FileStore(tmp_path / "store").open()


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "put", [Path.mkdir, os.mkfifo, lambda journal: journal.symlink_to("nowhere")]
)
def test_commit_after_its_journal_was_replaced_is_the_last_one(tmp_path, put) -> None:
    """What is in the log is durable. Only what was not written is reported as wrong."""
    store = FileStore(tmp_path / "store")
    store.open()
    row = store.commit(
        [
            RegisterWorker("w", "host", 1, 60.0),
            Submit("r", "flow", "{}", "t", "00" * 16, worker="w"),
        ]
    )[1].row
    store.commit([Record(row.pk, 1, row.fence, "step", "a#1", 1.0, value="1")])
    journal = tmp_path / "store" / "runs/000/000001.jsonl"
    journal.rename(tmp_path / "aside")
    put(journal)
    store.commit([Record(row.pk, 2, row.fence, "step", "b#1", 2.0, value="2")])
    for _ in range(2):
        with pytest.raises(StoreBroken, match="not a plain file"):
            store.commit([Record(row.pk, 3, row.fence, "step", "c#1", 3.0, value="3")])
    if put is Path.mkdir:
        journal.rmdir()
    else:
        journal.unlink()
    (tmp_path / "aside").rename(journal)
    store.commit([Record(row.pk, 3, row.fence, "step", "d#1", 3.0, value="4")])
    store.close()
    again = FileStore(tmp_path / "store")
    again.open()
    assert [entry.key for entry in again.journal(row.pk)] == ["a#1", "b#1", "d#1"]
    again.close()


def test_world_writable_folder_of_a_file_store_is_reported(tmp_path, caplog) -> None:
    filled(tmp_path / "store")
    assert caplog.records == []
    (tmp_path / "store").chmod(0o777)
    store = FileStore(tmp_path / "store")
    store.open()
    store.close()
    assert [record.name for record in caplog.records] == ["outlast.store"]
    assert "may write in it (mode 777)" in caplog.text


def test_retried_open_does_not_repeat_the_warning_about_the_mode(path, tmp_path, caplog) -> None:
    opened(path)
    path.chmod(0o644)
    gate = path.with_name(path.name + ".d") / "gate"
    gate.unlink()
    gate.mkdir()
    with pytest.raises(StoreError):
        opened(path)
    filled(tmp_path / "store")
    (tmp_path / "store").chmod(0o777)
    holder = FileStore(tmp_path / "store")
    holder.open()
    with closing(holder), pytest.raises(StoreUnavailable):
        FileStore(tmp_path / "store").open()
    assert len(caplog.records) == 1, "of the one who has it"


def test_file_store_in_a_public_folder_of_another_user_is_refused(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    folder.chmod(0o777)
    given_away(folder, monkeypatch)
    with pytest.raises(StoreBroken, match="every user may write"):
        FileStore(folder).open()
    assert list(folder.iterdir()) == []
