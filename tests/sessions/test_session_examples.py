"""The examples of sessions and checkpoints, with real kills: of a replica that thinks, of all replicas, of a script."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from outlast.store.address import store_at

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE = 60.0


class Replicas:
    """Processes that serve, and what they say."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self.store, self.processes = folder, store, []
        self.environ = {**os.environ, "OUTLAST_STORE": store}

    def start(self) -> None:
        said = (self.folder / f"replica-{len(self.processes)}.txt").open("w")
        command = [sys.executable, "-W", "error", EXAMPLES / "chat.py", "serve"]
        with said:
            process = subprocess.Popen(command, cwd=self.folder, stdout=said, env=self.environ)
        self.processes.append(process)
        self.until(lambda: f"{process.pid} serves" in self.said())

    def said(self) -> str:
        return "".join(file.read_text() for file in sorted(self.folder.glob("replica-*.txt")))

    def until(self, happened) -> None:
        deadline = time.monotonic() + PATIENCE
        while not happened():
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.01)

    def thinker(self, about: str) -> int:
        """The pid of the replica that thinks about it."""
        self.until(lambda: about in self.said())
        (line,) = [line for line in self.said().splitlines() if line.endswith(f"thinks about: {about}")]
        return int(line.split()[0])

    def say(self, *words: str) -> subprocess.Popen:
        command = [sys.executable, "-W", "error", EXAMPLES / "chat.py", "say", *words]
        return subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True, env=self.environ)

    def ask(self, *words: str) -> str:
        out, _ = (asked := self.say(*words)).communicate(timeout=PATIENCE)
        assert asked.returncode == 0
        return out.strip()

    def kill(self, number: int = signal.SIGKILL) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)
        for process in self.processes:
            process.wait(PATIENCE)

    def turns(self, user: str) -> list[str]:
        store = store_at(self.store)
        store.open()
        try:
            return [json.loads(item)["text"] for item in store.items(f"chat:{user}", "turns")]
        finally:
            store.close()


@pytest.fixture
def replicas(tmp_path, place):
    replicas = Replicas(tmp_path, place)
    yield replicas
    replicas.kill()


def test_the_chat_goes_on_when_the_replica_that_thinks_is_killed_and_when_all_are(replicas):
    replicas.start()
    replicas.start()
    assert replicas.ask("ada", "my name is Ada") == "Hello Ada, that makes 1 turns."
    asked = replicas.say("ada", "what is my name?", "message-2")
    os.kill(replicas.thinker("what is my name?"), signal.SIGKILL)
    out, _ = asked.communicate(timeout=PATIENCE)
    assert out.strip() == "Your name is Ada."
    expected = [
        "my name is Ada", "Hello Ada, that makes 1 turns.", "what is my name?", "Your name is Ada."
    ]  # fmt: skip
    assert replicas.turns("ada") == expected
    replicas.kill()
    replicas.start()
    assert replicas.ask("ada", "what did I say first?") == "You said: my name is Ada"
    assert (
        replicas.ask("ada", "what is my name?", "message-2") == "Your name is Ada."
    )  # the same message: the same run
    assert replicas.turns("ada") == [*expected, "what did I say first?", "You said: my name is Ada"]
    assert replicas.ask("bob", "what is my name?") == "You have not told me."
    replicas.kill(signal.SIGTERM)
    assert replicas.processes[-1].returncode in (0, -signal.SIGTERM)


def test_the_script_with_a_checkpoint_goes_on_where_it_was_killed(tmp_path):
    command = [sys.executable, "-W", "error", EXAMPLES / "checkpoint.py"]
    pages = []
    for kill_after in (5, 9):
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.strip())
            if len(lines) == kill_after:
                process.kill()
        process.wait()
        process.stdout.close()
        pages.append([int(line.split()[1]) for line in lines])
    last = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=True)
    lines = last.stdout.splitlines()
    pages.append([int(line.split()[1]) for line in lines if line.startswith("page")])
    for before, after in pairwise(pages):
        assert after[0] - before[-1] in (0, 1)
    assert lines[-2:] == ["tell somebody", f"{sum(n * n for n in range(40))} of 40 pages"]
    again = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert again.stdout.splitlines() == lines[-1:]
