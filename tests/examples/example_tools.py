"""Programs of `examples/` as processes: started, killed at a line they print, started again in the same folder."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from command import Answer, answer_in
from spawned import Spawned, spawn

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PATIENCE = 60.0
PYTHON = (sys.executable, "-W", "error")


def until(true: Callable[[], object], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, what()
        time.sleep(0.005)


class Life:
    """One process. What it prints is in a file, so that nothing of it is lost with whoever dies."""

    def __init__(
        self, command: list[object], folder: Path, number: int, env: dict[str, str], *, at_once: bool
    ) -> None:
        self._out, self._err = folder / f"life-{number}.out", folder / f"life-{number}.err"
        self.saved = ""
        """What of its work was in the store before it was ended, where a test has looked."""
        begin: Callable[..., Spawned | subprocess.Popen[bytes]] = spawn if at_once else subprocess.Popen
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = begin(
                [str(word) for word in command], cwd=folder, env={**os.environ, "PYTHONWARNINGS": "error", **env}, stdout=out, stderr=err
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

    def until(self, pattern: str, times: int = 1) -> str:
        """The line that is the `times`th like this, as soon as it is printed."""

        def ended() -> bool:
            return self.process.poll() is not None

        until(
            lambda: len(self.like(pattern)) >= times or ended(),
            lambda: f"never {pattern!r}: {self.lines[-5:]}\n{self.errors}",
        )
        found = self.like(pattern)
        assert len(found) >= times, f"it ended without {pattern!r}: {self.lines[-5:]}\n{self.errors}"
        return found[times - 1]

    def end(self, number: int = signal.SIGKILL) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"it did not end: {self.lines[-5:]}\n{self.errors}") from None


class Stage:
    """A folder in which programs live and die, with what they leave there."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.env: dict[str, str] = {}
        self.lives: list[Life] = []

    def start(self, example: str, *args: object, **env: str) -> Life:
        return self._live([*PYTHON, EXAMPLES / example, *args], env, at_once=True)

    def outlast(self, *args: object, **env: str) -> Life:
        return self._live([*PYTHON, "-m", "outlast", *args], env, at_once=True)

    def answer(self, *words: object) -> Answer:
        """Of a command that only looks or tells, typed in the folder; no process is needed for it."""
        answer = answer_in(self.folder, words, self._capsys, **self.env)
        assert answer.code == 0, answer
        return answer

    def execute(self, *command: object, **env: str) -> Life:
        """As it is typed, whatever it is."""
        return self._live(list(command), env, at_once=False)

    def _live(self, command: list[object], env: dict[str, str], *, at_once: bool) -> Life:
        life = Life(command, self.folder, len(self.lives), {**self.env, **env}, at_once=at_once)
        self.lives.append(life)
        return life

    def said(self, life: Life) -> list[str]:
        """What a program printed that comes to its end."""
        code = life.wait()
        assert code == 0, f"exit code {code}: {life.lines[-5:]}\n{life.errors}"
        return life.lines

    def ledger(self, name: str) -> list[str]:
        """What happened outside: the lines of a file that stands for somebody else's server."""
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []

    def close(self) -> None:
        for life in self.lives:
            life.end()
