"""Real processes, and their stores as seen from outside."""

import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from places import peek
from spawned import spawn

PROGRAMS = Path(__file__).parent / "programs"
WAIT_SECONDS = 30.0
"""For what must come about, however noisy the machine; a promise about time is asserted, not waited for."""


def until(condition: Callable[[], Any], seconds: float = WAIT_SECONDS, pause: float = 0.002) -> Any:
    """Wait for a condition, not for a time. Returns what was true."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"it did not come about in {seconds} s"
        time.sleep(pause)
    return found


def chance(what: str) -> random.Random:
    """Chance that can be had again: OUTLAST_TEST_KILL_SEED=… repeats a failure. pytest shows what is printed when a test fails."""
    seed = os.environ.get("OUTLAST_TEST_KILL_SEED") or str(random.randrange(2**32))
    print(f"{what}: OUTLAST_TEST_KILL_SEED={seed}")
    return random.Random(f"{what} {seed}")


class Program:
    """A program of `programs/`, executing. Its output goes to files, so that no pipe can block it."""

    def __init__(self, name: str, folder: Path, *args: object, env: dict[str, str] | None = None) -> None:
        self.out = Path(tempfile.mkstemp(prefix="out-", dir=folder)[1])
        self.err = self.out.with_name(self.out.name.replace("out-", "err-"))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")}
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = spawn(
                [sys.executable, "-W", "error", PROGRAMS / name, folder, *args],
                stdout=out, stderr=err, cwd=folder, env={**inherited, **(env or {})},
            )  # fmt: skip
        self.pid = self.process.pid

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and it is gone."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGSTOP, and it has stopped: every thread of it."""
        self.process.send_signal(signal.SIGSTOP)
        until(lambda: self.ended or " (stopped)" in Path(f"/proc/{self.pid}/status").read_text())

    def wait(self, seconds: float = WAIT_SECONDS) -> int:
        return self.process.wait(seconds)

    def errors(self) -> str:
        return self.err.read_text(errors="replace")

    def said(self) -> list[Any]:
        """The complete lines of its output, each a JSON value."""
        return [
            json.loads(line) for line in self.out.read_text().splitlines(keepends=True) if line.endswith("\n")
        ]

    def result(self, seconds: float = WAIT_SECONDS) -> Any:
        """Wait for its good end. Its last line."""
        assert self.wait(seconds) == 0, self.errors()
        return self.said()[-1]


class Line(NamedTuple):
    """What a step's body wrote to the outside log."""

    when: str
    pid: int
    run: str = ""
    key: str = ""
    attempt: int = 0
    fence: int = 0


class Log:
    """The outside log, read as it grows."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log"
        self.lines: list[Line] = []
        self._read = 0

    def update(self) -> list[Line]:
        """All lines so far."""
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
            self.lines.append(Line(when, int(pid), *rest[:2], *map(int, rest[2:])))
        return self.lines

    def of(self, pid: int) -> list[Line]:
        return [line for line in self.update() if line.pid == pid]


class Image(NamedTuple):
    """A store at one moment."""

    runs: dict[str, dict[str, Any]]
    journals: dict[str, list[dict[str, Any]]]
    workers: dict[str, dict[str, Any]]

    def recorded(self) -> set[tuple[str, str]]:
        """Steps whose result is in a journal: (run, key)."""
        return {(id, entry["key"]) for id, entry in self._entries("step", "inner")}

    def fences(self) -> dict[tuple[str, str], int]:
        """Under which fence each of them was recorded."""
        return {(id, entry["key"]): entry["fence"] for id, entry in self._entries("step", "inner")}

    def attempts(self) -> dict[tuple[str, str], int]:
        """The last failed attempt that was recorded, by (run, key)."""
        return {(id, entry["key"]): entry["attempt"] for id, entry in self._entries("attempt")}

    def deaths(self) -> list[tuple[str, str]]:
        """(run, worker) of every death in a journal."""
        return sorted((id, json.loads(entry["value"])["worker"]) for id, entry in self._entries("death"))

    def kinds(self, id: str) -> list[str]:
        return [entry["kind"] for entry in self.journals.get(id, [])]

    def _entries(self, *kinds: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for id, journal in self.journals.items():
            yield from ((id, entry) for entry in journal if entry["kind"] in kinds)


def look(place: Path | str) -> Image:
    """The store of a file or an address as it is, in one read. For a store that a living process has open."""
    connection = peek(f"sqlite:///{place}" if isinstance(place, Path) else place)
    try:
        return _image(connection)
    finally:
        connection.close()


def autopsy(db: Path) -> Image:
    """The store of dead or stopped processes, read from a copy: its recovery is left to the next of them."""
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_store(db, Path(folder))
        connection = sqlite3.connect(copy)
        try:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            return _image(connection)
        finally:
            connection.close()


def copy_store(db: Path, folder: Path) -> Path:
    for suffix in ("", "-wal"):
        source = db.with_name(db.name + suffix)
        if source.exists():
            shutil.copyfile(source, folder / source.name)
    return folder / db.name


def _image(connection: sqlite3.Connection) -> Image:
    connection.row_factory = sqlite3.Row
    connection.execute("BEGIN")
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'runs'").fetchone():
        return Image({}, {}, {})  # its process died before it had made the tables
    runs = {row["id"]: dict(row) for row in connection.execute("SELECT * FROM runs")}
    ids = {row["pk"]: id for id, row in runs.items()}
    journals: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in connection.execute("SELECT * FROM entries ORDER BY run, seq"):
        journals[ids[entry["run"]]].append(dict(entry))
    for id, journal in journals.items():
        assert [entry["seq"] for entry in journal] == list(range(1, len(journal) + 1)), f"a gap in {id}"
        fences = [abs(entry["fence"]) for entry in journal]
        assert fences == sorted(fences), f"an entry of {id} under an old fence"
    workers = {row["id"]: dict(row) for row in connection.execute("SELECT * FROM workers")}
    return Image(runs, dict(journals), workers)
