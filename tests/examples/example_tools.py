"""Start programs of `examples/`, end them at a line they print, and start them again."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.cli import Answer, answer_in
from support.hurried import hurried
from support.processes import STOPPING, is_stopped
from support.spawned import Spawned, spawn
from support.waiting import WAIT_SECONDS, wait_until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PYTHON = (sys.executable, "-W", "error")
FASTER = {
    "model_server.py": 2.5,
    "chat.py": 3.0,
    "fleet.py": 2.0,
    "service.py": 2.0,
    "consumer.py": 3.0,
}
"""How many times shorter the pauses are, if not ten times: a process that does not stop at a line must still be in
the middle of its work when it is ended."""


def write_hurried_examples(folder: Path) -> None:
    """Write the examples with shorter pauses, and nothing else changed."""
    folder.mkdir()
    for file in EXAMPLES.glob("*.py"):
        text = file.read_text()
        given = hurried(text, FASTER.get(file.name, 10))
        assert given != text or "sleep" not in text, f"{file.name}: no pause is shortened"
        (folder / file.name).write_text(given)


class ExampleProcess:
    """One process of an example. Its output goes to a file, so nothing is lost when it dies."""

    def __init__(
        self,
        command: list[object],
        folder: Path,
        number: int,
        env: dict[str, str],
        *,
        at_once: bool,
    ) -> None:
        self._out, self._err = folder / f"process-{number}.out", folder / f"process-{number}.err"
        self.command = [str(word) for word in command]
        self.saved = ""
        """What of its work was in the store before it was ended, where a test has looked."""
        begin: Callable[..., Spawned | subprocess.Popen[bytes]] = (
            spawn if at_once else subprocess.Popen
        )
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = begin(
                self.command, cwd=folder, env={**os.environ, "PYTHONWARNINGS": "error", **env}, stdout=out, stderr=err
            )  # fmt: skip

    @property
    def lines(self) -> list[str]:
        """What it has printed, whole lines only: the last one may be cut."""
        return self._out.read_text().rpartition("\n")[0].splitlines()

    @property
    def errors(self) -> str:
        return self._err.read_text()

    def like(self, pattern: str) -> list[str]:
        return [line for line in self.lines if re.search(pattern, line)]

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def describe(self) -> str:
        return f"{self.command}: {self.lines[-5:]}\n{self.errors[-3000:]}"

    def until(self, pattern: str, times: int = 1) -> str:
        """Wait for the `times`-th line like this, and return it."""
        wait_until(lambda: len(self.like(pattern)) >= times or self.has_ended, self.describe)
        found = self.like(pattern)
        assert len(found) >= times, f"it ended without {pattern!r}: {self.describe()}"
        return found[times - 1]

    def until_stopped(self) -> None:
        """Wait until it has printed the line at which it stops."""
        wait_until(lambda: self.has_ended or is_stopped(self.process.pid), self.describe)
        assert not self.has_ended, f"it ended too early: {self.describe()}"

    def end(self, number: int = signal.SIGKILL) -> int:
        if not self.has_ended:
            self.process.send_signal(number)
            self.process.send_signal(signal.SIGCONT)  # it may have stopped
        return self.wait()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep it from doing anything during the block."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def wait(self) -> int:
        try:
            return self.process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"it does not end: {self.describe()}") from None


class Stage:
    """A folder in which programs live and die, with what they leave there.

    Its folder `examples` has the examples with shorter pauses.
    """

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.examples = folder / "examples"
        write_hurried_examples(self.examples)
        # What has arrived of a stream is saved more often, as it arrives faster.
        self.env: dict[str, str] = {"OUTLAST_PROGRESS_INTERVAL": "0.05"}
        self.processes: list[ExampleProcess] = []
        self._ports: list[socket.socket] = []

    def start(
        self, example: str, *args: object, stop: tuple[str, int] | None = None, **env: str
    ) -> ExampleProcess:
        """Start an example. With `stop` it stops when it has printed the n-th line like a pattern."""
        before = () if stop is None else (STOPPING, *stop)
        return self._live([*PYTHON, *before, self.examples / example, *args], env, at_once=True)

    def outlast(self, *args: object, **env: str) -> ExampleProcess:
        return self._live([*PYTHON, "-m", "outlast", *args], env, at_once=True)

    def answer(self, *words: object) -> Answer:
        """Of a command that only looks or tells, typed in the folder; no process is needed for it."""
        answer = answer_in(self.folder, words, self._capsys, **self.env)
        assert answer.code == 0, answer
        return answer

    def execute(self, *command: object, **env: str) -> ExampleProcess:
        """Start a command, which a Python program need not be."""
        return self._live(list(command), env, at_once=command[0] == sys.executable)

    def _live(self, command: list[object], env: dict[str, str], *, at_once: bool) -> ExampleProcess:
        process = ExampleProcess(
            command, self.folder, len(self.processes), {**self.env, **env}, at_once=at_once
        )
        self.processes.append(process)
        return process

    def said(self, process: ExampleProcess) -> list[str]:
        """What a program printed that comes to its end."""
        code = process.wait()
        assert code == 0, f"exit code {code}: {process.lines[-5:]}\n{process.errors}"
        return process.lines

    def ledger(self, name: str) -> list[str]:
        """Return what happened outside: the lines of a file that stands for another server."""
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []

    def hold_port(self) -> int:
        """Return a port that no other process is given before a program of this stage listens on it.

        A program that binds with SO_REUSEADDR gets it, although a socket that does not listen has it too.
        """
        holder = socket.socket()
        self._ports.append(holder)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        return int(holder.getsockname()[1])

    def close(self) -> None:
        for process in self.processes:
            process.end()
        for holder in self._ports:
            holder.close()
