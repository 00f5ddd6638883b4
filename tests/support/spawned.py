"""Processes that begin at once: `spawn` is `subprocess.Popen` for a Python program, without the third of a second that it takes to import Outlast.

They are forks of a process that has imported it (`zygote.py`, one for each process of pytest's): real processes, with a pid, a death and an exit
code of their own. A program that imports a framework is the fork of another one, which has that framework too. What is tried about the beginning of a process itself is started with `subprocess`.

Two things are not as in `python PROGRAM`: forks of one process hash texts alike, so that a set has the same order in every life (of those that
`crash_processes` kills it has not); and what the zygote has imported is there, also where a program forgot to import it.
"""

import atexit
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

FRAMEWORKS = {
    "agents": ("agents.mcp", "outlast.integrations.openai_agents"),
    "claude_agent_sdk": ("claude_agent_sdk", "outlast.integrations.claude_agent"),
    "fastapi": ("fastapi",),
    "langgraph": ("langgraph.graph", "langgraph.types", "outlast.integrations.langgraph"),
    "pydantic_ai": ("pydantic_ai", "outlast.integrations.pydantic_ai"),
}
"""What is imported once for all programs that import a framework: each takes about a second of CPU time."""
_IMPORTED = re.compile(rf"^\s*(?:from|import) ({'|'.join(FRAMEWORKS)})\b", re.MULTILINE)


class Zygote:
    """The process that forks. It ends when this one does."""

    def __init__(self, parent: "Zygote | None" = None, modules: Sequence[str] = ()) -> None:
        """With a `parent` it is a fork of that one which imports further `modules`."""
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests, self._turn, self._asked = here, threading.Lock(), 0
        self._process: subprocess.Popen[bytes] | None = None
        with there:
            if parent is not None:
                parent.ask({"import": modules}, [there.fileno()])
            else:
                program, null = Path(__file__).with_name("zygote.py"), subprocess.DEVNULL
                command = [sys.executable, str(program), str(there.fileno())]
                self._process = subprocess.Popen(
                    command, pass_fds=[there.fileno()], stdin=null, stdout=null
                )
        atexit.register(self.end)

    def end(self) -> None:
        self._requests.close()
        if self._process is not None:
            self._process.wait(30)

    def ask(self, request: dict[str, Any], fds: Sequence[int] = ()) -> int:
        with self._turn:
            self._asked += 1
            number = self._asked
            socket.send_fds(
                self._requests, [json.dumps({"number": number, **request}).encode()], fds
            )
            while answer := self._requests.recv(100):
                answered, value = json.loads(answer)
                if answered == number:  # and not one whom a time-out kept from taking it
                    return int(value)
        raise AssertionError("the zygote ended: stderr has the reason")


@cache
def zygote(framework: str | None) -> Zygote:
    """Return the process that forks programs of this framework, or of none."""
    return Zygote() if framework is None else Zygote(zygote(None), FRAMEWORKS[framework])


def framework_of(words: Sequence[str], folder: Path | str) -> str | None:
    """Return the framework that a program of this command line imports."""
    for file in (Path(folder, word) for word in words if word.endswith(".py")):
        if file.is_file() and (found := _IMPORTED.search(file.read_text())):
            return found[1]
    return None


class Spawned:
    """Act like `subprocess.Popen`, as far as the tests need it. A process that has ended stays a zombie until its exit code is read."""

    def __init__(self, zygote: Zygote, request: dict[str, Any], fds: Sequence[int]) -> None:
        self._zygote, self._turn = zygote, threading.Lock()
        self.pid = zygote.ask(request, fds)
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None
        self._pidfd = os.pidfd_open(self.pid)
        """Readable when it has ended."""

    def poll(self) -> int | None:
        return self._code(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def _code(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            end = select.poll()
            end.register(self._pidfd, select.POLLIN)
            if end.poll(None if timeout is None else timeout * 1000):
                self._reap()
        return self.returncode

    def _reap(self) -> None:
        with self._turn:
            if self.returncode is None:
                self.returncode = os.waitstatus_to_exitcode(self._zygote.ask({"reap": self.pid}))

    def send_signal(self, number: int) -> None:
        with self._turn:
            if self.returncode is None:
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        os.close(self._pidfd)


def spawn(
    command: Sequence[object], *, stdout: Any, stderr: Any = None, **options: Any
) -> Spawned | subprocess.Popen[Any]:
    """`[sys.executable, *flags, FILE, *args]`, or `-c` or `-m` in place of the file; any other command is left to `subprocess`, and so is every one where
    a process has no descriptor (macOS). There is no stdin.

    With `subprocess.PIPE` as its stdout, `.stdout` is its text.
    """
    words, flags, buffered = [str(word) for word in command], [], True
    if words[0] != sys.executable or not hasattr(os, "pidfd_open"):
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, text=True, **options
        )
    at = 1
    while words[at] in ("-W", "-u"):
        if words[at] == "-u":
            buffered, at = False, at + 1
        else:
            flags, at = [*flags, *words[at : at + 2]], at + 2
    way, at = (words[at], at + 1) if words[at] in ("-c", "-m") else ("file", at)
    return _spawned(
        flags, [way, words[at], words[at + 1 :]], stdout, stderr, unbuffered=not buffered, **options
    )


def _spawned(
    flags: list[str],
    program: list[Any],
    stdout: Any,
    stderr: Any,
    *,
    unbuffered: bool,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
) -> Spawned:
    folder = cwd or Path.cwd()
    request = {
        "program": program,
        "cwd": str(folder),
        "env": dict(os.environ if env is None else env),
        "unbuffered": unbuffered,
        "warnings": flags[1::2],
    }
    reading, writing = os.pipe() if stdout == subprocess.PIPE else (None, None)
    out = stdout if writing is None else writing
    err = out if stderr == subprocess.STDOUT else sys.stderr if stderr is None else stderr
    with Path(os.devnull).open("rb") as null:
        fds = [file if isinstance(file, int) else file.fileno() for file in (null, out, err)]
        prepared = zygote(framework_of([program[1], *program[2]], folder))
        spawned = Spawned(prepared, request, fds)
    if reading is not None:
        os.close(fds[1])
        spawned.stdout = os.fdopen(reading)
    return spawned
