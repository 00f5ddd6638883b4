"""Start programs that get real signals, and read what they said."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.processes import Program, cpu_seconds
from support.waiting import WAIT_SECONDS

HERE = Path(__file__).parent
AS_INIT = ("unshare", "-Urpf", "--kill-child", "--mount-proc")
BUSY_SECONDS = 0.1
"""The CPU time of some work. What a program does between its word `ready` and its work takes much less."""
LONG = "OUTLAST_TEST_KILLS" in os.environ
"""Whether this is `make soak`, which tries every combination."""


class Executing(Program):
    """A program that says words, one per line of its output. The first one is `ready`."""

    @property
    def said(self) -> list[str]:
        return self.lines

    def wait_for(self, start: str, times: int = 1) -> None:
        self.wait_for_line(start, times=times)

    def word(self, start: str) -> str:
        """Return what follows this word on its line."""
        return self.wait_for_line(start + " ").partition(" ")[2]

    def begun(self) -> list[str]:
        """Return the signals that have begun a drain."""
        return [said.split()[1] for said in self.said if said.startswith("begin ")]

    def wait_until_busy(self, pid: int | None = None) -> None:
        """Wait until the program, or the process `pid`, does the work that follows `ready`."""
        pid = pid or self.pid
        begun = cpu_seconds(pid)
        self.wait_until(lambda: cpu_seconds(pid) - begun > BUSY_SECONDS)

    @property
    def init(self) -> int:
        """Return the pid, outside of its namespace, of the process that is PID 1 in it."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return int(children.read_text().split()[0])

    def signal_init(self, number: int) -> None:
        """Send a signal to the process that is PID 1 in its namespace."""
        os.kill(self.init, number)


@contextmanager
def executing(
    folder: Path, name: str, *args: object, before: tuple[str, ...] = (), fork: bool = True
) -> Iterator[Executing]:
    with Executing(
        [*before, sys.executable, "-u", HERE / name, *args], folder, fork=fork
    ) as program:
        program.wait_for("ready")
        yield program


@pytest.fixture(scope="module")
def _init() -> None:
    """Skip where the kernel refuses a pid namespace."""
    try:
        done = subprocess.run(
            [*AS_INIT, "true"], capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
        )
    except FileNotFoundError:
        pytest.skip("no `unshare` here: nothing was tested as PID 1")
    if done.returncode:
        pytest.skip(
            f"no pid namespace may be made here, nothing was tested as PID 1: {done.stderr.strip()}"
        )
