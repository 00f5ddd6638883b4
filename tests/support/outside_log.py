"""Read the log that step bodies of test programs write outside their store."""

from pathlib import Path
from typing import NamedTuple


class LogLine(NamedTuple):
    """A line that a step's body wrote."""

    when: str
    pid: int
    run: str = ""
    key: str = ""
    attempt: int = 0
    fence: int = 0


class OutsideLog:
    """The log of one folder, read while it grows."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log"
        self.lines: list[LogLine] = []
        self._read = 0

    def update(self) -> list[LogLine]:
        """Read what is new and return all lines so far."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                new = file.read()
        except FileNotFoundError:
            return self.lines
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        for text in whole.decode().splitlines():
            when, pid, *rest = text.split("\t")
            self.lines.append(LogLine(when, int(pid), *rest[:2], *map(int, rest[2:])))
        return self.lines

    def of(self, pid: int) -> list[LogLine]:
        return [line for line in self.update() if line.pid == pid]
