"""Files and links of other users beside a database are refused or harmless."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from file_trust_tools import STRANGER, opened
from security_tools import Shell, rewrite

from outlast.errors import StoreBroken, StoreUnavailable
from outlast.store import file_trust
from outlast.store.address import store_at
from outlast.store.sqlite.fair_lock import FairWriteLock
from outlast.store.sqlite.liveness import Liveness
from outlast.store.sqlite.notifier import Notifier
from outlast.store.sqlite.store import SQLiteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outlast.db"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    file = tmp_path / "victim"
    file.write_text("precious")
    return file


def gifts_of_root(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], tuple[int, int]]:
    """Whose a file is. Root has really given it away; others have to pretend that they are root, and that they could."""
    if os.geteuid() == 0:
        return lambda file: (file.stat().st_uid, file.stat().st_gid)
    real, given = os.fstat, dict[int, tuple[int, int]]()

    def pretended(fd: int) -> os.stat_result:
        found = real(fd)
        return os.stat_result((*found[:4], *given.get(found.st_ino, (0, 0)), *found[6:10]))

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fstat", pretended)
    monkeypatch.setattr(
        os, "fchown", lambda fd, uid, gid: given.update({real(fd).st_ino: (uid, gid)})
    )
    return lambda file: given.get(file.stat().st_ino, (0, 0))


@pytest.mark.parametrize("mode", [0o000, 0o060])
def test_files_made_by_root_belong_to_the_database_owner(tmp_path, monkeypatch, mode) -> None:
    """A look as root, after a backup was put back, must not shut out the worker."""
    owner_of, owners = gifts_of_root(monkeypatch), file_trust.Owners(STRANGER, STRANGER, mode)
    file_trust.give_folder(owners, tmp_path)
    lock, liveness, notifier = FairWriteLock(tmp_path, owners), Liveness(tmp_path, 0.2, owners), Notifier(tmp_path, owners)  # fmt: skip
    liveness.acquire("w")
    notifier.listen(lambda: None)
    made = [tmp_path, *tmp_path.iterdir()]
    assert len(made) == 5
    assert {owner_of(one) for one in made} == {(STRANGER, STRANGER)}
    assert {stat.S_IMODE(one.stat().st_mode) & 0o060 for one in made} == {mode}
    for one in (lock, liveness, notifier):
        one.close()


def test_hard_linked_file_of_root_does_not_change_owner(tmp_path, victim, monkeypatch) -> None:
    owner_of = gifts_of_root(monkeypatch)
    (tmp_path / "gate").hardlink_to(victim)
    FairWriteLock(tmp_path, file_trust.Owners(STRANGER, STRANGER, 0o060)).close()
    assert owner_of(tmp_path / "turn") == (STRANGER, STRANGER)
    assert owner_of(victim) == (0, 0)


def test_link_planted_during_a_chmod_is_not_followed(path, victim, monkeypatch) -> None:
    """A user who shares a database may write in its folders, and faster than the process that just created a file there."""
    victim.chmod(0o600)
    home = path.with_name("home")
    home.mkdir(mode=0o700)
    opened(path)
    path.chmod(0o660)
    store = SQLiteStore(path)
    store.open()
    monkeypatch.setattr(os, "mkfifo", lambda hidden, _: hidden.symlink_to(victim))
    with pytest.raises(StoreUnavailable, match="symbolic link"):
        store.listen(lambda: None)
    store.close()
    folder = path.with_name("outlast.db.d")
    folder.rename(path.with_name("aside"))
    folder.symlink_to(home)
    monkeypatch.setattr(file_trust, "check_names", lambda *_: None)  # it had looked before
    with pytest.raises(StoreBroken, match="link"):
        opened(path)
    assert [stat.S_IMODE(one.stat().st_mode) for one in (victim, home)] == [0o600, 0o700]


@pytest.mark.parametrize("end", file_trust.BESIDE)
def test_link_beside_a_database_is_refused(path, victim, end) -> None:
    path.with_name(path.name + end).symlink_to(victim)
    with pytest.raises(StoreBroken, match="link"):
        opened(path)
    assert victim.read_text() == "precious"


def test_notifying_writes_only_to_a_fifo(path, victim) -> None:
    opened(path)
    folder = path.with_name("outlast.db.d")
    (folder / "notify-1").symlink_to(victim)
    (folder / "notify-2").write_text("precious")
    opened(path)
    assert victim.read_text() == "precious"
    assert (folder / "notify-2").read_text() == "precious"


def test_database_may_be_a_link_of_its_owner(path, tmp_path) -> None:
    (tmp_path / "data").mkdir()
    path.symlink_to(tmp_path / "data" / "real.db")
    (tmp_path / "data" / "real.db").touch(mode=0o600)
    opened(path)
    assert (tmp_path / "data" / "real.db").stat().st_size > 0


@pytest.mark.parametrize("end", file_trust.BESIDE)
def test_link_beside_a_linked_database_is_refused(path, tmp_path, victim, end) -> None:
    (tmp_path / "data").mkdir()
    path.symlink_to(tmp_path / "data" / "real.db")
    (tmp_path / "data" / "real.db").touch(mode=0o600)
    (tmp_path / "data" / f"real.db{end}").symlink_to(victim)
    with pytest.raises(StoreBroken, match="link"):
        opened(path)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize(("mode", "may"), [(0o644, "read"), (0o666, "write")])
def test_world_readable_database_is_used_and_reported(path, caplog, capsys, mode, may) -> None:
    opened(path)
    path.chmod(mode)
    with caplog.at_level(logging.WARNING, "outlast.store"):
        opened(path)
    assert [record.name for record in caplog.records] == ["outlast.store"]
    assert f"may {may} it (mode {mode:o})" in caplog.text
    assert stat.S_IMODE(path.stat().st_mode) == mode
    shell = Shell(f"sqlite:///{path}", capsys)
    assert f"may {may} it" in shell("runs").err
    assert "every user of this machine may read or write" in shell("doctor").out


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o660])
def test_private_or_group_database_is_not_reported(path, caplog, capsys, mode) -> None:
    opened(path)
    path.chmod(mode)
    opened(path)
    assert caplog.records == []
    assert "every user" not in Shell(f"sqlite:///{path}", capsys)("doctor").out


@pytest.mark.parametrize(
    "id", ["x/../../victim", "/etc/passwd", "../x", "a\x00b", "x" * 5_000, "\\..\\x", ""]
)
def test_hostile_worker_id_in_a_store_does_not_become_a_path(path, id) -> None:
    """Their locks are files: one that is declared dead has its file removed."""
    opened(path)
    folder = path.with_name("outlast.db.d")
    (folder / "worker-x").mkdir()
    precious = path.with_name("victim.lock")
    precious.write_text("precious")
    os.utime(precious, (1, 1))
    rewrite(path, lambda db: db.execute("UPDATE workers SET id = ?, lease_until = 1", (id,)))
    store = store_at(f"sqlite:///{path}")
    store.open()
    try:
        assert store.dead_workers() == [id]
        store._liveness.acquire(id)
        store._liveness.remove(id)
        assert store._liveness.silence(id) is None
        assert not store._liveness.has_left(id)
    finally:
        store.close()
    assert precious.read_text() == "precious"
    assert {one.name for one in folder.iterdir()} == {
        "files",
        "gate",
        "turn",
        "worker-x",
        "worker-w.lock",
    }


def test_foreign_schema_cannot_call_functions_of_this_process(path) -> None:
    """Not even by a trigger in a table of ours, where one was registered that its author holds for dangerous."""
    opened(path)
    store = SQLiteStore(path)
    store.open()
    try:
        assert [
            one.execute("PRAGMA trusted_schema").fetchone() for one in (store._db, store._reader)
        ] == [
            (0,),
            (0,),
        ]
    finally:
        store.close()
