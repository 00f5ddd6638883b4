"""`crash_processes` kills the process at every write, including the writes of the event loop itself."""

import json

import pytest

from outlast.store.commands import RegisterWorker
from outlast.store.sqlite.store import SQLiteStore
from outlast.testing.crash_points import Crash, CrashingStore
from support.processes import Program

FILE = """
from outlast import step, workflow

@step
async def one(n: int) -> int:
    return n

@workflow
async def count() -> int:
    return sum([await one(n) for n in range(10)])
"""


def test_process_dies_at_the_requested_write(tmp_path):
    file = tmp_path / "counting.py"
    file.write_text(FILE)

    def execute(at: int) -> tuple[int, str]:
        words = [
            "-m",
            "outlast.testing.crash_process",
            tmp_path / "crash.db",
            at,
            "after",
            f"{file}:count",
        ]
        with Program.python(*words, folder=tmp_path) as program:
            return program.wait(), program.output

    assert execute(9)[0] == -9, "the ninth write is the record of one of the ten steps"
    assert json.loads(execute(0)[1]) == {"result": 45}


@pytest.mark.parametrize("when", ["before", "after"])
def test_plug_is_pulled_at_a_write_of_the_event_loop(when):
    store, pulled = SQLiteStore(None), []
    plug = CrashingStore(store, 2, when, lambda: pulled.append(1))
    store.open()
    plug.commit([RegisterWorker("first", "host", 1, 30.0)])
    with pytest.raises(Crash):
        plug.try_commit([RegisterWorker("second", "host", 1, 30.0)])
    assert pulled == [1]
    assert len(store.workers()) == (1 if when == "before" else 2)
    store.close()
