"""A file is never half-written and never lost; a writer that was overtaken does not write; an undone write leaves what was there before."""

import errno
import json
import os
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from hashlib import sha256
from pathlib import Path

import pytest
from ledger_tools import HERE, Program, chance, until

from outlast import StaleFence, effects, run, sync, workflow
from outlast.effects import (
    FileNotRestored,
    FileNotWritten,
    FileWritten,
    file,
    file_effect,
    folder,
    write_file,
)

PROGRAMS = HERE / "programs_ledger"
OURS = "ours " * 50
LONG = "OUTLAST_TEST_KILLS" in os.environ
linux = pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")


def start(name: str, where: Path, *args: object) -> Program:
    return Program(str(PROGRAMS / name), where, *args)


def left(where: Path) -> list[str]:
    names = sorted(path.name for path in (where / ".outlast").iterdir())
    return [name for name in names if not name.endswith(".json") and name != "lock"]


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


def test_a_workflow_writes_a_file(tmp_path):
    path = tmp_path / "report.md"
    written = run(report(str(path), "größer"), id="r", store="memory:")
    assert path.read_text() == "größer"
    assert written == FileWritten(str(path), 8, sha256("größer".encode()).hexdigest())
    assert sync.run(report_sync(str(path), "again"), id="r", store="memory:").size == 5
    assert path.read_text() == "again"


def test_bytes_and_permissions(tmp_path):
    path, data = tmp_path / "a.png", bytes(range(256))
    run(picture(str(path), data, 0o600), id="r", store="memory:")
    assert path.read_bytes() == data
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    run(report(str(path), "text"), id="r", store="memory:")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "those of the old file"


@pytest.mark.parametrize("before", ["it was so", None])
def test_a_run_that_fails_puts_back_what_was_there(tmp_path, before):
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


def test_a_file_that_is_to_stay_stays(tmp_path):
    path = tmp_path / "report.md"
    with pytest.raises(LookupError):
        run(kept_report(str(path), "new"), id="r", store="memory:")
    assert path.read_text() == "new"


@workflow
async def report_failing(path: str, text: str | None, data: bytes | None = None) -> FileWritten:
    return await keep_file.aio(path, text, data=data)


def test_errors_are_the_workflows_and_clear(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")

    def message(path: object, *content: object) -> str:
        with pytest.raises(FileNotWritten) as caught:
            run(report_failing(str(path), *content), id="r", store="memory:")
        return str(caught.value)

    assert "the path must be absolute" in message("report.md", "text")
    assert "No such file or directory" in message(tmp_path / "nowhere" / "report.md", "text")
    assert "it is a folder" in message(tmp_path / "folder", "text")
    assert "it is no regular file" in message(tmp_path / "pipe", "text")
    assert "give the content as text, or as data=" in message(tmp_path / "a", None)
    assert "give the content as text, or as data=" in message(tmp_path / "a", "text", b"data")
    assert "was not written, and is as it was" in message(tmp_path / "a\0b", "text")
    assert "File name too long" in message(tmp_path / ("a" * 300), "text")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != ".outlast") == ["folder", "pipe"]


# -- the end at every line


@pytest.fixture
def memory_path():
    """Thousands of deaths: what is synced need not go to a disk for that."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


def deaths(tmp_path: Path, **options: object) -> list[dict]:
    program = start("file_deaths.py", tmp_path, json.dumps(options))
    assert program.wait(100) == 0, program.errors()
    *seen, end = program.said()
    assert end == {"lines": len(seen)}
    assert len(seen) > 25
    return seen


@pytest.mark.parametrize("other", [None, "somebody else's"])
@pytest.mark.parametrize("before", ["it was so", None])
def test_killed_at_any_line_of_a_write_it_is_whole_and_known_whether_it_happened(memory_path, before, other):
    for seen in deaths(memory_path, at="write", how="kill", before=before, other=other):
        assert seen["died"] in (before, OURS), seen
        assert seen["happened"] is (seen["died"] == OURS), seen
        if other is None or not seen["happened"]:
            assert seen["inherited"] == OURS, seen
            assert seen["undone"] == seen["undone again"] == (other or before), seen
        else:
            assert seen["inherited"] == seen["undone"] == seen["undone again"] == other, seen
        assert [name for name in seen["left"] if not name.startswith(".") and ".tmp." not in name] == [], seen
        assert len(seen["left"]) <= 1, "at most the content of an attempt that died before it was named"


@pytest.mark.parametrize("other", [None, "somebody else's"])
@pytest.mark.parametrize("before", ["it was so", None, OURS])
def test_killed_at_any_line_of_its_undoing_it_is_undone_once(memory_path, before, other):
    for seen in deaths(memory_path, at="undo", how="kill", before=before, other=other):
        assert seen["died"] in (before, OURS), seen
        assert seen["undone again"] == (before if other is None else other), seen
        assert seen["left"] == [], seen
        if before is not None and other is None:
            assert seen["mode"] == "0o640"


@linux
def test_stopped_at_any_line_and_overtaken_it_writes_nothing_when_it_goes_on(memory_path):
    held_up = 0
    for seen in deaths(memory_path, at="write", how="stop", before="it was so"):
        assert seen["inherited"] == OURS, seen
        assert seen["woken"] == "newer", f"an old writer wrote over a new one: {seen}"
        if "held up" in seen:
            held_up += 1
            assert "is one of the workers stopped?" in seen["held up"]
            assert seen["went on"] == 0, "nobody had overtaken it"
        else:
            assert seen["went on"] == (0 if seen["died"] == OURS else 1), seen
    assert held_up > 3


# -- the end at any moment


@pytest.mark.timeout(180)
def test_killed_at_random_what_was_said_to_be_written_is_there_and_whole(tmp_path):
    rng, path, last, kills = chance("file kills"), tmp_path / "file", 0, 60 if LONG else 12
    stop, torn, sizes = threading.Event(), [], set()

    def read() -> None:
        while not stop.is_set():
            if path.exists():
                text = path.read_text()
                number, _, _ = text.partition(" ")
                sizes.add(len(text))
                if text != f"{number} " * 20_000 + "end":
                    torn.append(text[:40])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(kills):
            writer = start("file_loop.py", tmp_path, path, last + 1)
            until(lambda: writer.said() or not writer.ended or writer.errors())
            until(lambda: len(writer.said()) > rng.randrange(8))
            time.sleep(rng.uniform(0, 0.02))
            writer.kill()
            said, there = writer.said()[-1], int(path.read_text().partition(" ")[0])
            assert there in (said, said + 1), "what was said is there, or the next one"
            last = there
    finally:
        stop.set()
        reader.join()
    assert torn == []


def test_many_writers_at_once_leave_one_whole_content(tmp_path):
    path = tmp_path / "file"
    texts = {n: f"{n} " * 5000 for n in range(16)}

    def write(n: int) -> None:
        file.write(str(path), texts[n].encode(), key=f"k{n}", fence=1)

    threads = [threading.Thread(target=write, args=(n,)) for n in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in texts.values()
    assert all(file.happened(str(path), key=f"k{n}", fence=1) for n in texts)
    assert len(left(tmp_path)) == 15, "each but the first has kept what was before it"
    for n in texts:
        file.undo(str(path), key=f"k{n}", fence=1)
    assert left(tmp_path) == []


# -- fences


def test_an_older_fence_is_refused_from_the_moment_a_younger_one_has_asked(tmp_path):
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


def test_writes_of_one_run_are_undone_one_after_the_other(tmp_path):
    path = tmp_path / "file"
    for n in range(5):
        file.write(str(path), f"{n}".encode(), key=f"k{n}", fence=1)
    for n in reversed(range(5)):
        assert path.read_text() == f"{n}"
        file.undo(str(path), key=f"k{n}", fence=1)
    assert not path.exists()


def test_the_same_key_may_write_again_after_it_was_undone(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    for _ in range(3):
        file.write(str(path), b"mine", key="k", fence=1)
        assert file.happened(str(path), key="k", fence=1)
        file.undo(str(path), key="k", fence=1)
        assert not file.happened(str(path), key="k", fence=1)
        assert path.read_text() == "before"


# -- faults


def test_a_file_that_would_be_too_large_is_not_written_and_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("before")
    said = start(
        "file_limits.py", tmp_path, tmp_path / "file", json.dumps({"fsize": 5000, "size": 100_000})
    ).result()
    assert said["errno"] == errno.EFBIG
    assert "File too large" in said["message"]
    assert (tmp_path / "file").read_text() == "before"
    assert left(tmp_path) == []


def test_a_full_disk_leaves_what_is_there_and_lets_others_write_when_there_is_room(tmp_path):
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


def test_a_disk_that_is_full_at_any_point_is_not_a_file_that_happened(tmp_path):
    """The disk has room for so many blocks, one more each time: at some point it is the note that finds none."""
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
                    next((disk / ".outlast").glob("*.json"), None) if (disk / ".outlast").exists() else None
                )
                assert note is None or not folder.Folder(disk / "file", "k").happened(
                    folder.Note(**json.loads(note.read_bytes()))
                )
            else:
                ends.add(0)
                assert (disk / "file").read_bytes() == b"x" * 40_000
        finally:
            subprocess.run(["umount", disk], check=True)
    assert ends == {0, errno.ENOSPC}


def test_a_folder_that_may_not_be_written_is_a_clear_error(tmp_path):
    where = tmp_path / "closed"
    where.mkdir(mode=0o555)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    said = start("file_limits.py", tmp_path, where / "file", json.dumps({"user": 65534})).result()
    assert said["errno"] == errno.EACCES
    assert "Permission denied" in said["message"]
    assert list(where.iterdir()) == []


def test_a_symbolic_link_stays_one_and_the_file_behind_it_is_written(tmp_path):
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


def test_a_folder_that_vanishes_under_it_is_an_error_and_no_hang(tmp_path):
    where, vanished = tmp_path / "where", 0
    stop = threading.Event()

    def vanish() -> None:
        while not stop.is_set():
            where.mkdir(exist_ok=True)
            time.sleep(0.003)
            shutil.rmtree(where, ignore_errors=True)

    thread = threading.Thread(target=vanish)
    thread.start()
    try:
        for n in range(100):
            try:
                file.write(str(where / "file"), b"text", key=f"k{n}", fence=1)
            except FileNotWritten as error:
                assert error.errno == errno.ENOENT
                vanished += 1
            except FileNotFoundError:
                vanished += 1  # at the rename: whether it happened is for verify to say
    finally:
        stop.set()
        thread.join()
    assert vanished
    shutil.rmtree(where, ignore_errors=True)
    with pytest.raises(FileNotFoundError):
        file.happened(str(where / "file"), key="k", fence=1)
    with pytest.raises(FileNotRestored):
        file.undo(str(where / "file"), key="k", fence=1)


def test_a_file_that_cannot_be_linked_is_copied(tmp_path, monkeypatch):
    def link(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(folder.os, "link", link)
    path = tmp_path / "file"
    path.write_text("before")
    file.write(str(path), b"new", key="k", fence=1)
    file.undo(str(path), key="k", fence=1)
    assert path.read_text() == "before"


# -- what is kept


def test_what_is_too_old_or_too_much_is_not_kept_and_cannot_be_put_back(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "KEPT_MAX", 3)
    monkeypatch.setattr(folder.secrets, "randbelow", lambda _: 0)
    path, single = tmp_path / "file", tmp_path / "single"
    for n in range(6):
        file.write(str(path), f"{n}".encode(), key=f"k{n}", fence=1)
        os.utime(
            next((tmp_path / ".outlast").glob(f"{folder.Folder(path, f'k{n}').stem}.json")), (n, n + 1e9)
        )
        monkeypatch.setattr(folder, "KEPT_SECONDS", 1e10)
    file.write(str(single), b"x", key="s", fence=1)
    stems = {name.partition(".")[0] for name in left(tmp_path)}
    assert stems == {folder.Folder(path, f"k{n}").stem for n in (3, 4, 5)}
    with pytest.raises(FileNotRestored, match="is not known any more"):
        file.undo(str(path), key="k1", fence=1)
    monkeypatch.setattr(folder, "KEPT_SECONDS", 0.0)
    file.write(str(single), b"y", key="t", fence=1)
    assert list((tmp_path / ".outlast").glob("*.kept")) == []


def test_the_content_of_an_attempt_that_died_is_removed_when_nothing_names_it(tmp_path):
    path = tmp_path / "file"
    file.write(str(path), b"x", key="k", fence=1)
    one = folder.Folder(path, "dead")
    temp = one.content(b"left", None)
    os.utime(temp, (0, 0))
    named = folder.Folder(path, "named")
    other = named.content(b"named", None)
    named.announce(other, "", 1)
    os.utime(other, (0, 0))
    folder.tidy(tmp_path / ".outlast")
    assert (temp.exists(), other.exists()) == (False, True), (
        "one that a note names says that it did not happen"
    )


def test_it_is_exported_and_importing_it_is_cheap():
    assert effects.write_file is write_file
    code = "import sys, outlast.effects; print(sorted({'httpx', 'pydantic', 'httpcore'} & set(sys.modules)))"
    done = subprocess.run(
        [os.sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "[]\n"
