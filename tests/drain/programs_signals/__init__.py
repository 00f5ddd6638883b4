"""Programs that get real signals, and what the tests need to execute and to end them."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spawned import spawn

HERE = Path(__file__).parent
WAIT_SECONDS = 30.0
"""For what must come about, however noisy the machine."""


class Executing:
    """A program with its output in a file. Its first line is `ready`."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self.out = folder / "out"
        with self.out.open("wb") as out:
            self.process = spawn(command, stdout=out, stderr=out, cwd=folder)
        self.pid = self.process.pid

    @property
    def said(self) -> list[str]:
        return self.out.read_text().splitlines()

    def until(self, line: str, times: int = 1) -> None:
        """Until it has said something that starts so."""
        give_up = time.monotonic() + WAIT_SECONDS
        while len([said for said in self.said if said.startswith(line)]) < times:
            assert time.monotonic() < give_up and self.process.poll() is None, (
                line,
                self.process.poll(),
                self.said,
            )
            time.sleep(0.005)

    def word(self, start: str) -> str:
        """What follows this word on its line."""
        self.until(start + " ")
        return next(said for said in self.said if said.startswith(start + " ")).partition(" ")[2]

    def send(self, number: int) -> float:
        sent = time.monotonic()
        self.process.send_signal(number)
        return sent

    def ended(self) -> int:
        return self.process.wait(WAIT_SECONDS)

    def begun(self) -> list[str]:
        return [said.split()[1] for said in self.said if said.startswith("begin ")]


@contextmanager
def executing(folder: Path, name: str, *args: object, before: tuple[str, ...] = ()) -> Iterator[Executing]:
    program = Executing(folder, [*before, sys.executable, "-u", str(HERE / name), *map(str, args)])
    try:
        program.until("ready")
        yield program
    finally:
        with suppress(ProcessLookupError):
            program.process.send_signal(signal.SIGKILL)
        program.process.wait(WAIT_SECONDS)


def alive(pid: int) -> bool:
    """Whether it executes: a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pid: int) -> None:
    give_up = time.monotonic() + WAIT_SECONDS
    while alive(pid):
        assert time.monotonic() < give_up, f"{pid} still executes"
        time.sleep(0.005)
