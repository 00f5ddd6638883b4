"""A lock folder, or a lock in it, that another user planted is refused or harmless."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from file_trust_tools import STRANGER, opened
from security_tools import Shell, rewrite

from outlast.errors import StoreBroken
from outlast.store.commands import RegisterWorker
from outlast.store.sqlite.liveness import Liveness
from outlast.store.sqlite.store import SQLiteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outlast.db"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    file = tmp_path / "victim"
    file.write_text("precious")
    return file


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


def test_lock_folder_of_another_user_is_refused(path, monkeypatch) -> None:
    folder = path.with_name("outlast.db.d")
    folder.mkdir()
    folder.chmod(0o777)
    given_away(folder, monkeypatch)
    with pytest.raises(StoreBroken, match=f"belongs to user {STRANGER}"):
        opened(path)
    assert list(folder.iterdir()) == []


def test_lock_folder_of_the_database_owner_is_trusted(path, monkeypatch) -> None:
    """A volume in Kubernetes keeps the files of yesterday's user, and gives them to a group that today's is in."""
    opened(path)
    folder = path.with_name("outlast.db.d")
    for one in (path, folder, *folder.iterdir()):
        given_away(one, monkeypatch)
        one.chmod(0o770 if one.is_dir() else 0o660)
    opened(path)


def test_group_database_may_have_a_lock_folder_of_its_group(path, monkeypatch) -> None:
    opened(path)
    folder = path.with_name("outlast.db.d")
    group = path.stat().st_gid
    path.chmod(0o660)
    folder.chmod(0o2770)
    given_away(folder, monkeypatch, gid=group)
    opened(path)
    path.chmod(0o600)
    with pytest.raises(StoreBroken, match="belongs to user"):
        opened(path)


def modes_beside(path: Path) -> dict[str, int]:
    folder = path.with_name("outlast.db.d")
    store = SQLiteStore(path)
    store.open()
    try:
        store.acquire_liveness("w")
        store.listen(lambda: None)
        modes = {
            one.name.partition("-")[0]: stat.S_IMODE(one.stat().st_mode)
            for one in (folder, *folder.iterdir())
        }
    finally:
        store.close()
    return modes


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
@pytest.mark.parametrize(
    ("mode", "file", "folder"),
    [(0o600, 0o600, 0o700), (0o640, 0o600, 0o700), (0o660, 0o660, 0o770), (0o664, 0o660, 0o770)],
)
def test_only_the_group_that_may_write_a_database_may_use_its_locks(
    path, umask, mode, file, folder
) -> None:
    path.touch()
    path.chmod(mode)
    before = os.umask(umask)
    try:
        assert modes_beside(path) == {
            "outlast.db.d": folder,
            "files": file,
            "gate": file,
            "turn": file,
            "worker": file,
            "notify": file,
        }
    finally:
        os.umask(before)


def test_existing_locks_follow_a_database_to_its_group(path) -> None:
    assert modes_beside(path)["gate"] == 0o600
    path.chmod(0o660)
    assert set(modes_beside(path).values()) == {0o660, 0o770}


def test_locks_of_another_group_are_not_opened(path, monkeypatch) -> None:
    path.touch()
    path.chmod(0o660)
    given_away(path, monkeypatch, uid=os.geteuid())
    assert set(modes_beside(path).values()) == {0o600, 0o700}


def test_own_world_writable_lock_folder_is_closed(path) -> None:
    folder = path.with_name("outlast.db.d")
    folder.mkdir()
    folder.chmod(0o777)
    opened(path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o770


@pytest.mark.parametrize("name", ["files", "gate", "turn"])
@pytest.mark.parametrize("there", [True, False])
def test_links_in_the_lock_folder_are_not_followed(path, victim, name, there) -> None:
    folder = path.with_name("outlast.db.d")
    folder.mkdir(mode=0o700)
    target = victim if there else victim.with_name("not yet")
    (folder / name).symlink_to(target)
    with pytest.raises(StoreBroken, match="link"):
        opened(path)
    assert victim.read_text() == "precious"
    assert target.exists() == there


def make_socket(there: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(there))


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, make_socket])
def test_irregular_file_in_the_lock_folder_is_reported_and_not_retried(
    path, make, monkeypatch
) -> None:
    folder = path.with_name("outlast.db.d")
    folder.mkdir(mode=0o700)
    monkeypatch.chdir(folder)  # the path of a socket may not be long
    make(Path("gate"))
    with pytest.raises(StoreBroken, match="not a plain file"):
        opened(path)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "make", [Path.mkdir, os.mkfifo, make_socket, lambda lock: lock.symlink_to("nowhere")]
)
def test_fake_lock_of_a_worker_is_no_sign_of_life(path, make, monkeypatch, capsys) -> None:
    """Only its lease can. Everybody else is seen and swept as ever."""
    opened(path)
    folder = path.with_name("outlast.db.d")
    monkeypatch.chdir(folder)
    for lock in folder.glob("worker-*"):
        lock.unlink()
    make(Path("worker-w.lock"))
    os.utime("worker-w.lock", (1, 1), follow_symlinks=False)
    store = SQLiteStore(path)
    store.open()
    try:
        assert store.dead_workers() == []
        store.commit([RegisterWorker("x", "host", 2, 60.0)])
        rewrite(path, lambda db: db.execute("UPDATE workers SET lease_until = 1"))
        assert store.dead_workers() == ["w", "x"]
    finally:
        store.close()
    assert Shell(f"sqlite:///{path}", capsys)("runs").code == 0


@pytest.mark.timeout(30)
def test_pipe_in_place_of_a_workers_lock_does_not_block_the_sweep(path) -> None:
    """Put there between the look that finds it dead and the one that asks how it ended."""
    opened(path)
    folder = path.with_name("outlast.db.d")
    lock = folder / "worker-w.lock"
    liveness = Liveness(folder, 0.2)
    lock.unlink()
    os.mkfifo(lock)
    assert not liveness.has_left("w")


def test_lock_folder_that_is_a_link_is_refused(path, tmp_path) -> None:
    (tmp_path / "elsewhere").mkdir()
    path.with_name("outlast.db.d").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreBroken, match="link"):
        opened(path)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("make", [lambda one: one.symlink_to("nowhere"), Path.touch])
def test_file_in_place_of_the_lock_folder_is_reported_and_not_retried(path, make) -> None:
    folder = path.with_name("outlast.db.d")
    make(folder)
    with pytest.raises(StoreBroken, match=r"it is a link|it is not a folder"):
        opened(path)
    assert [one.name for one in path.parent.iterdir()] == [folder.name]
