"""Inject faults and follow each one through its steps while everything else continues.

Nothing here blocks. `inject` begins a fault, and each call of `go_on` advances the faults in flight
to their next step.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, NamedTuple

from outlast.tools.chaos.fleet import Fleet, Member, State
from outlast.tools.chaos.plan import Fault

if TYPE_CHECKING:
    from outlast.testing.servers import Server

LATE_SECONDS = 1.0
"""A worker that outlives its grace by more than this violates the check and is killed."""
VICTIM_SECONDS = 15.0
"""How long a fault waits for a worker that it can hit."""
UP_SECONDS = 20.0
"""How long a rolling restart waits for a new worker before it continues."""
DRAIN = "drain"
"""The kind recorded when the experiment itself ends a worker. It does not count as a fault."""
STALL_SECONDS = 0.25
"""A longer pause of this process does not count against a worker."""
SERVER_STARTS_MAX = 20


class InjectedFault(NamedTuple):
    at: float
    """Seconds since the experiment began."""
    kind: str
    lanes: tuple[int, ...]
    """The lanes of the workers it hit. Empty for a server fault."""
    signals: int
    """How many processes received a signal that ends or stops them."""
    description: str


class FaultInjector:
    """Inject faults into a fleet, and into its server if chaos started one."""

    def __init__(
        self,
        fleet: Fleet,
        grace: float,
        *,
        server: Server | None = None,
        server_signal: int = signal.SIGKILL,
        keeps_everybody_out: Callable[[], bool] = lambda: False,
    ) -> None:
        """Set up the injector for a fleet.

        `keeps_everybody_out` returns whether a stopped process holds a lock that blocks every other
        worker.
        """
        self.fleet = fleet
        self.grace = grace
        self._server = server
        self._server_signal = server_signal
        self._keeps_everybody_out = keeps_everybody_out
        self._under_way: list[Iterator[None]] = []
        self.injected: list[InjectedFault] = []
        self.missed: list[Fault] = []
        """Faults that found no worker to hit."""
        self.too_late: list[str] = []
        """Drains that did not end in time."""
        self.drains: list[float] = []
        """Seconds from SIGTERM to exit, for drains that ended in time."""
        self.outages = 0
        self._stalled = 0.0
        """Total seconds in which this process itself was stalled."""
        self._checked_at = time.monotonic()

    def inject(self, fault: Fault) -> None:
        begin: dict[str, Callable[[Fault], Iterator[None]]] = {
            "term": self._term,
            "kill": self._kill,
            "stop": self._stop,
            "rolling": self._rolling,
            "fleet": self._fleet,
            "server": self._server_goes,
        }
        self._under_way.append(begin[fault.kind](fault))

    def go_on(self) -> None:
        now = time.monotonic()
        self._stalled += max(0.0, now - self._checked_at - STALL_SECONDS)
        self._checked_at = now
        before = self._under_way
        self._under_way = []
        left = [one for one in before if next(one, self) is None]
        # A fault may have started others.
        self._under_way = left + self._under_way

    @property
    def quiet(self) -> bool:
        """Return whether no fault is in flight."""
        return not self._under_way

    def drain(self, member: Member) -> None:
        """End a worker as an operator would. This does not count as a fault."""
        self._under_way.append(self._ended_in_time(member, DRAIN))

    # -- the kinds of faults

    def _term(self, fault: Fault) -> Iterator[None]:
        member = yield from self._victim(fault, "alive")
        if member is not None:
            self._note(fault, [member], "SIGTERM")
            yield from self._ended_in_time(member)

    def _kill(self, fault: Fault) -> Iterator[None]:
        member = yield from self._victim(
            fault, "alive", "draining", *(("starting",) if fault.hard else ())
        )
        if member is not None:
            self._note(fault, [member], f"SIGKILL while {member.state}")
            self.fleet.kill(member)

    def _stop(self, fault: Fault) -> Iterator[None]:
        member = yield from self._stopped(fault)
        if member is None:
            return
        then = "SIGKILL" if fault.hard else "SIGCONT"
        self._note(fault, [member], f"SIGSTOP for {fault.seconds:.1f} s, then {then}")
        until = time.monotonic() + fault.seconds
        while time.monotonic() < until and not member.gone:
            yield
        if fault.hard:
            self.fleet.kill(member)
        else:
            self.fleet.go_on(member)

    def _rolling(self, fault: Fault) -> Iterator[None]:
        members = self.fleet.there("alive", "starting")
        self._note(fault, members, "rolling restart, by SIGTERM")
        for member in members:
            while member.state in ("starting", "stopped"):
                yield
            if member.state == "alive":
                yield from self._ended_in_time(member)
            until = time.monotonic() + UP_SECONDS
            while time.monotonic() < until and not self._is_up(member.lane):
                yield

    def _fleet(self, fault: Fault) -> Iterator[None]:
        members = self.fleet.there()
        self._note(fault, members, f"the whole fleet, by {'SIGKILL' if fault.hard else 'SIGTERM'}")
        for member in members:
            if fault.hard:
                self.fleet.kill(member)
            elif member.state in ("alive", "starting"):
                self._under_way.append(self._ended_in_time(member))
        return
        yield

    def _server_goes(self, fault: Fault) -> Iterator[None]:
        if self._server is None:
            self.missed.append(fault)
            return
        # Wait for the end of another outage. Two starts would make two servers with the same data.
        while not self._server.is_up:
            yield
        number = signal.Signals(self._server_signal).name if fault.hard else "an orderly shutdown"
        self._note(fault, [], f"the store's server, by {number}, for {fault.seconds:.1f} s")
        self.outages += 1
        self.fleet.away = math.inf
        self._server.stop(self._server_signal if fault.hard else None)
        until = time.monotonic() + fault.seconds
        while time.monotonic() < until:
            yield
        for left in reversed(range(SERVER_STARTS_MAX)):
            try:
                self._server.start()
            except AssertionError:
                if not left:
                    raise
                yield
            else:
                break
        self.fleet.away = time.monotonic()

    # -- steps that the kinds share

    def _victim(self, fault: Fault, *states: State) -> Generator[None, None, Member | None]:
        """Return a worker in one of these states, picked by the fault.

        Return None after a time limit.
        """
        until = time.monotonic() + VICTIM_SECONDS
        while not (there := self.fleet.there(*states)):
            if time.monotonic() > until:
                self.missed.append(fault)
                return None
            yield
        return there[int(fault.pick * len(there))]

    def _stopped(self, fault: Fault) -> Generator[None, None, Member | None]:
        """Stop a worker that holds no lock the others need, and return it.

        Return None after a time limit.
        """
        until = time.monotonic() + VICTIM_SECONDS
        while (member := (yield from self._victim(fault, "alive"))) is not None:
            self.fleet.stop(member)
            if not self._keeps_everybody_out():
                return member
            # Try again a moment later. Another fault may have hit this worker by then.
            self.fleet.go_on(member)
            member.faults.pop()
            member.resumed.pop()
            if time.monotonic() > until:
                self.missed.append(fault)
                return None
            yield
        return None

    def _ended_in_time(self, member: Member, kind: str = "term") -> Iterator[None]:
        # A signal that arrives before the handlers are installed kills the worker.
        if member.state == "starting":
            self.fleet.kill(member)
            return
        began = time.monotonic()
        stalled = self._stalled
        self.fleet.term(member, kind=kind)
        while not member.gone:
            yield
            seconds = time.monotonic() - began - (self._stalled - stalled)
            if seconds > self.grace + LATE_SECONDS and not member.gone:
                self.too_late.append(
                    f"worker {member.number} (process {member.pid}) was still alive "
                    f"{seconds:.1f} s after SIGTERM, with a grace of {self.grace:g} s: "
                    f"{member.tail()}"
                )
                self.fleet.kill(member)
                return
        if member.process.returncode == 0 and member.ended_at is not None:
            self.drains.append(max(0.0, member.ended_at - began))

    def _is_up(self, lane: int) -> bool:
        return any(member.lane == lane for member in self.fleet.there("alive"))

    def _note(self, fault: Fault, members: list[Member], description: str) -> None:
        at = time.monotonic() - self.fleet.began
        lanes = tuple(dict.fromkeys(member.lane for member in members))
        self.injected.append(
            InjectedFault(at, fault.kind, lanes, max(1, len(members)), description)
        )
