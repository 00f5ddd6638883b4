"""Reading a ledger of jobs: who began and ended which stage of which job when, and what a death made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

LAST_MOMENT_SECONDS = 0.05
"""What may pass between the signal and A's having heard of it; what A begins in between is not held against it."""


class Case(NamedTuple):
    """The jobs of the ledger and the stages of each. The first stage takes no time, the second counts from the moment its gate was opened."""

    jobs: int
    stages: int
    stage_seconds: float
    opened: float
    """When the gate was. All times are of one monotonic clock."""
    struck: float
    """When A was."""
    gone: float
    """When A was gone, or was let go on."""


class Attempt(NamedTuple):
    job: int
    stage: int
    worker: str
    began: float
    ended: float | None


class Attempts:
    """Every execution of a stage."""

    def __init__(self, text: str) -> None:
        self.all: list[Attempt] = list(_attempts(text))

    def begun(self, stage: int, jobs: int) -> bool:
        """All jobs have got to this stage."""
        return len({attempt.job for attempt in self.all if attempt.stage >= stage}) == jobs

    def only(self, worker: str) -> bool:
        return all(attempt.worker == worker for attempt in self.all)

    def finished(self, case: Case) -> set[int]:
        """The jobs whose last stage has ended."""
        return {
            one.job for one in self.all if one.stage == case.stages - 1 and one.ended is not None
        }

    def all_over(self, case: Case) -> bool:
        return len(self.finished(case)) == case.jobs

    def found(self, case: Case) -> dict[str, Any]:
        """As the report has it. Seconds count from the blow."""
        after = [one for one in self.all if one.began > case.struck]
        taken = _first_times([one for one in after if one.worker != "a"])
        finished, own = self.finished(case), self._finished_by_a(case)
        others = set(range(case.jobs)) - own
        return {
            "age_seconds": case.struck - min(one.began for one in self.all),
            "begun_after": sum(
                one.worker == "a" and one.began > case.struck + LAST_MOMENT_SECONDS for one in after
            ),
            "finished_by_a": len(own),
            "taken": len(taken),
            "taken_first": min(taken.values()) - case.struck if taken else None,
            "taken_last": max(taken[job] for job in others) - case.struck
            if others and others <= set(taken)
            else None,
            "finished": len(finished),
            "finished_last": max(self._ends(case).values()) - case.struck
            if len(finished) == case.jobs
            else None,
            "redone_seconds": self._redone_seconds(case),
            "done_twice": self._done_twice(),
            "unfinished": case.jobs - len(finished),
        }

    def _finished_by_a(self, case: Case) -> set[int]:
        """Before anybody else had: a silent worker that is back may end once more what another has ended long since."""
        ends = self._ends(case)
        return {
            one.job
            for one in self.all
            if one.stage == case.stages - 1 and one.worker == "a" and one.ended == ends.get(one.job)
        }

    def _ends(self, case: Case) -> dict[int, float]:
        """When each job ended for the first time."""
        ends: dict[int, float] = {}
        for one in self.all:
            if one.stage == case.stages - 1 and one.ended is not None:
                ends[one.job] = min(ends.get(one.job, one.ended), one.ended)
        return ends

    def _redone_seconds(self, case: Case) -> float:
        """Work that was done in vain or again: all that was done, less once what each stage takes that has ended."""
        staged = [one for one in self.all if one.stage > 0]
        done = sum(self._seconds(one, case) for one in staged)
        ended = {(one.job, one.stage) for one in staged if one.ended is not None}
        begun = {(one.job, one.stage) for one in staged}
        under_way = sum(  # begun once and not ended is not in vain yet
            self._seconds(one, case) for one in staged if (one.job, one.stage) in begun - ended
        )
        return max(0.0, done - len(ended) * case.stage_seconds - under_way)

    def _seconds(self, one: Attempt, case: Case) -> float:
        if one.ended is not None:
            return case.stage_seconds
        if one.worker != "a":
            return 0.0  # it is under way
        others = [other.began for other in self.all if other.job == one.job and other.worker != "a"]
        until = min([case.gone, *others])  # who gives a job up is not working on it any more
        return min(max(0.0, until - max(one.began, case.opened)), case.stage_seconds)

    def _done_twice(self) -> int:
        """Stages that ended more than once: their effects happened more than once."""
        ends = Counter((one.job, one.stage) for one in self.all if one.ended is not None)
        return sum(count - 1 for count in ends.values())


def _first_times(attempts: list[Attempt]) -> dict[int, float]:
    found: dict[int, float] = {}
    for one in attempts:
        found[one.job] = min(found.get(one.job, one.began), one.began)
    return found


def _attempts(text: str) -> Iterator[Attempt]:
    """A line that was cut by a death has no newline; an end belongs to the last beginning of the same worker."""
    open_ones: dict[tuple[int, int, str], list[float]] = {}
    whole = text[: text.rfind("\n") + 1]
    for line in whole.splitlines():
        what, job, stage, worker, at = line.split()
        key = int(job), int(stage), worker
        if what == "begin":
            open_ones.setdefault(key, []).append(float(at))
        else:
            yield Attempt(*key, open_ones[key].pop(), float(at))
    for key, times in open_ones.items():
        for began in times:
            yield Attempt(*key, began, None)
