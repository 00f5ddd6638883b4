"""Run `outlast` commands as processes, and give in-process commands a virtual clock."""

import sys
from collections.abc import Callable
from pathlib import Path

from support.processes import Program, clean_environment
from support.waiting import wait_until

SHORT_STEPS = {
    "OUTLAST_GRACE": "60", "OUTLAST_CHECKPOINT_RESERVE": "50", "OUTLAST_EXIT_RESERVE": "9.6",
}  # fmt: skip
"""A drain in which steps have a tenth of a second, and everything after them has a minute."""


class Command(Program):
    """A process of `outlast WORDS`."""

    def __init__(self, folder: Path, *words: object, **env: str) -> None:
        environ = clean_environment(PYTHONWARNINGS="error", **env)
        super().__init__(
            [sys.executable, "-W", "error", "-m", "outlast", *words], folder, env=environ
        )

    @property
    def error_lines(self) -> list[str]:
        """The complete lines of stderr so far."""
        return [
            line.rstrip("\n")
            for line in self.errors.splitlines(keepends=True)
            if line.endswith("\n")
        ]

    def wait_for_error_line(self, number: int = 0) -> str:
        return self.wait_until(lambda: self.error_lines[number:])[0]

    def end_by(self, number: int) -> int:
        """Send a signal and return the exit code."""
        self.send_signal(number)
        code = self.wait()
        assert "Traceback" not in self.errors
        return code


class Worker(Command):
    """A process of `outlast worker` that has begun to work."""

    def __init__(self, folder: Path, *words: object, **env: str) -> None:
        fast = {"OUTLAST_HEARTBEAT": "0.05", "OUTLAST_RAMP": "0", **SHORT_STEPS, **env}
        super().__init__(folder, "worker", *(words or ("agent.py",)), **fast)
        self.first = self.wait_until(lambda: self.error_lines)[0]


class CommandClock:
    """The `time` of a module of the command line: sleeping takes no time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._later: list[tuple[float, Callable[[], object]]] = []

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Do this when the command has slept for so long."""
        self._later.append((self.now + seconds, action))

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        due = [action for when, action in self._later if when <= self.now]
        self._later = [(when, action) for when, action in self._later if when > self.now]
        for action in due:
            action()


def wait_for_file(path: Path) -> None:
    wait_until(path.exists, f"there is no {path}")
