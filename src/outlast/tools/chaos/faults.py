"""The blows, and what follows from each: a sequence of moments between which everything else goes on.

Nothing here waits: `strike` begins a blow, and `go_on`, called again and again, takes those under way to their next moment.
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
"""After grace a worker must be gone; so much later it is a violation, and it is killed."""
VICTIM_SECONDS = 15.0
"""How long a blow waits for somebody who can be struck."""
UP_SECONDS = 20.0
"""How long a rolling restart waits for a new worker before it goes on."""
DRAIN = "drain"
"""What it is called when a worker is ended because the trial wants it so: it is no blow."""
STALL_SECONDS = 0.25
"""A gap of this process's own that is longer does not count against a worker."""
SERVER_STARTS_MAX = 20


class InjectedFault(NamedTuple):
    at: float
    """Seconds since the beginning."""
    kind: str
    lanes: tuple[int, ...]
    """Whom it struck; none for a server."""
    signals: int
    """How many processes got one that ends or stops them."""
    said: str


class FaultInjector:
    """What befalls a fleet, and its server if chaos has started one."""

    def __init__(
        self,
        fleet: Fleet,
        grace: float,
        *,
        server: Server | None = None,
        server_signal: int = signal.SIGKILL,
        keeps_everybody_out: Callable[[], bool] = lambda: False,
    ) -> None:
        """`keeps_everybody_out` says whether a process that was stopped has a lock in its hands without which nobody can work."""
        self.fleet, self.grace, self._server, self._server_signal = (
            fleet,
            grace,
            server,
            server_signal,
        )
        self._keeps_everybody_out = keeps_everybody_out
        self._under_way: list[Iterator[None]] = []
        self.injected: list[InjectedFault] = []
        self.missed: list[Fault] = []
        """Blows for which there was nobody."""
        self.too_late: list[str] = []
        """Drains that did not end in time."""
        self.drains: list[float] = []
        """Seconds from SIGTERM to the end of those that did."""
        self.outages = 0
        self._stalled = 0.0
        """For how long this process itself did not look, in all."""
        self._looked = time.monotonic()

    def inject(self, fault: Fault) -> None:
        begin: dict[str, Callable[[Fault], Iterator[None]]] = {
            "term": self._term, "kill": self._kill, "stop": self._stop, "rolling": self._rolling, "fleet": self._fleet,
            "server": self._server_goes,
        }  # fmt: skip
        self._under_way.append(begin[fault.kind](fault))

    def go_on(self) -> None:
        now = time.monotonic()
        self._stalled += max(0.0, now - self._looked - STALL_SECONDS)
        self._looked = now
        before, self._under_way = self._under_way, []
        left = [one for one in before if next(one, self) is None]
        self._under_way = left + self._under_way  # one may have begun others

    @property
    def quiet(self) -> bool:
        """Whether none is under way."""
        return not self._under_way

    def drain(self, member: Member) -> None:
        """End a worker as an operator would. That is no blow."""
        self._under_way.append(self._ended_in_time(member, DRAIN))

    # -- each kind

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
        while (
            not self._server.is_up
        ):  # in the middle of another outage: two starts would be two servers with the same data
            yield
        number = signal.Signals(self._server_signal).name if fault.hard else "an orderly end"
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

    # -- parts of them

    def _victim(self, fault: Fault, *states: State) -> Generator[None, None, Member | None]:
        """One of those in these states, by the blow's own chance. None if there is none for long."""
        until = time.monotonic() + VICTIM_SECONDS
        while not (there := self.fleet.there(*states)):
            if time.monotonic() > until:
                self.missed.append(fault)
                return None
            yield
        return there[int(fault.pick * len(there))]

    def _stopped(self, fault: Fault) -> Generator[None, None, Member | None]:
        """One who is stopped now, without a lock in its hands that nobody can take from it. None if there is none for long."""
        until = time.monotonic() + VICTIM_SECONDS
        while (member := (yield from self._victim(fault, "alive"))) is not None:
            self.fleet.stop(member)
            if not self._keeps_everybody_out():
                return member
            self.fleet.go_on(
                member
            )  # not now, but a moment later; others may have struck it by then
            member.faults.pop()
            member.resumed.pop()
            if time.monotonic() > until:
                self.missed.append(fault)
                return None
            yield
        return None

    def _ended_in_time(self, member: Member, kind: str = "term") -> Iterator[None]:
        if (
            member.state == "starting"
        ):  # a signal before it has handlers ends it, as it would end any program
            self.fleet.kill(member)
            return
        began, stalled = time.monotonic(), self._stalled
        self.fleet.term(member, kind=kind)
        while not member.gone:
            yield
            seconds = time.monotonic() - began - (self._stalled - stalled)
            if seconds > self.grace + LATE_SECONDS and not member.gone:
                self.too_late.append(
                    f"worker {member.number} (process {member.pid}) was there {seconds:.1f} s after SIGTERM, with a grace of {self.grace:g} s: {member.tail()}"
                )
                self.fleet.kill(member)
                return
        if member.process.returncode == 0 and member.ended_at is not None:
            self.drains.append(max(0.0, member.ended_at - began))

    def _is_up(self, lane: int) -> bool:
        return any(member.lane == lane for member in self.fleet.there("alive"))

    def _note(self, fault: Fault, members: list[Member], said: str) -> None:
        at = time.monotonic() - self.fleet.began
        lanes = tuple(dict.fromkeys(member.lane for member in members))
        self.injected.append(InjectedFault(at, fault.kind, lanes, max(1, len(members)), said))
