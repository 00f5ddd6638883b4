"""Workers of contenders: each is a driver's `work` in a session of its own, so that its whole tree of processes can be ended, stopped and weighed."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.contest.ask import DRIVERS, Failed, command, environment
from bench.contest.contenders import Contender

READY_SECONDS_MAX = 60.0
SETTLE_SECONDS = 1.5
"""From `ready` until it is used: DBOS looks for new queues once a second, others still connect."""
LAST_WORDS = 1500

_given_up = threading.Event()
_there: set[Worker] = set()


class GivenUp(Exception):
    """Another process has given up all that is being measured."""


class Worker:
    def __init__(self, process: subprocess.Popen[bytes], log: Path, label: str) -> None:
        self.pid, self._process, self._log, self._label = process.pid, process, log, label
        self._is_ended = False

    @property
    def exit_status(self) -> int | None:
        """As subprocess has it: negative for a signal. None while it is there."""
        return self._process.poll()

    def signal(self, number: int) -> None:
        """To the first process alone, as a kubelet sends it."""
        if self.exit_status is None:
            self._process.send_signal(number)

    def signal_all(self, number: int) -> None:
        """To every process of its session, as the end of a container or of a host would be."""
        for pid in session(self.pid):
            with _gone_is_fine():
                os.kill(pid, number)

    def end(self) -> None:
        """Once: its pid may be another's afterwards."""
        if not self._is_ended:
            self.signal_all(signal.SIGKILL)
            self._process.wait()
            self._is_ended = True

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-LAST_WORDS:]

    def wait_until_ready(self, settle: float) -> None:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while b"ready\n" not in self._log.with_suffix(".out").read_bytes():
            if self.exit_status is not None or time.monotonic() > deadline:
                raise Failed(f"{self._label}: its worker does not start: {self.last_words()}")
            pause(0.02)
        pause(settle)


@contextmanager
def worker(
    contender: Contender,
    folder: Path,
    tell: Callable[[str], None],
    *,
    settle: float = SETTLE_SECONDS,
    **options: object,
) -> Iterator[Worker]:
    """A worker that takes jobs. What is left of it at the end is killed."""
    name = f"{options.get('name', 'a')}-{time.monotonic_ns()}"
    log = folder / f"{name}.log"
    words = command(contender, "work", tell, **options)
    with log.open("wb") as err, log.with_suffix(".out").open("wb") as out:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=DRIVERS, start_new_session=True, env=environment(),
        )  # fmt: skip
    found = Worker(process, log, contender.name)
    _there.add(found)
    try:
        found.wait_until_ready(settle)
        yield found
    finally:
        found.end()
        _there.discard(found)


def pause(seconds: float) -> None:
    """A sleep that `give_up` ends."""
    if _given_up.wait(seconds):
        raise GivenUp


def give_up() -> None:
    """Whatever threads are measuring: their workers are killed, and their pauses end."""
    _given_up.set()
    for one in list(_there):
        one.end()


def begin_again() -> None:
    _given_up.clear()


def session(leader: int) -> list[int]:
    """The processes of the session that this one began, and whatever their children are by now."""
    stats = {stat.pid: stat for stat in _stats()}
    found = {pid for pid, stat in stats.items() if leader in (stat.session, pid)}
    return sorted(found | descendants(leader, stats))


def descendants(pid: int, stats: dict[int, _Stat] | None = None) -> set[int]:
    stats = {stat.pid: stat for stat in _stats()} if stats is None else stats
    found: set[int] = set()
    new = {pid}
    while new:
        new = {one for one, stat in stats.items() if stat.parent in new} - found
        found |= new
    return found


def cpu_seconds(pids: list[int]) -> float:
    """User and system, of these processes and of the children they have waited for."""
    wanted = set(pids)
    return sum(stat.cpu_seconds for stat in _stats() if stat.pid in wanted)


class _Stat:
    """What the kernel says of a process."""

    def __init__(self, pid: int, fields: list[str]) -> None:
        self.pid, self.parent, self.session = pid, int(fields[1]), int(fields[3])
        self.cpu_seconds = sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def _stats() -> Iterator[_Stat]:
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with _gone_is_fine():
                fields = (place / "stat").read_text().rpartition(")")[2].split()
                yield _Stat(int(place.name), fields)


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    """A process may end between two looks at it."""
    try:
        yield
    except (FileNotFoundError, ProcessLookupError):
        return
