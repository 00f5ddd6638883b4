"""Start programs with an Outlast in them, and read what they said and left behind."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import httpx
import passing_grace
from kubelet import PROGRAMS

from outlast.store.commands import Sweep
from outlast.store.rows import Entry, RunRow
from outlast.store.sqlite.store import SQLiteStore
from support.processes import Program, clean_environment, kill_quietly
from support.snapshots import read_snapshot
from support.waiting import WAIT_SECONDS, wait_until

T = TypeVar("T")

HERE = Path(__file__).parent
PYTHONPATH = os.pathsep.join((str(HERE), str(PROGRAMS)))
AS_INIT = ("unshare", "-Urpf", "--kill-child", "--mount-proc")
LONG = "OUTLAST_TEST_KILLS" in os.environ
"""Whether this is `make soak`, which tries every combination."""

PASSING = {
    "passing": True,
    **{f"outlast_{name}": value for name, value in passing_grace.SETTINGS.items()},
}
"""Of a program whose grace passes when the test says so, with `Executing.let_pass`."""


class Executing(Program):
    """A program and its words, one per line of the file `words`."""

    def __init__(self, folder: Path, command: list[str], env: dict[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.words = folder / "words"
        self.words.touch()
        own = {
            "PYTHONPATH": f"{HERE}{os.pathsep}{PROGRAMS}",
            "WORDS": str(self.words),
            "OUTLAST_GRACE": "600",
        }
        own["OUTLAST_STORE"] = f"sqlite:///{folder / 'agents.db'}"
        self._passed = folder / "passed"
        if env.pop("PASSING", ""):
            own["PASSED"] = str(self._passed)
        super().__init__(command, folder, env=clean_environment(**{**own, **env}))

    @property
    def said(self) -> list[str]:
        return self.words.read_text().splitlines()

    @property
    def printed(self) -> str:
        return self.output + self.errors

    def describe(self) -> str:
        return f"it said {self.said}\n{super().describe()}"

    def wait_until(
        self, condition: Callable[[], T], *, timeout: float = WAIT_SECONDS, pause: float = 0.02
    ) -> T:
        """Wait for a condition that reads a store or sends a request."""
        return super().wait_until(condition, timeout=timeout, pause=pause)

    def wait_for(self, start: str, times: int = 1) -> None:
        """Wait until `times` of its words start with `start`."""
        self.wait_until(
            lambda: len([said for said in self.said if said.startswith(start)]) >= times
        )

    def word(self, start: str) -> str:
        """Return what follows this word on its line."""
        self.wait_for(start + " ")
        return next(said for said in self.said if said.startswith(start + " ")).partition(" ")[2]

    def times(self, word: str) -> int:
        return [said.split()[0] for said in self.said if said].count(word)

    def open_gate(self, name: str = "gate") -> None:
        """Let the step or the request go on that waits for this file."""
        (self.folder / name).touch()

    def let_pass(self, seconds: float) -> None:
        """Let so much of its grace have passed. It must have been started with PASSING."""
        passing_grace.let_pass(self._passed, seconds)

    def send(self, number: int) -> None:
        """Send a signal to the program itself, also where it is PID 1 of a namespace."""
        os.kill(self.pid, number)

    def drain_by(self, number: int, *stores: str) -> None:
        """Send a signal and wait until the stores (files) say that the program drains."""
        self.send(number)
        for store in stores or ("agents.db",):
            self.wait_until(lambda store=store: self.is_draining(store))

    def is_draining(self, store: str = "agents.db") -> bool:
        file = self.folder / store
        return file.exists() and any(
            row["draining"] for row in read_snapshot(file).workers.values()
        )

    # --- over HTTP ---

    def get(self, path: str) -> tuple[int, dict]:
        answer = self.request("GET", path)
        return answer.status_code, answer.json()

    def post(self, path: str) -> tuple[int, dict]:
        answer = self.request("POST", path)
        return answer.status_code, answer.json()

    def request(self, method: str, path: str) -> httpx.Response:
        """Send a request. Without TLS no certificates need to be loaded, which takes longer than all else."""
        return httpx.request(
            method, self.url + path, timeout=WAIT_SECONDS, trust_env=False, verify=False
        )

    @property
    def url(self) -> str:
        """The address of its server, as the program said it or the server logged it."""

        def found() -> str:
            if said := [word for word in self.said if word.startswith("url ")]:
                return said[0].partition(" ")[2]
            logged = re.search(
                r"(?:Serving HTTP at|running on|Listening at:) (http://127\.0\.0\.1:\d+)",
                self.printed,
            )
            return logged[1] if logged else ""

        return self.wait_until(found)

    # --- what it left behind ---

    def run(self, id: str, store: str = "agents.db") -> RunRow:
        with closing(SQLiteStore(self.folder / store)) as opened:
            opened.open()
            row = opened.run(id)
        assert row is not None, id
        return row

    def done(self, id: str) -> list[str]:
        """Return the keys of the recorded steps."""
        with closing(SQLiteStore(self.folder / "agents.db")) as store:
            store.open()
            row = store.run(id)
            assert row is not None, id
            entries: list[Entry] = store.journal(row.pk)
        return [entry.key for entry in entries if entry.kind == "step"]

    def drain(self) -> dict:
        """Return the last drain's report, with its reason."""
        with closing(SQLiteStore(self.folder / "agents.db")) as store:
            store.open()
            (row, *_) = store.drains()
        assert row.report, "no report was written"
        return {**json.loads(row.report), "reason": row.reason}

    def assert_run_is_claimable(self) -> None:
        """Check that a process that is gone holds its run no longer and that the run is not charged with a death.

        A process that leaves at once releases its run only if that takes less than half a second. Otherwise the
        next sweep does it.
        """
        with closing(SQLiteStore(self.folder / "agents.db")) as store:
            store.open()

            def released() -> bool:
                store.commit([Sweep()])
                return store.run("run").worker is None

            wait_until(released)
            row = store.run("run")
        assert (row.status, row.deaths) == ("queued", 0)


@contextmanager
def executing(
    folder: Path,
    name: str,
    *args: object,
    before: tuple[str, ...] = (),
    ready: str = "ready",
    **env: object,
) -> Iterator[Executing]:
    """Execute a program of this folder (`plain.py`), or a command of this Python's (`-m uvicorn`)."""
    what = [str(HERE / name)] if name.endswith(".py") else name.split()
    command = [*before, sys.executable, "-u", *what, *map(str, args)]
    with Executing(
        folder, command, {name.upper(): str(value) for name, value in env.items()}
    ) as program:
        try:
            if before:
                (program.pid,) = program.wait_until(lambda: _children(program.process.pid))
            if ready:
                program.wait_for(ready)
            yield program
        finally:
            children = _children(program.process.pid)  # gunicorn's workers outlive it
            program.kill()
            for child in children:
                kill_quietly(child)


def _children(pid: int) -> list[int]:
    try:
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return []
