"""Programs with an Outlast in them, and what the tests need to execute them, to end them, and to see what they left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx

from outlast.store.rows import Entry, RunRow
from outlast.store.sqlite.store import SQLiteStore
from spawned import spawn

HERE = Path(__file__).parent
WAIT_SECONDS = 60.0
"""For what must come about, however noisy the machine."""
AS_INIT = ("unshare", "-Urpf", "--kill-child", "--mount-proc")


class Executing:
    """A program, its words (`words`, one a line) and its output (`out`)."""

    def __init__(self, folder: Path, command: list[str], env: dict[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.out, self.words = folder, folder / "out", folder / "words"
        self.words.touch()
        self.known_url = ""
        quiet = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")}
        with self.out.open("wb") as out:
            self.process = spawn(
                command,
                stdout=out,
                stderr=out,
                cwd=folder,
                env={
                    **quiet,
                    "PYTHONPATH": str(HERE),
                    "WORDS": str(self.words),
                    "OUTLAST_STORE": f"sqlite:///{folder / 'agents.db'}",
                    **env,
                },
            )
        self.pid = self.process.pid

    @property
    def said(self) -> list[str]:
        return self.words.read_text().splitlines()

    @property
    def printed(self) -> str:
        return self.out.read_text()

    def until(self, what: str | Callable[[], object], times: int = 1) -> None:
        """Until it has said something that starts so, or something is the case."""

        def is_so() -> object:
            if callable(what):
                return what()
            return len([said for said in self.said if said.startswith(what)]) >= times

        give_up = time.monotonic() + WAIT_SECONDS
        while not is_so():
            ended = self.process.poll()
            assert (time.monotonic() < give_up and ended is None) or is_so(), (
                f"{what}: ended {ended}, said {self.said}, printed {self.printed[-3000:]}"
            )
            time.sleep(0.005)

    def word(self, start: str) -> str:
        """What follows this word on its line."""
        self.until(start + " ")
        return next(said for said in self.said if said.startswith(start + " ")).partition(" ")[2]

    def times(self, word: str) -> int:
        return [said.split()[0] for said in self.said if said].count(word)

    def send(self, number: int) -> float:
        """To the program itself, also where it is PID 1 of a namespace. When that was."""
        sent = time.monotonic()
        os.kill(self.pid, number)
        return sent

    def ended(self) -> int:
        try:
            return self.process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"it does not end: said {self.said}, printed {self.printed[-3000:]}"
            ) from None

    # --- over HTTP ---

    def get(self, path: str, url: str | None = None) -> tuple[int, dict]:
        answer = httpx.get((url or self.url) + path, timeout=WAIT_SECONDS, trust_env=False)
        return answer.status_code, answer.json()

    def post(self, path: str, url: str | None = None) -> tuple[int, dict]:
        answer = httpx.post((url or self.url) + path, timeout=WAIT_SECONDS, trust_env=False)
        return answer.status_code, answer.json()

    @property
    def url(self) -> str:
        """Of the server in it: as known, or as said, or as logged by Outlast's."""
        if self.known_url:
            return self.known_url
        if any(said.startswith("url ") for said in self.said):
            return self.word("url")
        lines = [line for line in self.printed.splitlines() if "serves at http" in line]
        return lines[0].split("serves at ")[1].split('"')[0].split()[0] if lines else ""

    # --- what it left behind ---

    def run(self, id: str) -> RunRow:
        with closing(SQLiteStore(self.folder / "agents.db")) as store:
            store.open()
            row = store.run(id)
        assert row is not None, id
        return row

    def done(self, id: str) -> list[str]:
        """The keys of the steps that are recorded."""
        with closing(SQLiteStore(self.folder / "agents.db")) as store:
            store.open()
            row = store.run(id)
            assert row is not None, id
            entries: list[Entry] = store.journal(row.pk)
        return [entry.key for entry in entries if entry.kind == "step"]

    def drain(self) -> dict:
        """The last drain's report, with its reason."""
        with closing(SQLiteStore(self.folder / "agents.db")) as store:
            store.open()
            (row, *_) = store.drains()
        assert row.report, "no report was written"
        return {**json.loads(row.report), "reason": row.reason}


@contextmanager
def executing(
    folder: Path,
    name: str,
    *args: object,
    before: tuple[str, ...] = (),
    ready: str = "ready",
    **env: object,
) -> Iterator[Executing]:
    """A program of this folder (`plain.py`), or a command of this Python's (`-m uvicorn`)."""
    what = [str(HERE / name)] if name.endswith(".py") else name.split()
    program = Executing(
        folder,
        [*before, sys.executable, "-u", *what, *map(str, args)],
        {name.upper(): str(value) for name, value in env.items()},
    )
    try:
        if before:
            program.until(lambda: _children(program.process.pid))
            (program.pid,) = _children(program.process.pid)
        if ready:
            program.until(ready)
        yield program
    finally:
        children = _children(program.process.pid)  # gunicorn's workers outlive it
        with suppress(ProcessLookupError):
            program.process.send_signal(signal.SIGKILL)
        program.process.wait(WAIT_SECONDS)
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
