"""Decode the answer of the commit function into one outcome per command.

`functions/10_commit.sql` documents what the server-side functions return.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from outlast.store import commands
from outlast.store.commands import Command, Refused, Submitted, Swept
from outlast.store.rows import RunRow
from outlast.store.session_answers import outcome_of

FIELDS = len(RunRow._fields)
BRIEF = 9
"""Number of fields in a row as the function `brief` sends it."""


class Answer:
    def __init__(self, text: bytes, shape: Sequence[tuple[type, Sequence[Command]]]) -> None:
        self.now: float
        self.notifies: bool
        self.now, self.notifies, groups = json.loads(text)
        self.scans: list[tuple[float, int, Any]] = []
        """For each claim: the seconds its scan took, the entries it walked over, and the first runs
        it found.
        """
        self.places: list[Any] = []
        """Where each Prune stopped. None means at the end."""
        self.late: dict[int, int] = {}
        """The fences of the runs whose rows are still to be read, by run number."""
        self.outcomes: list[Any] = []
        for (kind, some), group in zip(shape, groups, strict=True):
            if group is None:
                self.outcomes += [None] * len(some)
            elif group is True:
                self.outcomes += [Submitted(None, new=True)] * len(some)
            else:
                self.outcomes += [
                    self._outcome(kind, each, command)
                    for each, command in zip(group, some, strict=True)
                ]

    def _outcome(self, kind: type, answer: Any, command: Command) -> Any:
        if type(answer) is dict:
            return Refused(*answer["!"]) if "!" in answer else outcome_of(answer)
        if type(command) is commands.SubmitMany and answer is True:
            return [Submitted(None, new=True)] * len(command.runs)
        if type(command) is commands.Claim:
            return self._claimed(answer, command)
        read = _READ.get(kind)
        return answer if read is None else read(self, answer)

    def _row(self, answer: Any) -> RunRow | None:
        if answer is None:
            return None
        if len(answer) == FIELDS:
            return RunRow._make(answer)
        self.late[answer[0]] = answer[1]
        return _LATE._replace(pk=answer[0], fence=answer[1])

    def _submitted(self, answer: Any) -> Submitted:
        return Submitted(self._row(answer[0]), answer[1])

    def _all_submitted(self, answer: Any) -> list[Submitted]:
        return [self._submitted(each) for each in answer]

    def _claimed(self, answer: Any, command: commands.Claim) -> list[RunRow | None]:
        rows, scan = answer
        if scan is not None:
            self.scans.append(tuple(scan))
        return [_begun(row, command) if len(row) == BRIEF else self._row(row) for row in rows]

    def _pruned(self, answer: Any) -> Any:
        self.places.append(answer[1])
        return answer[0]

    def fill(self, rows: Sequence[RunRow]) -> bool:
        """Fill in the rows that were too long for the answer.

        A claimed run whose fence has changed since was not claimed, and is left out. Return False
        if a joined run is gone.
        """
        there = {row.pk: row for row in rows}

        def filled(outcome: Any) -> Any:
            if isinstance(outcome, Submitted) and outcome.row is not None and outcome.row.id == "":
                return outcome._replace(row=there.get(outcome.row.pk, outcome.row))
            if isinstance(outcome, list):
                return [one for one in map(filled, outcome) if one is not None]
            if isinstance(outcome, RunRow) and outcome.id == "":
                row = there.get(outcome.pk)
                return row if row is not None and row.fence == outcome.fence else None
            return outcome

        self.outcomes = [filled(outcome) for outcome in self.outcomes]
        return not any(
            outcome.row is not None and outcome.row.id == "" for outcome in _joined(self.outcomes)
        )


def _joined(outcomes: Sequence[Any]) -> Iterator[Submitted]:
    for outcome in outcomes:
        if isinstance(outcome, Submitted):
            yield outcome
        elif isinstance(outcome, list):
            yield from _joined(outcome)


def _begun(answer: list[Any], command: commands.Claim) -> RunRow:
    """Return the row of a run that starts for the first time. Nothing happened to it before this
    claim.
    """
    pk, fence, priority, created, started, due, attempts_max, interruptions_max, texts = answer
    id, workflow, args, queue, seed = texts
    return RunRow(
        pk,
        id,
        workflow,
        args,
        queue,
        priority,
        "running",
        fence,
        command.worker,
        command.token,
        seed,
        None,
        created,
        started,
        due,
        None,
        None,
        None,
        None,
        0,
        0,
        "",
        None,
        None,
        None,
        None,
        None,
        1,
        0,
        0,
        0,
        0,
        0,
        attempts_max,
        interruptions_max,
        None,
        None,
    )


_LATE = RunRow._make([0, "", *[None] * (FIELDS - 2)])

_READ: dict[type, Callable[[Answer, Any], Any]] = {
    commands.Submit: Answer._submitted,
    commands.SubmitMany: Answer._all_submitted,
    commands.Prune: Answer._pruned,
    commands.Sweep: lambda _, answer: Swept(*map(tuple, answer)),
    commands.Drain: lambda _, answer: tuple(answer),
}
