"""Start and signal the worker processes of an experiment, and no other process.

Each member leads its own process group, so everything its steps started ends with it. Only the
thread that made the fleet may use it: on Linux a child dies with the thread that started it.
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

from outlast.shutdown.process import TRY_AGAIN

State = Literal["starting", "alive", "draining", "stopped", "dead"]

UP = b'"event": "working"'
"""Text in a worker's log once it claims runs."""
TAIL = 1_500
"""Characters of a log to show."""


class NotOurs(RuntimeError):
    """The fleet did not start this process. No signal was sent."""


class Span(NamedTuple):
    """A period that a lane spent in one state, in seconds since the beginning."""

    lane: int
    state: State
    begin: float
    end: float


@dataclass(eq=False)
class Member:
    """One worker process."""

    lane: int
    number: int
    """Serial number over all members ever started, from 1."""
    process: subprocess.Popen[bytes]
    log: Path
    started: int | None
    """The kernel's start time of the process. None where the platform reports none."""
    state: State = "starting"
    since: float = 0.0
    """When it entered that state."""
    born: float = field(default_factory=time.monotonic)
    expected: bool = False
    """Whether a fault hit it, so that its end is expected."""
    retired: bool = False
    """Whether its lane stays empty after it ends."""
    ended_at: float | None = None
    """`time.monotonic()` when the fleet noticed its end."""
    faults: list[tuple[float, str]] = field(default_factory=list)
    """When each fault hit it (`time.time()`), and the fault's kind."""
    resumed: list[float] = field(default_factory=list)
    """When it resumed after a stop (`time.time()`)."""
    _read: int = 0

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def gone(self) -> bool:
        return self.state == "dead"

    def tail(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(errors="replace")[-TAIL:]

    def is_up(self) -> bool:
        """Return whether its log says that it claims runs."""
        with self.log.open("rb") as file:
            file.seek(max(0, self._read - len(UP)))
            text = file.read()
            self._read = file.tell()
        return UP in text


@dataclass(eq=False)
class Fleet:
    """Keep one member in each of `size` lanes. A new member replaces each one that is gone."""

    size: int
    command: Sequence[str]
    """Arguments for `outlast`."""
    environ: Mapping[str, str]
    folder: Path
    """Folder for the members' logs."""
    before_start: Callable[[], None] = lambda: None
    """Called before each start of a member."""
    members: list[Member] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)
    """Members that ended without a fault."""
    began: float = field(default_factory=time.monotonic)
    away: float | None = None
    """When the store's server came back (`time.monotonic()`), or inf during an outage.

    A worker that cannot start because of the outage reports that and exits.
    """
    followed: bool = True
    """Whether a new member replaces one that is gone."""

    def start(self, lane: int, *options: str) -> Member:
        """Start a worker. `options` follow the fleet's command."""
        self.before_start()
        number = len(self.members) + 1
        log = self.folder / f"worker-{number:04}.log"
        words = [
            sys.executable,
            "-m",
            "outlast.tools.chaos.worker_main",
            str(os.getpid()),
            *self.command,
            *options,
        ]
        with log.open("wb") as out:
            process = subprocess.Popen(  # noqa: S603 - our own arguments
                words,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env=dict(self.environ),
                start_new_session=True,
            )
        member = Member(lane, number, process, log, start_time(process.pid))
        member.since = time.monotonic()
        self.members.append(member)
        return member

    def start_all(self) -> None:
        for lane in range(self.size):
            self.start(lane)

    # -- members by state

    def there(self, *states: State) -> list[Member]:
        """Return the members in these states, by lane.

        Without arguments, return all that are not gone.
        """
        wanted = states or ("starting", "alive", "draining", "stopped")
        return sorted(
            (m for m in self.members if m.state in wanted), key=lambda m: (m.lane, m.number)
        )

    def check(self) -> None:
        """Update the members' states and start replacements."""
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
        member.state = state
        member.since = now

    # -- signals

    def signal(self, member: Member, number: int) -> None:
        """Send a signal to a member. Raise NotOurs if its pid belongs to another process.

        SIGKILL, SIGSTOP and SIGCONT go to its whole process group.
        """
        if member.gone:
            return
        # The pid cannot be reused before the process is waited for.
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
        """Send SIGTERM and record it as `kind`."""
        member.expected = True
        member.faults.append((time.time(), kind))
        self.signal(member, signal.SIGTERM)
        self.turn(member, "draining")

    def kill(self, member: Member) -> None:
        """Kill a member and wait for its end. The next `look` starts its replacement."""
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
        """Kill all members and start no more."""
        self.followed = False
        for member in self.there():
            self.kill(member)

    def _ended(self, member: Member) -> None:
        if member.process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                # Kill what it left behind. The kernel cannot reuse its pid before the wait.
                os.killpg(member.pid, signal.SIGKILL)
            member.process.wait()
        if member.process.stdin is not None:
            member.process.stdin.close()
        code = member.process.returncode
        if not member.expected and not (
            code == TRY_AGAIN and self.away is not None and self.away > member.born
        ):
            self.surprises.append(
                f"worker {member.number} (process {member.pid}) ended by itself with {code}: "
                f"{member.tail()}"
            )
        elif member.state == "draining" and code not in (0, -signal.SIGKILL):
            self.surprises.append(
                f"worker {member.number} (process {member.pid}) drained and exited with {code}: "
                f"{member.tail()}"
            )
        self.turn(member, "dead")
        member.ended_at = time.monotonic()


def start_time(pid: int) -> int | None:
    """Return when the kernel started a process, in clock ticks.

    None where the platform does not say.

    The pid and the start time together identify one process.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process has ended, without reaping it, so that its pid stays taken."""
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True
