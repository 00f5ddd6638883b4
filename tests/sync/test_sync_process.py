"""Sync programs as processes: killed in the middle, interrupted by Ctrl-C, started again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import os
import sys
import time
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
    if os.path.exists(f"{folder}/go"):
        return "went on"
    time.sleep(60)
    return "slept"

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


@pytest.fixture
def program(tmp_path):
    path, started = tmp_path / "program.py", []
    path.write_text(PROGRAM)

    def start(how):
        command = [sys.executable, str(path), str(tmp_path), how]
        env = os.environ | {"OUTLAST_GRACE": "3"}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def lines(folder: Path) -> list[str]:
    log = folder / "log"
    return log.read_text().split() if log.exists() else []


@pytest.mark.parametrize("how", ["run", "app"])
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT], ids=["kill -9", "Ctrl-C"])
def test_a_program_ended_in_a_step_goes_on_from_its_last_recorded_one(program, tmp_path, until, how, sent):
    first = program(how)
    until(lambda: "pause" in lines(tmp_path))
    started = time.monotonic()
    first.send_signal(sent)
    _, stderr = first.communicate(timeout=30)
    assert time.monotonic() - started < 25
    interrupted = sent == signal.SIGINT and how == "run"
    assert first.returncode == (130 if interrupted else -sent), stderr
    (tmp_path / "go").touch()
    out, stderr = program(how).communicate(timeout=30)
    assert "['10', 'went on', '4']" in out, stderr
    assert lines(tmp_path) == ["first", "child", "pause", "pause", "last"], (
        "only what was under way is redone"
    )


def test_a_run_whose_step_executes_is_kept_when_ctrl_c_comes_while_the_block_is_left(tmp_path):
    """Given back, another process would execute the step beside the thread that has not ended."""
    program = f"""
import os, signal, threading
from outlast.sync import Outlast, step, workflow

begun, ends = threading.Event(), threading.Event()
store = "sqlite:///{tmp_path}/o.db"

@step
def hangs() -> None:
    begun.set()
    ends.wait(30)

@workflow
def hanging() -> None:
    hangs()

def interrupt(house) -> None:
    while not house.closing:
        pass
    os.kill(os.getpid(), signal.SIGINT)

try:
    with Outlast(store, close_timeout=0.5, signals=0) as app:
        app.start(hanging(), id="run")
        begun.wait()
        threading.Thread(target=interrupt, args=(app._app._open,)).start()
except KeyboardInterrupt:
    with Outlast(store, signals=0) as other:
        print([run.status for run in other.runs()], flush=True)
os._exit(0)
"""
    found = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert found.stdout == "['running']\n", found.stderr
