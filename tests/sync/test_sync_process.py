"""Sync programs as processes: killed in a step, interrupted by Ctrl-C, started again."""

import signal

import pytest

from support.processes import Program, clean_environment

PROGRAM = """
import os
import sys
import threading
from outlast.sync import Outlast, receive, run, sleep, step, workflow

folder, how = sys.argv[1:]

@step
def log(line: str) -> int:
    with open(f"{folder}/log", "a") as file:
        print(line, file=file, flush=True)
    return len(line)

@step
def pause(line: str) -> str:
    with open(f"{folder}/log", "a") as file:
        print(line, file=file, flush=True)
    if not os.path.exists(f"{folder}/go"):
        threading.Event().wait(3600)
    return "went on"

@workflow
def child(word: str) -> int:
    return log(word)

@workflow
def main(first: str) -> list[str]:
    total = log(first) + run(child("child"))
    sleep(0.01)
    try:
        answer = pause("pause")
    finally:
        print("left", flush=True)
    return [str(total), answer, str(log("last"))]

store = f"sqlite:///{folder}/outlast.db"
if how == "run":
    print(run(main("first"), id="m-1", store=store), flush=True)
else:
    with Outlast(store) as app:
        started = app.start(main("first"), id="m-1")
        print("started", flush=True)
        print(started.result(), flush=True)
"""


@pytest.mark.parametrize("how", ["run", "app"])
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT], ids=["SIGKILL", "SIGINT"])
def test_sync_program_resumes_at_the_step_that_was_interrupted(tmp_path, how, sent):
    def start() -> Program:
        # The step never ends, so a drain takes all of its grace.
        env = clean_environment(OUTLAST_GRACE="1")
        return Program.python(tmp_path / "program.py", tmp_path, how, folder=tmp_path, env=env)

    def logged() -> list[str]:
        return log.read_text().split() if log.exists() else []

    log = tmp_path / "log"
    (tmp_path / "program.py").write_text(PROGRAM)
    with start() as first:
        first.wait_until(lambda: "pause" in logged())
        first.send_signal(sent)
        code = first.wait()
    interrupted = sent == signal.SIGINT and how == "run"
    # A machine that is busy for all of grace's margin leaves the end to the guard, which kills.
    assert code in {130 if interrupted else -sent, -signal.SIGKILL}, first.describe()
    (tmp_path / "go").touch()
    with start() as second:
        assert second.wait() == 0, second.describe()
    assert "['10', 'went on', '4']" in second.lines
    assert logged() == ["first", "child", "pause", "pause", "last"], (
        "only the interrupted step is repeated"
    )


def test_running_step_is_not_released_when_ctrl_c_interrupts_the_end_of_the_block(tmp_path):
    """If the run were released, another process would execute the step beside the thread."""
    program = f"""
import os, signal, threading
from outlast.engine.engine import Engine
from outlast.sync import Outlast, step, workflow

begun, ends = threading.Event(), threading.Event()
store = "sqlite:///{tmp_path}/o.db"

@step
def hangs() -> None:
    begun.set()
    ends.wait()

@workflow
def hanging() -> None:
    hangs()

class Interrupted(Engine):
    async def close(self, why: str, **left_by: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await super().close(why, **left_by)

try:
    with Outlast(store, close_timeout=0.5, signals=0) as app:
        app.start(hanging(), id="run")
        begun.wait()
        app._async._open.__class__ = Interrupted
except KeyboardInterrupt:
    with Outlast(store, signals=0) as other:
        print([run.status for run in other.runs()], flush=True)
os._exit(0)
"""
    with Program.python("-c", program, folder=tmp_path) as process:
        assert process.wait() == 0, process.describe()
    assert process.output == "['running']\n"
