"""`crash_processes` pulls the plug at every write, also at those that the loop makes itself."""

import json
import subprocess
import sys

import pytest

from outlast.store.sqlite.store import SQLiteStore
from outlast.store.verbs import Enlist
from outlast.testing.crash import Crash, Plug

FILE = """
from outlast import step, workflow

@step
async def one(n: int) -> int:
    return n

@workflow
async def count() -> int:
    return sum([await one(n) for n in range(10)])
"""


def test_a_process_that_is_to_die_at_the_record_of_a_step_dies_there(tmp_path):
    file = tmp_path / "counting.py"
    file.write_text(FILE)

    def live(at: int) -> subprocess.CompletedProcess:
        life = [
            sys.executable,
            "-m",
            "outlast.testing.crash_process",
            tmp_path / "crash.db",
            str(at),
            "after",
        ]
        return subprocess.run(
            [*life, f"{file}:count"], capture_output=True, text=True, timeout=60, check=False
        )

    assert live(9).returncode == -9, "there are ten steps: the ninth write is one of theirs"
    assert json.loads(live(0).stdout) == {"result": 45}


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_plug_is_pulled_at_a_write_on_the_loop_as_at_any_other(when):
    store, pulled = SQLiteStore(None), []
    plug = Plug(store, 2, when, lambda: pulled.append(1))
    store.open()
    plug.commit([Enlist("first", "host", 1, 30.0)])
    with pytest.raises(Crash):
        plug.try_commit([Enlist("second", "host", 1, 30.0)])
    assert pulled == [1]
    assert len(store.workers()) == (1 if when == "before" else 2)
    store.close()
