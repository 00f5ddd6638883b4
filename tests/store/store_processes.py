"""Real processes that use a store and talk to the test line by line."""

import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from support.spawned import spawn
from support.waiting import WAIT_SECONDS

PRELUDE = """
import os, sys, time, signal
from outlast.store.sqlite.store import SQLiteStore
from outlast.store.commands import *
sys.stdin = open(os.environ.pop("TEST_STDIN"))
def say(*words): print(*words, flush=True)
def submit(id): return Submit(id, "flow", "[]", id, "seed")
"""


class Child:
    """A process that executes `script`. Read what it prints with `line()`, write it a line with `tell()`.

    `wrap` is a command that starts the interpreter, such as strace. Without one the process is forked
    from a warm interpreter. Its standard input is a named pipe, which ends when this process does.
    """

    def __init__(
        self,
        script: str,
        *args: object,
        wrap: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="child-"))
        stdin = self._folder / "stdin"
        os.mkfifo(stdin)
        self._stdin = os.open(stdin, os.O_RDWR)
        self.process = spawn(
            [*wrap, sys.executable, "-c", PRELUDE + script, *map(str, args)],
            stdout=subprocess.PIPE,
            env={**os.environ, **(env or {}), "TEST_STDIN": str(stdin)},
        )
        self.pid = self.process.pid
        self._buffer = b""

    def line(self) -> str:
        """Wait for the next line that it prints, and return it."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + WAIT_SECONDS
        while b"\n" not in self._buffer:
            left = max(deadline - time.monotonic(), 0)
            if not select.select([self.process.stdout], [], [], left)[0]:
                raise AssertionError(f"the child printed nothing for {WAIT_SECONDS:g} s")
            read = os.read(self.process.stdout.fileno(), 65536)
            if not read:
                raise AssertionError(f"the child ended with {self.process.wait(WAIT_SECONDS)}")
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def tell(self, text: str = "") -> None:
        """Write a line to its standard input."""
        os.write(self._stdin, text.encode() + b"\n")

    def kill(self) -> None:
        """Send SIGKILL and wait for its end."""
        self.process.kill()
        self.wait()

    def wait(self) -> int:
        """Wait for its end and return the exit code."""
        return self.process.wait(WAIT_SECONDS)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
        os.close(self._stdin)
        assert self.process.stdout is not None
        self.process.stdout.close()
        shutil.rmtree(self._folder)
