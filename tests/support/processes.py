"""Start, watch and end the processes of a test.

`Program` is the one way to run a program beside a test. Its output goes to files, so a full pipe can
never block it, and every wait fails with that output.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from support.spawned import spawn
from support.waiting import PAUSE_SECONDS, WAIT_SECONDS, wait_until

T = TypeVar("T")

STOPPING = Path(__file__).with_name("stopping.py")
"""`python STOPPING PATTERN TIMES FILE ARGS` stops itself when it has printed a line."""
OUTPUT_SHOWN = 3000
"""Characters of a program's output in the message of a failed wait."""


def clean_environment(**variables: str) -> dict[str, str]:
    """Return this process's environment without Outlast's settings, plus `variables`."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")
    }
    return {**inherited, **variables}


class Program:
    """A running process. Use it as a context manager: what still lives at the end is killed by its pid.

    `command` begins with the program. `Program.python` starts one with this interpreter, without the
    time that it takes to import Outlast.
    """

    def __init__(
        self,
        command: Sequence[object],
        folder: Path,
        *,
        env: Mapping[str, str] | None = None,
        fork: bool = True,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.out = Path(tempfile.mkstemp(prefix="out-", dir=folder)[1])
        self.err = self.out.with_name(self.out.name.replace("out-", "err-"))
        words = [str(word) for word in command]
        environ = clean_environment() if env is None else dict(env)
        with self.out.open("wb") as out, self.err.open("wb") as err:
            if fork:
                self.process = spawn(words, stdout=out, stderr=err, cwd=folder, env=environ)
            else:
                self.process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder, env=environ
                )
        self.pid = self.process.pid

    @classmethod
    def python(cls, *arguments: object, folder: Path, env: Mapping[str, str] | None = None) -> Self:
        """Start `python ARGUMENTS` with warnings as errors and unbuffered output."""
        return cls([sys.executable, "-W", "error", "-u", *arguments], folder, env=env)

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def output(self) -> str:
        """What it has written to stdout so far."""
        return self.out.read_text(errors="replace")

    @property
    def errors(self) -> str:
        """What it has written to stderr so far."""
        return self.err.read_text(errors="replace")

    @property
    def lines(self) -> list[str]:
        """The complete lines of stdout so far."""
        return [
            line.rstrip("\n")
            for line in self.output.splitlines(keepends=True)
            if line.endswith("\n")
        ]

    def describe(self) -> str:
        """Return what the message of a failed assertion should show."""
        return (
            f"process {self.pid} (exit code {self.process.poll()})\n"
            f"stdout: {self.output[-OUTPUT_SHOWN:]}\nstderr: {self.errors[-OUTPUT_SHOWN:]}"
        )

    def wait_until(
        self,
        condition: Callable[[], T],
        *,
        timeout: float = WAIT_SECONDS,
        pause: float = PAUSE_SECONDS,
    ) -> T:
        """Return the first true result of `condition`. Fail at once if the process ends before."""

        def check() -> T:
            ended = self.has_ended
            result = condition()
            assert result or not ended, f"it ended too early: {self.describe()}"
            return result

        return wait_until(check, self.describe, timeout=timeout, pause=pause)

    def wait_for_line(self, start: str, *, times: int = 1) -> str:
        """Wait until this many lines of stdout start with `start`, and return the last of them."""

        def found() -> list[str]:
            lines = [line for line in self.lines if line.startswith(start)]
            return lines if len(lines) >= times else []

        return self.wait_until(found)[-1]

    def wait(self, timeout: float = WAIT_SECONDS) -> int:
        """Wait for its end and return the exit code (minus the number of the signal that ended it)."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end: {self.describe()}") from None

    def send_signal(self, number: int) -> None:
        self.process.send_signal(number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def pause(self) -> None:
        """Send SIGSTOP and wait until every thread has stopped."""
        self.send_signal(signal.SIGSTOP)
        wait_until(lambda: self.has_ended or is_stopped(self.pid), self.describe)

    def wait_until_stopped(self) -> None:
        """Wait until it has stopped itself, as a program under STOPPING does."""
        self.wait_until(lambda: is_stopped(self.pid))

    def resume(self) -> None:
        self.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL unless it has ended, and wait until it is gone."""
        if not self.has_ended:
            self.process.kill()
        self.process.wait(WAIT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_running(pid: int) -> bool:
    """Return whether a process executes. A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(pid: int) -> None:
    """Wait until a process that another process started has ended."""
    wait_until(lambda: not is_running(pid), f"process {pid} is still running")


def kill_quietly(pid: int) -> None:
    """Send SIGKILL to a process that may have ended already."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def is_stopped(pid: int) -> bool:
    """Return whether SIGSTOP has stopped a process."""
    return " (stopped)" in Path(f"/proc/{pid}/status").read_text()
