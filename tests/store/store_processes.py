"""Real processes that use a store, spoken to line by line."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable

PRELUDE = """
import os, sys, time, signal
from outlast.store.sqlite.store import SQLiteStore
from outlast.store.verbs import *
def say(*words): print(*words, flush=True)
def submit(id): return Submit(id, "flow", "[]", id, "seed")
"""

WAIT_SECONDS = 30.0


class Child:
    """A process that executes `script`. Its `say(...)` is read with `line()`; `tell()` writes it a line."""

    def __init__(
        self, script: str, *args: object, wrap: tuple[str, ...] = (), env: dict[str, str] | None = None
    ) -> None:
        self.process = subprocess.Popen(
            [*wrap, sys.executable, "-c", PRELUDE + script, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **(env or {})},
        )
        self.pid = self.process.pid
        self._buffer = b""

    def line(self, timeout: float = WAIT_SECONDS) -> str:
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                raise AssertionError(f"the child said nothing for {timeout} s")
            read = os.read(self.process.stdout.fileno(), 65536)
            if not read:
                raise AssertionError(f"the child ended with {self.process.wait()}")
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def tell(self, text: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def wait(self, timeout: float = WAIT_SECONDS) -> int:
        return self.process.wait(timeout)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue


def until(condition: Callable[[], object], timeout: float = WAIT_SECONDS) -> None:
    """Wait for a condition, not for a time."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.002)
