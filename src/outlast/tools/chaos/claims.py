"""Read from the workers' logs which worker claimed which run when.

This tells how soon a run continued after a fault.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from outlast.tools.chaos.fleet import Member
from outlast.tools.chaos.recovery_times import ExecutionEnd

CLAIMED = b" is claimed"
OVERTAKEN = b"another worker has the run now"
"""Text a worker logs when the store refuses a write because of its fence."""


class Claim(NamedTuple):
    fence: int
    at: float
    member: int | None
    """None if no worker logged the claim."""


class Claims:
    """Hold the claims of every run, ordered by fence."""

    def __init__(
        self,
        members: Sequence[Member],
        signs: Mapping[str, Mapping[int, float]] | None = None,
        *,
        ahead: float = 0.0,
        lease: float = 2.0,
    ) -> None:
        """Read the claims from the members' logs.

        `signs` adds the first sign of each claim from elsewhere: a child that its parent takes
        along appears in no log. `ahead` is how many seconds the store's clock, which stamps
        journals, is ahead of this host's clock, which stamps logs and faults.
        """
        self._members = {member.number: member for member in members}
        self._ahead = ahead
        self._lease = lease
        found: dict[str, list[Claim]] = defaultdict(list)
        self.overtaken = 0
        """Run executions whose write the store refused."""
        for member in members:
            for run, fence, at in _claimed(member.log):
                found[run].append(Claim(fence, at, member.number))
            self.overtaken += member.log.read_bytes().count(OVERTAKEN)
        for run, by_fence in (signs or {}).items():
            logged = {claim.fence for claim in found[run]}
            found[run] += [
                Claim(fence, at, None) for fence, at in by_fence.items() if fence not in logged
            ]
        self._of = {
            run: sorted(claims, key=lambda claim: claim.fence) for run, claims in found.items()
        }
        self.by_fault: dict[str, list[float]] = defaultdict(list)
        """Recovery times in seconds, by the fault that hit the worker."""

    def recovered(
        self, run: str, end: ExecutionEnd, following_end: ExecutionEnd | None
    ) -> float | None:
        """Return the seconds from the fault that ended an execution until the next claim.

        If the worker released the run, count from the release. Return None if no next claim is
        known.
        """
        claims = self._of.get(run, [])
        number = bisect_right([claim.fence for claim in claims], end.fence)
        if not end.fence or number == len(claims):
            return None
        last = claims[number - 1] if number else None
        following = claims[number]
        if following_end is not None and following.fence > following_end.fence:
            return None
        if last is not None and last.fence != end.fence:
            last = None
        at = end.at - self._ahead
        noticed = at if end.seen is None else end.seen - self._ahead
        fault = self._fault(last, at, noticed)
        began = at if end.seen is None and end.kind == "interruption" else fault[0]
        seconds = max(0.0, following.at - began)
        self.by_fault[fault[1]].append(seconds)
        return seconds

    def _fault(self, claim: Claim | None, at: float, noticed: float) -> tuple[float, str]:
        """Return the last fault that hit the execution's worker before its end was noticed.

        A stop that the worker survived by more than a lease did not end the execution.
        """
        member = self._members.get(claim.member or 0) if claim is not None else None
        struck = [fault for fault in member.faults if fault[0] <= at] if member is not None else []
        if member is None or not struck:
            return noticed, "none"
        when, kind = struck[-1]
        resumed = next((one for one in member.resumed if one >= when), None)
        if kind == "stop" and resumed is not None and noticed > resumed + self._lease:
            return noticed, "none"
        return when, kind


def _claimed(log: Path) -> Iterable[tuple[str, int, float]]:
    with log.open("rb") as lines:
        for line in lines:
            if CLAIMED in line:
                try:
                    facts = json.loads(line)
                    at = datetime.fromisoformat(facts["time"]).timestamp()
                    yield facts["run"], int(facts["fence"]), at
                except (ValueError, KeyError, TypeError):
                    # Skip output that a program printed.
                    continue
