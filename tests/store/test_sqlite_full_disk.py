"""A disk without room when a process registers as a worker: it waits, as it does for any write.

A limit to the size of files stands for the full disk: it needs no rights, and can be lifted from outside.
"""

import os
import resource
import shutil
import subprocess
import sys

import pytest
from store_processes import Child

from outlast.errors import StoreUnavailable
from outlast.store.commands import Submit
from outlast.store.sqlite.store import SQLiteStore
from support.waiting import wait_until

LIMIT = """
import resource
HARD = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
def limit(size): resource.setrlimit(resource.RLIMIT_FSIZE, (size, HARD))
"""


@pytest.fixture
def path(tmp_path):
    """A database in use, so that opening it needs no room: `-wal` and `-shm` are there."""
    store = SQLiteStore(tmp_path / "outlast.db")
    store.open()
    store.commit([Submit("r", "flow", "[]", "r", "seed")])
    yield store.path
    store.close()


def test_unwritable_lock_file_is_unavailable_and_leaves_nothing_behind(path):
    script = """
from outlast.errors import StoreUnavailable
store = SQLiteStore(sys.argv[1])
limit(0)
store.open()
try:
    store.acquire_liveness("w")
except StoreUnavailable:
    say(*(name for name in os.listdir(sys.argv[1] + ".d") if "worker" in name), "unavailable")
limit(HARD)
store.acquire_liveness("w")
say(*(name for name in os.listdir(sys.argv[1] + ".d") if "worker" in name))
"""
    with Child(LIMIT + script, path) as child:
        assert child.line() == "unavailable"
        assert child.line() == "worker-w.lock"


def test_listener_is_added_once_there_is_room_for_its_pipe(path):
    store = SQLiteStore(path)
    store.open()
    notified = []
    shutil.rmtree(f"{path}.d")
    with pytest.raises(StoreUnavailable):
        store.listen(lambda: notified.append(1))
    os.mkdir(f"{path}.d", 0o700)  # noqa: PTH102
    store.listen(lambda: notified.append(1))
    with Child(
        'store = SQLiteStore(sys.argv[1]); store.open(); store.commit([submit("x")]); say(1)', path
    ) as child:
        child.line()
        wait_until(lambda: notified)
    store.close()


WORKER = [sys.executable, "-m", "outlast", "worker", "agent.py"]
PROGRAM = """
from outlast import workflow

@workflow
async def flow() -> None: ...
"""


def worker(path, patience: float) -> subprocess.Popen[bytes]:
    """A worker that may not write to any file."""
    (path.parent / "agent.py").write_text(PROGRAM)
    env = {
        **os.environ, "OUTLAST_STORE": f"sqlite:///{path}", "OUTLAST_STORE_PATIENCE": str(patience),
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    return subprocess.Popen(
        ["/bin/sh", "-c", 'ulimit -S -f 0; exec "$@"', "sh", *WORKER],
        cwd=path.parent, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_worker_that_starts_on_a_full_disk_exits_as_unavailable(path):
    with worker(path, patience=0.2) as process:
        err = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 75, err
    assert "Traceback" not in err


@pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="the limit cannot be lifted from outside"
)
def test_worker_that_starts_on_a_full_disk_goes_on_when_there_is_room(path):
    with worker(path, patience=600) as process:
        lines = []
        while not any("waiting for the store" in line for line in lines):
            lines.append(process.stderr.readline().decode())
            assert lines[-1], lines
        unlimited = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
        while not any('"working"' in line for line in lines):
            lines.append(process.stderr.readline().decode())
            assert lines[-1], lines
        process.terminate()
        process.stderr.read()
    assert process.returncode == 0


REGISTER_AGAIN = """
import asyncio, logging
from outlast import Outlast

class Told(logging.Handler):
    def emit(self, record):
        if "waiting for the store" in record.getMessage():
            limit(HARD)
            say("waiting")

logging.getLogger("outlast.worker").addHandler(Told())

async def main():
    async with Outlast(f"sqlite:///{sys.argv[1]}", store_patience=600) as app:
        worker = app._open.worker
        before = worker.id
        limit(0)
        await worker.register(instead_of=before)
        say(worker.id != before)

asyncio.run(main())
"""


def test_worker_that_was_taken_for_dead_registers_again_when_there_is_room(path):
    with Child(LIMIT + REGISTER_AGAIN, path) as child:
        assert child.line() == "waiting"
        assert child.line() == "True"
        assert child.wait() == 0
