"""A line that is torn is cut, and said; a line that is damaged is StoreBroken with its file and number, and nothing is changed."""

import errno
import logging
import os
import re
import shutil

import pytest
from file_history import dump, opened, quick_folder, submit, write_history

from outlast.errors import StoreBroken, StoreUnavailable
from outlast.store.address import store_at
from outlast.store.commands import DeleteSession, Prune, RegisterWorker, UpdateSession
from outlast.testing.store_hooks import kill

LONG = "OUTLAST_TEST_KILLS" in os.environ
"""Every byte; otherwise some of them."""


def last_line(data: bytes) -> int:
    """Where it begins."""
    return data.rfind(b"\n", 0, len(data) - 1) + 1


@pytest.fixture
def quick_path():
    with quick_folder() as path:
        yield path


@pytest.fixture
def dead(quick_path):
    """The folder of a store that was killed: everything is in its log, and in its journals too."""
    store = opened(quick_path / "dead")
    write_history(store)
    before = dump(store)
    kill(store)
    return quick_path / "dead", before


@pytest.fixture
def dying(quick_path):
    """The same, killed when its last commit was in the log and nowhere else; and what it held before that commit, and after it."""
    store = opened(quick_path / "dying")
    write_history(store)
    before = dump(store)
    shutil.copytree(store.folder, quick_path / "copied")
    store.commit(
        [
            submit("last", args="ä" * 9),
            UpdateSession("s2", "last", {"c": "1"}),
            RegisterWorker("w2", "host", 2, 60.0),
        ]
    )
    after = dump(store)
    kill(store)
    shutil.copy(store.folder / "commits.jsonl", quick_path / "copied")
    return quick_path / "copied", before, after


@pytest.fixture
def closed(quick_path):
    store = opened(quick_path / "closed")
    write_history(store)
    store.close()
    return quick_path / "closed"


def journals(folder):
    return [
        path for path in sorted(folder.rglob("*.jsonl")) if not path.name.startswith("commits.")
    ]


def copied(folder, number=0):
    copy = folder.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    return copy


def refused(folder) -> str:
    """How it is refused, and that nothing is changed by it."""
    before = {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "lock"
    }
    with pytest.raises(StoreBroken) as said:
        opened(folder)
    assert before == {path: path.read_bytes() for path in before}
    return str(said.value)


def test_log_that_is_torn_at_any_byte_loses_its_last_commit_and_nothing_else(dying, caplog):
    folder, before, after = dying
    log = (folder / "commits.jsonl").read_bytes()
    start = last_line(log)
    some = (
        range(start, len(log) + 1)
        if LONG
        else [start, *range(start + 1, len(log), 37), *range(len(log) - 3, len(log) + 1)]
    )
    for size in some:
        copy = copied(folder)
        (copy / "commits.jsonl").write_bytes(log[:size])
        caplog.clear()
        store = opened(copy)
        assert dump(store) == (after if size == len(log) else before)
        said = [
            record.getMessage() for record in caplog.records if "incomplete" in record.getMessage()
        ]
        cut = f"{copy / 'commits.jsonl'}: removed {size - start} bytes of an incomplete last line. It was never acknowledged."
        assert said == ([cut] if start < size < len(log) else [])
        if size % 9:
            store.close()
            continue
        store.commit([submit("more")])
        kill(store)
        again = opened(copy)
        assert again.run("more") is not None
        again.close()


def test_line_that_lost_its_beginning_is_torn(dying):
    """After a power cut the end of a line may be there and what is before it not."""
    folder, before, _ = dying
    log = (folder / "commits.jsonl").read_bytes()
    start = last_line(log)
    (folder / "commits.jsonl").write_bytes(
        log[:start] + b"\0" * (len(log) - start - 10) + log[-10:]
    )
    store = opened(folder)
    assert dump(store) == before
    store.close()


def test_log_that_lost_an_acknowledged_line_is_broken(dead):
    folder, _ = dead
    log = (folder / "commits.jsonl").read_bytes()
    for size in (last_line(log), last_line(log) + 9, len(log) - 1):
        (folder / "commits.jsonl").write_bytes(log[:size])
        assert "later than the log" in refused(folder)


def test_journal_that_is_torn_anywhere_in_what_the_log_has_is_written_again(dead, caplog):
    folder, before = dead
    for path in journals(folder):
        data = path.read_bytes()
        start = last_line(data)
        for size in [0, start, *range(start + 1, len(data), 61), len(data) - 1]:
            copy = copied(folder)
            (copy / path.relative_to(folder)).write_bytes(data[:size])
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                store = opened(copy)
            assert dump(store) == before
            assert (copy / path.relative_to(folder)).read_bytes() == data
            torn = [record for record in caplog.records if path.name in record.getMessage()]
            assert bool(torn) == (data[:size][-1:] not in (b"\n", b"")), size
            store.close()


def test_store_that_died_in_its_first_commit_reports_its_version(quick_path):
    store = opened(quick_path / "first")
    store.commit([RegisterWorker("w", "host", 1, 60.0)])
    kill(store)
    path, looking = store.folder / "store.jsonl", store_at(f"file:{store.folder}")
    data = path.read_bytes()
    for size in range(data.index(b"\n") + 1):
        path.write_bytes(data[:size])
        there, ours = looking.versions()
        assert there == ours, size
    opened(store.folder).close()


def test_torn_journal_is_broken_once_the_log_has_moved_on(closed):
    for path in journals(closed):
        data = path.read_bytes()
        lines = data.count(b"\n")
        for size in (0, last_line(data), last_line(data) + 5, len(data) - 1):
            copy = copied(closed)
            torn = copy / path.relative_to(closed)
            torn.write_bytes(data[:size])
            said = refused(copy)
            if data[:size].endswith(b"\n"):  # whole lines are missing
                assert "Files were removed, added or truncated" in said
            else:
                assert f"{torn}, line {lines if size else 1}:" in said


def test_journal_that_is_missing_or_too_many_is_broken(closed):
    (run, *_) = [path for path in journals(closed) if path.parent.parent.name == "runs"]
    copy = copied(closed)
    (copy / run.relative_to(closed)).unlink()
    assert "Files were removed" in refused(copy)
    copy = copied(closed)
    shutil.copy(run, run.with_name("000999.jsonl").as_posix().replace("closed", "copy"))
    assert "000999.jsonl, line 1" in refused(copy)


@pytest.mark.parametrize("turned", [False, True], ids=["one log", "its second log"])
def test_journal_that_is_missing_or_cut_is_broken_after_a_crash_too(closed, turned, monkeypatch):
    if turned:
        monkeypatch.setattr("outlast.store.file.store.LOG_BYTES_MAX", 1)
    store = opened(closed)
    for number in range(3):
        store.commit([UpdateSession("new", f"t{number}", {"c": "1"})])
    kill(store)
    kill(opened(copied(closed)))  # as it is, it is whole
    spoken = "".join(path.read_text() for path in closed.glob("commits*.jsonl"))
    old = [path for path in journals(closed) if path.relative_to(closed).as_posix() not in spoken]
    assert {path.parent.parent.name for path in old} >= {"runs", "sessions"}
    for path in old:
        data = path.read_bytes()
        for size in (None, last_line(data)):
            copy = copied(closed)
            damaged = copy / path.relative_to(closed)
            damaged.unlink() if size is None else damaged.write_bytes(data[:size])
            if size != 0:
                assert "Files were removed, added or truncated" in refused(copy)


def test_folder_that_may_not_be_read_is_not_taken_for_an_empty_one(closed, monkeypatch):
    """Root, which may read everything, has to pretend."""
    real, shut = os.scandir, str(closed / "runs" / "000")

    def scandir(place):
        if os.fspath(place) == shut:
            raise PermissionError(errno.EACCES, "Permission denied", shut)
        return real(place)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(StoreUnavailable, match=r"not permitted.*runs/000"):
        opened(closed)


def test_run_that_is_pruned_is_not_missed_after_a_crash(closed):
    store = opened(closed)
    held = dump(store)
    store.commit([Prune(2e9, 100), DeleteSession("s2", "gone")])
    after = dump(store)
    assert after != held
    kill(store)
    again = opened(closed)
    assert dump(again) == after
    kill(again)


def test_log_that_is_missing_is_broken(dead):
    folder, _ = dead
    (folder / "commits.jsonl").unlink()
    assert "commits.jsonl is missing" in refused(folder)


@pytest.mark.parametrize("state", ["dead", "closed"])
def test_changed_byte_is_reported_with_file_and_line(request, state):
    found = request.getfixturevalue(state)
    folder = found[0] if state == "dead" else found
    files = [*journals(folder)] if state == "closed" else [folder / "commits.jsonl"]
    for path in files:
        data = path.read_bytes()
        for position in range(3, len(data) - 1, max(len(data) // 25, 1)):
            if data[position : position + 1] == b"\n":
                continue
            copy = copied(folder)
            flipped = data[:position] + bytes([data[position] ^ 0x01]) + data[position + 1 :]
            (copy / path.relative_to(folder)).write_bytes(flipped)
            line = data.count(b"\n", 0, position) + 1
            said = refused(copy)
            if flipped.count(b"\n") == data.count(b"\n"):
                assert f"{copy / path.relative_to(folder)}, line {line}:" in said, (position, said)


def test_line_that_is_missing_in_the_middle_or_twice_is_broken(closed, dead):
    for folder, path in ((closed, closed / "store.jsonl"), (dead[0], dead[0] / "commits.jsonl")):
        lines = path.read_bytes().splitlines(keepends=True)
        for other in (
            [*lines[:2], *lines[3:]],
            [*lines[:3], lines[2], *lines[3:]],
            [lines[1], lines[0], *lines[2:]],
        ):
            copy = copied(folder)
            (copy / path.relative_to(folder)).write_bytes(b"".join(other))
            assert re.search(rf"{path.name}, line [123456]:", refused(copy))


def test_log_from_another_backup_is_broken(dead):
    folder, _ = dead
    old = copied(folder)
    store = opened(folder)
    store.commit([submit("later")])
    store.close()
    for path in journals(folder):  # a folder of which only the log was restored
        target = old / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    assert "later than the log" in refused(old)


def test_log_that_names_another_file_writes_nothing_there(dead):
    from outlast.store.file.line_format import with_crc

    folder, _ = dead
    line = (
        with_crc(
            '{"commit": 1, "at": 1.0, "parts": [{"file": "../../elsewhere.jsonl", "from": 0, "lines": []}]'
        )
        + b"\n"
    )
    (folder / "commits.jsonl").write_bytes(line)
    assert "no journal" in refused(folder)
    assert not (folder.parent.parent / "elsewhere.jsonl").exists()
