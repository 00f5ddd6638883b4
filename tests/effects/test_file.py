"""A file effect writes whole files, refuses stale writers, and puts back what was there before."""

import errno
import json
import os
import shutil
import stat
import subprocess
import threading
import time
from hashlib import sha256
from pathlib import Path

import pytest
from file_tools import left, start

from outlast import StaleFence, effects, run, sync, workflow
from outlast.effects import (
    FileNotRestored,
    FileNotWritten,
    FileWritten,
    atomic_dir,
    file,
    file_effect,
    write_file,
)
from support.waiting import WAIT_SECONDS

# -- in a run


@workflow
async def report(path: str, text: str, fails: bool = False) -> FileWritten:
    written = await write_file.aio(path, text)
    if fails:
        raise LookupError("not good")
    return written


@workflow
async def picture(path: str, data: bytes, mode: int) -> FileWritten:
    return await write_file.aio(path, data=data, mode=mode)


@sync.workflow
def report_sync(path: str, text: str) -> FileWritten:
    return write_file(Path(path), text)


def test_workflow_writes_a_file(tmp_path):
    path = tmp_path / "report.md"
    written = run(report(str(path), "größer"), id="r", store="memory:")
    assert path.read_text() == "größer"
    assert written == FileWritten(str(path), 8, sha256("größer".encode()).hexdigest())
    assert sync.run(report_sync(str(path), "again"), id="r", store="memory:").size == 5
    assert path.read_text() == "again"


def test_bytes_and_permissions_are_written(tmp_path):
    path, data = tmp_path / "a.png", bytes(range(256))
    run(picture(str(path), data, 0o600), id="r", store="memory:")
    assert path.read_bytes() == data
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    run(report(str(path), "text"), id="r", store="memory:")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "those of the old file"


@pytest.mark.parametrize("before", ["it was so", None])
def test_failed_run_restores_the_previous_content(tmp_path, before):
    path = tmp_path / "report.md"
    if before is not None:
        path.write_text(before)
    with pytest.raises(LookupError):
        run(report(str(path), "new", fails=True), id="r", store="memory:")
    assert (path.read_text() if path.exists() else None) == before
    assert left(tmp_path) == []


keep_file = file_effect("keep_file", retries=0, undo=None)


@workflow
async def kept_report(path: str, text: str) -> None:
    await keep_file.aio(path, text)
    raise LookupError("not good")


def test_file_without_undo_stays_after_a_failure(tmp_path):
    path = tmp_path / "report.md"
    with pytest.raises(LookupError):
        run(kept_report(str(path), "new"), id="r", store="memory:")
    assert path.read_text() == "new"


@workflow
async def report_failing(path: str, text: str | None, data: bytes | None = None) -> FileWritten:
    return await keep_file.aio(path, text, data=data)


def test_errors_reach_the_workflow_with_a_clear_message(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")

    def message(path: object, *content: object) -> str:
        with pytest.raises(FileNotWritten) as caught:
            run(report_failing(str(path), *content), id="r", store="memory:")
        return str(caught.value)

    assert "the path must be absolute" in message("report.md", "text")
    assert "No such file or directory" in message(tmp_path / "nowhere" / "report.md", "text")
    assert "it is a folder" in message(tmp_path / "folder", "text")
    assert "it is not a regular file" in message(tmp_path / "pipe", "text")
    assert "give the content as text, or as data=" in message(tmp_path / "a", None)
    assert "give the content as text, or as data=" in message(tmp_path / "a", "text", b"data")
    assert "was not written and is unchanged" in message(tmp_path / "a\0b", "text")
    assert "File name too long" in message(tmp_path / ("a" * 300), "text")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != ".outlast") == [
        "folder",
        "pipe",
    ]


# -- fences


def test_older_fence_is_refused_once_a_younger_one_has_asked(tmp_path):
    path = tmp_path / "file"
    assert not file.happened(str(path), key="k", fence=7)
    with pytest.raises(StaleFence) as stale:
        file.write(str(path), b"old", key="k", fence=6)
    assert stale.value.newest == 7
    assert (path.exists(), left(tmp_path)) == (False, [])
    file.write(
        str(path), b"other", key="other", fence=1
    )  # another run's: its fence is no older one of this write
    file.write(str(path), b"new", key="k", fence=7)
    with pytest.raises(StaleFence):
        file.undo(str(path), key="k", fence=6)
    assert path.read_text() == "new"


def test_writes_are_undone_newest_first(tmp_path):
    path = tmp_path / "file"
    for n in range(5):
        file.write(str(path), f"{n}".encode(), key=f"k{n}", fence=1)
    for n in reversed(range(5)):
        assert path.read_text() == f"{n}"
        file.undo(str(path), key=f"k{n}", fence=1)
    assert not path.exists()


def test_undone_key_can_write_again(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    for _ in range(3):
        file.write(str(path), b"mine", key="k", fence=1)
        assert file.happened(str(path), key="k", fence=1)
        file.undo(str(path), key="k", fence=1)
        assert not file.happened(str(path), key="k", fence=1)
        assert path.read_text() == "before"


# -- faults


def test_oversized_file_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("before")
    said = start(
        "file_limits.py", tmp_path, tmp_path / "file", json.dumps({"fsize": 5000, "size": 100_000})
    ).result()
    assert said["errno"] == errno.EFBIG
    assert "File too large" in said["message"]
    assert (tmp_path / "file").read_text() == "before"
    assert left(tmp_path) == []


def test_full_disk_keeps_the_previous_content(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", disk], check=False, capture_output=True
    ).returncode:
        pytest.skip("a file system of its own can only be mounted by root")
    try:
        path = str(disk / "file")
        file.write(path, b"a" * 50_000, key="a", fence=1)
        with pytest.raises(FileNotWritten) as full:
            file.write(path, b"b" * 200_000, key="b", fence=1)
        assert full.value.errno == errno.ENOSPC
        assert Path(path).read_bytes() == b"a" * 50_000
        assert left(disk) == []
        file.write(path, b"c" * 20_000, key="c", fence=1)
        file.undo(path, key="c", fence=1)
        assert Path(path).read_bytes() == b"a" * 50_000
    finally:
        subprocess.run(["umount", disk], check=True)


def test_write_to_a_full_disk_did_not_happen(tmp_path):
    """Give the disk one more block each time. At some point the note finds no room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    ends = set()
    for blocks in range(4, 24):
        options = f"size={blocks * 4}k"
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk], check=False, capture_output=True
        ).returncode:
            pytest.skip("a file system of its own can only be mounted by root")
        try:
            (disk / "file").write_text("before")
            try:
                file.write(str(disk / "file"), b"x" * 40_000, key="k", fence=1)
            except FileNotWritten as error:
                ends.add(error.errno)
                (disk / "room").unlink(missing_ok=True)
                assert (disk / "file").read_text() == "before"
                note = (
                    next((disk / ".outlast").glob("*.json"), None)
                    if (disk / ".outlast").exists()
                    else None
                )
                with atomic_dir.AtomicDir(disk / "file", "k") as opened:
                    assert note is None or not opened.happened(
                        atomic_dir.Note(**json.loads(note.read_bytes()))
                    )
            else:
                ends.add(0)
                assert (disk / "file").read_bytes() == b"x" * 40_000
        finally:
            subprocess.run(["umount", disk], check=True)
    assert ends == {0, errno.ENOSPC}


def test_read_only_folder_is_a_clear_error(tmp_path):
    where = tmp_path / "closed"
    where.mkdir(mode=0o555)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    said = start("file_limits.py", tmp_path, where / "file", json.dumps({"user": 65534})).result()
    assert said["errno"] == errno.EACCES
    assert "Permission denied" in said["message"]
    assert list(where.iterdir()) == []


def test_symbolic_link_is_followed_and_kept(tmp_path):
    there, link = tmp_path / "there", tmp_path / "here" / "link"
    there.mkdir()
    link.parent.mkdir()
    link.symlink_to(there / "file")
    written = file.write(str(link), b"text", key="k", fence=1)
    assert (link.is_symlink(), written.path) == (True, str(there / "file"))
    assert (there / "file").read_text() == link.read_text() == "text"
    assert not (link.parent / ".outlast").exists()
    link.unlink()  # what is undone is what was written, wherever the link leads by then
    file.undo(written.path, key="k", fence=1)
    assert not (there / "file").exists()
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(FileNotWritten, match="symbolic links"):
        file.write(str(loop), b"text", key="k", fence=1)


def test_vanished_folder_is_an_error(tmp_path):
    where, vanished = tmp_path / "where", 0
    stop, number = threading.Event(), 0

    def vanish() -> None:
        while not stop.is_set():
            where.mkdir(exist_ok=True)
            time.sleep(0.003)
            shutil.rmtree(where, ignore_errors=True)

    thread = threading.Thread(target=vanish)
    thread.start()
    try:
        while vanished < 20:
            number += 1
            try:
                file.write(str(where / "file"), b"text", key=f"k{number}", fence=1)
            except FileNotWritten as error:
                assert error.errno == errno.ENOENT
                vanished += 1
            except FileNotFoundError:
                vanished += 1  # at the rename: whether it happened is for verify to say
    finally:
        stop.set()
        thread.join()
    shutil.rmtree(where, ignore_errors=True)
    with pytest.raises(FileNotFoundError):
        file.happened(str(where / "file"), key="k", fence=1)
    with pytest.raises(FileNotRestored):
        file.undo(str(where / "file"), key="k", fence=1)


def test_file_is_copied_where_links_are_not_supported(tmp_path, monkeypatch):
    def link(*_: object, **_options: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    path = tmp_path / "file"
    path.write_text("before")
    file.write(str(path), b"new", key="k", fence=1)
    file.undo(str(path), key="k", fence=1)
    assert path.read_text() == "before"


# -- what is kept


def test_old_backups_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic_dir, "KEPT_MAX", 3)
    monkeypatch.setattr(atomic_dir.secrets, "randbelow", lambda _: 0)
    path, single = tmp_path / "file", tmp_path / "single"
    for n in range(6):
        file.write(str(path), f"{n}".encode(), key=f"k{n}", fence=1)
        os.utime(
            next((tmp_path / ".outlast").glob(f"{atomic_dir.AtomicDir(path, f'k{n}').stem}.json")),
            (n, n + 1e9),
        )
        monkeypatch.setattr(atomic_dir, "KEPT_SECONDS", 1e10)
    file.write(str(single), b"x", key="s", fence=1)
    stems = {name.partition(".")[0] for name in left(tmp_path)}
    assert stems == {atomic_dir.AtomicDir(path, f"k{n}").stem for n in (3, 4, 5)}
    with pytest.raises(FileNotRestored, match="is no longer known"):
        file.undo(str(path), key="k1", fence=1)
    monkeypatch.setattr(atomic_dir, "KEPT_SECONDS", 0.0)
    file.write(str(single), b"y", key="t", fence=1)
    assert list((tmp_path / ".outlast").glob("*.kept")) == []


def test_content_of_a_dead_attempt_is_removed(tmp_path):
    path = tmp_path / "file"
    file.write(str(path), b"x", key="k", fence=1)
    own = tmp_path / ".outlast"
    with atomic_dir.AtomicDir(path, "dead") as one, atomic_dir.AtomicDir(path, "named") as named:
        temp = own / one.content(b"left", None)
        os.utime(temp, (0, 0))
        other = own / named.content(b"named", None)
        named.announce(other.name, "", 1)
        os.utime(other, (0, 0))
        atomic_dir.tidy(one.own)
    assert (temp.exists(), other.exists()) == (False, True), (
        "one that a note names says that it did not happen"
    )


def test_importing_effects_imports_no_heavy_modules():
    assert effects.write_file is write_file
    code = "import sys, outlast.effects; print(sorted({'httpx', 'pydantic', 'httpcore'} & set(sys.modules)))"
    done = subprocess.run(
        [os.sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )
    assert done.stdout == "[]\n"
