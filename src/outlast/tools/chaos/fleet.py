"""The fleet: the worker processes that chaos has started. It signals these, and nothing else.

A member leads a process group of its own, so what its steps have started ends with it. Everything here is for one thread, the one that
made the fleet: on Linux a child dies with the thread that started it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from outlast.shutdown.process_shutdown import TRY_AGAIN

State = Literal["starting", "alive", "draining", "stopped", "dead"]

UP = b'"event": "working"'
"""What a worker's log says once it claims."""
TAIL = 1_500
"""Characters of a log that are shown."""


class NotOurs(RuntimeError):
    """A process that this fleet did not start was about to be signalled. It was not."""


class Span(NamedTuple):
    """How long a lane was in one state; seconds since the beginning."""

    lane: int
    state: State
    begin: float
    end: float


@dataclass(eq=False)
class Member:
    """One worker process."""

    lane: int
    number: int
    """Counts all members that ever were, from 1."""
    process: subprocess.Popen[bytes]
    log: Path
    started: int | None
    """The kernel's start time of it; None where there is none to be had."""
    state: State = "starting"
    since: float = 0.0
    """When it came into that state."""
    born: float = field(default_factory=time.monotonic)
    expected: bool = False
    """It was struck: that it ends is no wonder."""
    retired: bool = False
    """Nobody takes its lane when it is gone."""
    ended_at: float | None = None
    """`time.monotonic()` when it was seen to be gone."""
    faults: list[tuple[float, str]] = field(default_factory=list)
    """When it was struck (`time.time()`), and how."""
    resumed: list[float] = field(default_factory=list)
    """When it went on after a stop, of the same clock."""
    _read: int = 0

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def gone(self) -> bool:
        return self.state == "dead"

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-TAIL:]

    def is_up(self) -> bool:
        """Whether its log says that it works."""
        with self.log.open("rb") as file:
            file.seek(max(0, self._read - len(UP)))
            text = file.read()
            self._read = file.tell()
        return UP in text


@dataclass(eq=False)
class Fleet:
    """`size` lanes, with one member each. Who is gone and was not retired is followed by a new one."""

    size: int
    command: Sequence[str]
    """The arguments of `outlast`."""
    environ: Mapping[str, str]
    folder: Path
    """Where their logs go."""
    before_start: Callable[[], None] = lambda: None
    """Called each time, before a member is started."""
    members: list[Member] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)
    """Members that ended without having been struck."""
    began: float = field(default_factory=time.monotonic)
    away: float | None = None
    """Until when the store's server was away, by `time.monotonic()`; inf while it is. Who cannot begin then says so and ends."""
    followed: bool = True
    """Whether who is gone is followed by another."""

    def start(self, lane: int) -> Member:
        self.before_start()
        number = len(self.members) + 1
        log = self.folder / f"worker-{number:04}.log"
        words = [
            sys.executable,
            "-m",
            "outlast.tools.chaos.worker_main",
            str(os.getpid()),
            *self.command,
        ]
        with log.open("wb") as out:
            process = subprocess.Popen(  # noqa: S603 - our own words
                words, stdin=subprocess.PIPE, stdout=out, stderr=out, env=dict(self.environ), start_new_session=True
            )  # fmt: skip
        member = Member(lane, number, process, log, start_time(process.pid))
        member.since = time.monotonic()
        self.members.append(member)
        return member

    def start_all(self) -> None:
        for lane in range(self.size):
            self.start(lane)

    # -- who is there

    def there(self, *states: State) -> list[Member]:
        """Those in one of these states; without any, all that are not gone. By lane."""
        wanted = states or ("starting", "alive", "draining", "stopped")
        return sorted(
            (m for m in self.members if m.state in wanted), key=lambda m: (m.lane, m.number)
        )

    def look(self) -> None:
        """See who is up and who is gone, and start those that follow."""
        for member in self.there():
            if _has_ended(member.process):
                self._ended(member)
            elif member.state == "starting" and member.is_up():
                self.turn(member, "alive")
        if self.followed:
            taken = {member.lane for member in self.there()}
            for lane in sorted(set(range(self.size)) - taken):
                self.start(lane)

    def turn(self, member: Member, state: State) -> None:
        now = time.monotonic()
        self.spans.append(
            Span(member.lane, member.state, member.since - self.began, now - self.began)
        )
        member.state, member.since = state, now

    # -- what befalls them

    def signal(self, member: Member, number: int) -> None:
        """To the process itself; SIGKILL, SIGSTOP and SIGCONT to all that it has started too. NotOurs for any other process."""
        if member.gone:
            return
        # It is ours as long as nobody has waited for it: its number is nobody else's until then.
        if member.process.returncode is not None or start_time(member.pid) != member.started:
            raise NotOurs(
                f"process {member.pid} is not the one that was started as worker {member.number}."
            )
        if number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT):
            with suppress(ProcessLookupError):
                os.killpg(member.pid, number)
        else:
            os.kill(member.pid, number)

    def term(self, member: Member, *, kind: str = "term") -> None:
        """`kind`: what it is called, if it is no blow."""
        member.expected = True
        member.faults.append((time.time(), kind))
        self.signal(member, signal.SIGTERM)
        self.turn(member, "draining")

    def kill(self, member: Member) -> None:
        """And it is gone: the next look has it followed."""
        member.expected = True
        member.faults.append((time.time(), "kill"))
        self.signal(member, signal.SIGKILL)
        if not member.gone:
            member.process.wait()
            self._ended(member)

    def stop(self, member: Member) -> None:
        member.faults.append((time.time(), "stop"))
        self.signal(member, signal.SIGSTOP)
        self.turn(member, "stopped")

    def go_on(self, member: Member) -> None:
        if member.state == "stopped":
            self.signal(member, signal.SIGCONT)
            member.resumed.append(time.time())
            self.turn(member, "alive")

    def end_all(self) -> None:
        """Every one of them, at once."""
        self.followed = False
        for member in self.there():
            self.kill(member)

    def _ended(self, member: Member) -> None:
        if member.process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(
                    member.pid, signal.SIGKILL
                )  # what it left behind; its number is not free before the wait
            member.process.wait()
        if member.process.stdin is not None:
            member.process.stdin.close()
        code = member.process.returncode
        if not member.expected and not (
            code == TRY_AGAIN and self.away is not None and self.away > member.born
        ):
            self.surprises.append(
                f"worker {member.number} (process {member.pid}) ended by itself with {code}: {member.tail()}"
            )
        elif member.state == "draining" and code not in (0, -signal.SIGKILL):
            self.surprises.append(
                f"worker {member.number} (process {member.pid}) drained and exited with {code}: {member.tail()}"
            )
        self.turn(member, "dead")
        member.ended_at = time.monotonic()


def start_time(pid: int) -> int | None:
    """When the kernel started a process, in its own ticks: with the pid it is one process and no other. None where nobody says."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has, without waiting for it: its number stays taken."""
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True
