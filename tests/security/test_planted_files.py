"""`write_file` refuses files and links that other users planted."""

from __future__ import annotations

import itertools
import json
import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from outlast.effects import FileNotWritten, atomic_dir, directory, file
from support.processes import Program

STRANGER = 65534
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file another user's")


@pytest.fixture
def where(tmp_path) -> Path:
    found = tmp_path / "where"
    found.mkdir(mode=0o755)
    return found


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that other users can reach: pytest's own are closed to them."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def victim(tmp_path) -> Path:
    found = tmp_path / "elsewhere" / "victim"
    found.parent.mkdir()
    found.write_text("precious")
    return found


def write(path: Path, data: bytes = b"new", key: str = "k", **options: int) -> file.FileWritten:
    return file.write(str(path), data, key=key, fence=1, **options)


def stem(path: Path, key: str = "k") -> str:
    return atomic_dir.AtomicDir(path, key).stem


def refusal(path: Path) -> str:
    with pytest.raises(FileNotWritten) as raised:
        write(path)
    assert not path.exists()
    return str(raised.value)


def test_an_outlast_folder_that_is_a_link_is_refused(where, victim):
    (where / ".outlast").symlink_to(victim.parent)
    assert "symbolic link" in refusal(where / "file")
    assert [path.name for path in victim.parent.iterdir()] == ["victim"]


@pytest.mark.parametrize("name", ["lock", "STEM.json"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "fifo", "folder"])
def test_irregular_file_in_the_outlast_folder_is_refused(where, victim, name, kind):
    planted = where / ".outlast" / name.replace("STEM", stem(where / "file"))
    planted.parent.mkdir()
    if kind == "fifo":
        os.mkfifo(planted)
    elif kind == "folder":
        planted.mkdir()
    else:
        planted.symlink_to(victim if kind == "link" else victim.with_name("made"))
    said = refusal(where / "file")
    assert "not a regular file" in said
    assert str(planted) in said
    assert victim.read_text() == "precious"
    assert [path.name for path in victim.parent.iterdir()] == ["victim"]


@pytest.mark.parametrize("name", ["STEM.new", "STEM.kept"])
@pytest.mark.parametrize("kind", ["link", "fifo", "hard link"])
def test_planted_file_with_an_expected_name_is_not_written_through(where, victim, name, kind):
    path = where / "file"
    path.write_text("before")
    planted = where / ".outlast" / name.replace("STEM", stem(path))
    planted.parent.mkdir()
    if kind == "fifo":
        os.mkfifo(planted)
    elif kind == "link":
        planted.symlink_to(victim)
    else:
        planted.hardlink_to(victim)
    write(path)
    assert (path.read_text(), victim.read_text()) == ("new", "precious")
    file.undo(str(path), key="k", fence=1)
    assert (path.read_text(), victim.read_text()) == ("before", "precious")


def test_hard_linked_lock_is_refused(where, victim):
    (where / ".outlast").mkdir()
    (where / ".outlast" / "lock").hardlink_to(victim)
    mode = victim.stat().st_mode
    assert "hard link to another file" in refusal(where / "file")
    assert victim.stat().st_mode == mode


@pytest.mark.parametrize(
    "temp",
    [
        "../victim",
        "/etc/none",
        "lock",
        "..",
        "x.tmp.0123456789abcdef",
        "OTHER.tmp.0123456789abcdef",
        5,
    ],
)
@pytest.mark.parametrize("call", ["write", "happened", "undo"])
def test_planted_note_does_not_remove_files(where, call, temp):
    path, victim = where / "file", where / "victim"
    victim.write_text("precious")
    write(path, b"old", "first")
    other = where / ".outlast" / f"{stem(path, 'other')}.tmp.0123456789abcdef"
    other.write_text("of another write")
    temp = temp.replace("OTHER", stem(path, "other")) if isinstance(temp, str) else temp
    note = {
        "fence": 1,
        "temp": temp,
        "sha256": "",
        "had": False,
        "happened": False,
        "undone": False,
    }
    (where / ".outlast" / f"{stem(path)}.json").write_text(json.dumps(note))
    with pytest.raises(
        (FileNotWritten, directory.Untrusted), match="damaged, or another program wrote it"
    ):
        if call == "write":
            write(path)
        elif call == "happened":
            file.happened(str(path), key="k", fence=1)
        else:
            file.undo(str(path), key="k", fence=1)
    assert (path.read_text(), victim.read_text(), other.exists()) == ("old", "precious", True)
    assert (where / ".outlast" / "lock").exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"fence": "1"}', '{"more": 1}', "[" * 50_000, '{"temp": 1}']
)
def test_invalid_note_is_refused_with_a_reason(where, text):
    (where / ".outlast").mkdir()
    (where / ".outlast" / f"{stem(where / 'file')}.json").write_text(text)
    assert "damaged" in refusal(where / "file")


def test_kept_content_is_restored_only_from_a_regular_file(where, victim):
    path = where / "file"
    path.write_text("before")
    write(path)
    kept = where / ".outlast" / f"{stem(path)}.kept"
    kept.unlink()
    kept.symlink_to(victim)
    with pytest.raises(directory.Untrusted, match="not a regular file"):
        file.undo(str(path), key="k", fence=1)
    assert not path.is_symlink()
    assert path.read_text() == "new"


def test_undo_leaves_a_file_that_became_a_link(where, victim):
    path = where / "file"
    write(path, b"precious")
    path.unlink()
    path.symlink_to(victim)
    file.undo(str(path), key="k", fence=1)
    assert path.is_symlink()
    assert victim.read_text() == "precious"


def test_write_file_refuses_files_of_outlast_itself(where):
    write(where / "file")
    name = f"{stem(where / 'file', 'victim')}.json"
    with pytest.raises(FileNotWritten, match="is reserved for Outlast"):
        write(where / ".outlast" / name)


@root
def test_an_outlast_folder_of_another_user_is_refused(where):
    own = where / ".outlast"
    own.mkdir()
    os.chown(own, STRANGER, STRANGER)
    said = refusal(where / "file")
    assert f"{own}" in said
    assert f"another user (uid {STRANGER})" in said
    assert list(own.iterdir()) == []


@root
def test_outlast_folder_of_another_user_in_a_public_folder_is_refused(where):
    where.chmod(0o1777)
    (where / ".outlast").mkdir()
    os.chown(where / ".outlast", STRANGER, STRANGER)
    assert "another user" in refusal(where / "file")


@root
@pytest.mark.parametrize("name", ["lock", "STEM.json"])
def test_a_file_of_another_user_in_the_outlast_folder_is_refused(where, name):
    planted = where / ".outlast" / name.replace("STEM", stem(where / "file"))
    planted.parent.mkdir()
    planted.write_text('{"fence": 1}')
    os.chown(planted, STRANGER, STRANGER)
    assert "another user" in refusal(where / "file")


AS_USER = """
import os, sys
from outlast.effects import file  # while the interpreter's own files can be read
os.setgroups([500])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
os.umask(0o022)
path, key = sys.argv[2], sys.argv[3]
file.write(path, sys.argv[1].encode(), key=key, fence=1)
print(file.happened(path, key="first", fence=1))
if key == "last":
    file.undo(path, key=key, fence=1)
"""


@root
@pytest.mark.parametrize("mode", [0o2770, 0o2775])
def test_a_group_that_may_write_a_folder_shares_its_outlast_folder(open_path, tmp_path, mode):
    where = open_path
    os.chown(where, 0, 500)
    where.chmod(mode)
    for user, key in ((10001, "first"), (10002, "second"), (10001, "last")):
        with Program.python("-c", AS_USER, user, where / "file", key, folder=tmp_path) as process:
            assert process.wait() == 0, process.describe()
        assert process.output == "True\n"
    assert (where / "file").read_text() == "10002"
    own = where / ".outlast"
    assert stat.S_IMODE(own.stat().st_mode) & 0o777 == mode & 0o777
    assert {stat.S_IMODE(path.stat().st_mode) for path in own.glob("*.json")} == {0o660}


@root
@pytest.mark.parametrize("at", ["the file", "a folder above it"])
def test_link_planted_by_another_user_is_not_followed(where, victim, at):
    where.chmod(0o1777)
    link = where / "link"
    link.symlink_to(victim if at == "the file" else victim.parent)
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    path = link if at == "the file" else link / "victim"
    with pytest.raises(FileNotWritten, match="symbolic link of another user"):
        write(path)
    assert victim.read_text() == "precious"


@root
def test_permissions_of_another_users_file_are_not_copied(where):
    where.chmod(0o777)
    path = where / "file"
    path.touch()
    path.chmod(0o4777)
    os.chown(path, STRANGER, STRANGER)
    path.chmod(0o4777)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) & 0o7022 == 0


def test_outlast_folder_is_never_world_writable(where):
    where.chmod(0o777)
    (where / ".outlast").mkdir()
    (where / ".outlast").chmod(0o1777)  # as an older version made it
    write(where / "file")
    assert stat.S_IMODE((where / ".outlast").stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o600, None])
def test_content_is_private_before_it_gets_its_final_mode(where, monkeypatch, mode):
    path, seen = where / "file", []
    if mode is None:
        path.touch()
        path.chmod(0o600)
    real = os.fdopen

    def fdopen(fd: int, how: str):
        seen.append(stat.S_IMODE(os.fstat(fd).st_mode))
        return real(fd, how)

    monkeypatch.setattr(os, "fdopen", fdopen)
    umask = os.umask(0)
    try:
        write(path, mode=mode) if mode else write(path)
    finally:
        os.umask(umask)
    assert seen
    assert {one & 0o077 for one in seen} == {0}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_folder_swapped_during_a_write_does_not_redirect_it(where, victim):
    """The attacker may rename `.outlast`, and puts a link to another folder in its place, again and again."""
    stop, own = threading.Event(), where / ".outlast"
    write(where / "file")

    def swap() -> None:
        for n in itertools.count():
            if stop.is_set():
                return
            with suppress(OSError):  # the write has made another one
                own.rename(where / f"aside{n}")
                own.symlink_to(victim.parent)
                own.unlink()
                (where / f"aside{n}").rename(own)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for n in range(200):
            with suppress(FileNotWritten, FileNotFoundError):
                write(where / "file", b"new", f"k{n}")
    finally:
        stop.set()
        thread.join()
    assert [path.name for path in victim.parent.iterdir()] == ["victim"]
    assert victim.read_text() == "precious"
