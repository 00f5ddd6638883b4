"""Who claimed which run when, as the workers' own logs say: how soon a run went on after a blow."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from outlast.tools.chaos.fleet import Member
from outlast.tools.chaos.journal_audit import ExecutionEnd

CLAIMED = b" is claimed"
OVERTAKEN = b"another worker has the run now"
"""What a worker logs of a run whose write the store refused because of its fence."""


class Claim(NamedTuple):
    fence: int
    at: float
    member: int | None
    """None if nobody logged it."""


class Claims:
    """Of every run, in the order of their fences."""

    def __init__(
        self,
        members: Sequence[Member],
        signs: Mapping[str, Mapping[int, float]] | None = None,
        *,
        ahead: float = 0.0,
        lease: float = 2.0,
    ) -> None:
        """`signs` are the first that was heard of each claim elsewhere: a child that its parent has taken along is in no log. `ahead`: by how
        much the store's clock, which journals go by, is ahead of this host's, which logs and blows go by."""
        self._members = {member.number: member for member in members}
        self._ahead, self._lease = ahead, lease
        found: dict[str, list[Claim]] = defaultdict(list)
        self.overtaken = 0
        """Lives whose write the store refused."""
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
        """Recoveries by what had befallen the worker."""

    def recovered(
        self, run: str, end: ExecutionEnd, following_end: ExecutionEnd | None
    ) -> float | None:
        """Seconds from the blow that ended a life (or from when it gave the run back) until the next claim. None if nothing was heard of that one."""
        claims = self._of.get(run, [])
        number = bisect_right([claim.fence for claim in claims], end.fence)
        if not end.fence or number == len(claims):
            return None
        last, following = claims[number - 1] if number else None, claims[number]
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
        """The last that fell on the worker of that life, before its end was noticed. A stop that it had long survived is not what ended it."""
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
                    said = json.loads(line)
                    at = datetime.fromisoformat(said["time"]).timestamp()
                    yield said["run"], int(said["fence"]), at
                except (ValueError, KeyError, TypeError):
                    continue  # something that a program has printed
