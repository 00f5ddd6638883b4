"""Commands that only look, for a user who may read a SQLite store and not write it."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from outlast.store.commands import Submit
from outlast.store.sqlite.store import SQLiteStore
from support.processes import Program
from support.waiting import WAIT_SECONDS

LOOKS = ("runs", "show r1", "workers", "queues", "drains", "sessions")

STATES = ("in use", "closed", "killed", "copied without -shm")
TRIED = {("in use", 0o555), ("closed", 0o777), ("killed", 0o555), ("copied without -shm", 0o555)}
"""What `make test` tries. The other modes are for `make stores`."""
CASES = [
    pytest.param(state, mode, marks=() if (state, mode) in TRIED else pytest.mark.extended)
    for state in STATES
    for mode in (0o555, 0o777)
]

# Root may write everything, until it gives up the capability to: then modes count for it as for any owner.
CALL = """
import ctypes, os, sys
if os.geteuid() == 0:
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        assert ctypes.CDLL(None).prctl(24, capability, 0, 0, 0) == 0  # PR_CAPBSET_DROP
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1], *sys.argv[2:]])
"""
COMMANDS = """
import os, sys
from outlast.cli import main
assert not os.access(sys.argv[1], os.W_OK)
for line in sys.argv[2:]:
    try:
        main(line.split())
    except SystemExit as end:
        print("exit code", end.code, "of", line, flush=True)
"""
WRITE = """
import pathlib, sys, time
from outlast.store.sqlite.store import SQLiteStore
from outlast.store.commands import RegisterWorker, SetQueueLimits, Submit
store = SQLiteStore(sys.argv[1])
store.open()
store.acquire_liveness("w1")
store.commit([RegisterWorker("w1", "host", 1, 1000.0), Submit("r1", "flow", "[]", "t", "seed"), SetQueueLimits("default", 5, 5)])
print("written", flush=True)
while not pathlib.Path("close").exists():
    time.sleep(0.01)
store.close()
"""


@pytest.fixture
def path(tmp_path):
    """The path of a store; afterwards its folders can be removed."""
    (tmp_path / "place").mkdir()
    yield tmp_path / "place" / "outlast.db"
    (tmp_path / "place").chmod(0o700)
    if (tmp_path / "place" / "outlast.db.d").exists():
        (tmp_path / "place" / "outlast.db.d").chmod(0o700)


class Writer:
    """A process that has written a store and keeps it open."""

    def __init__(self, path):
        folder = Path(tempfile.mkdtemp(dir=path.parent.parent))
        self._process = Program.python("-c", WRITE, path, folder=folder)
        self._process.wait_for_line("written")

    def close(self) -> None:
        (self._process.folder / "close").touch()
        assert self._process.wait() == 0, self._process.describe()

    def kill(self) -> None:
        self._process.kill()


def close_to_others(path, folder_mode: int) -> list[str]:
    """Let others read the files, as their modes say it, and return the names of these."""
    for file in path.parent.iterdir():
        file.chmod(0 if file.is_dir() else 0o444)
    path.parent.chmod(folder_mode)
    return sorted(file.name for file in path.parent.iterdir())


def call(path, *lines: str) -> str:
    env = {**os.environ, "OUTLAST_STORE": f"sqlite:///{path}", "OUTLAST_STORE_PATIENCE": "0.1"}
    done = subprocess.run(
        [sys.executable, "-c", CALL, COMMANDS, path, *lines],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=WAIT_SECONDS,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize(("state", "folder_mode"), CASES)
def test_read_only_user_can_look_without_leaving_files(path, state, folder_mode):
    writer = Writer(path)
    if state == "closed":
        writer.close()
    elif state != "in use":
        writer.kill()
    if state == "copied without -shm":
        path.with_name("outlast.db-shm").unlink()
    before = close_to_others(path, folder_mode)
    assert ("outlast.db-wal" in before) == (state != "closed")
    said = call(path, *LOOKS, "cancel r1")
    for line in LOOKS:
        assert f"exit code 0 of {line}" in said, said
    assert "flow" in said
    assert "this user may only read it" in said, said
    assert "exit code 75 of cancel r1" in said, said
    assert sorted(file.name for file in path.parent.iterdir()) == before
    if state == "in use":
        path.with_name("outlast.db.d").chmod(0o700)
        writer.close()


def test_a_read_only_store_that_is_none_of_this_release_is_refused(path):
    path.touch()
    close_to_others(path, 0o555)
    said = call(path, "runs")
    assert "there is no store" in said, said


def test_read_only_store_sees_later_writes(path, monkeypatch):
    """With workers that start and end meanwhile, so that the files beside the database come and go."""
    monkeypatch.setattr("outlast.store.sqlite.store.may_write", lambda _: False)
    Writer(path).close()
    look = SQLiteStore(path)
    look.migrates = False
    look.open()
    for number in range(3):
        store = SQLiteStore(path)
        store.open()
        store.commit([Submit(f"s{number}", "flow", "[]", "t", "seed")])
        assert look.run(f"s{number}") is not None
        store.close()
        assert look.run(f"s{number}") is not None
    look.close()
