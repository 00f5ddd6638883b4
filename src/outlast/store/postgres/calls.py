"""A batch of verbs as one call, and its answer as outcomes. What the functions in the server take and give is said in `functions/10_commit.sql`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from math import isfinite
from typing import Any, NamedTuple, cast

from outlast.store import verbs
from outlast.store.protocol import BadValue
from outlast.store.rows import RunRow
from outlast.store.verbs import Refused, Submitted, Swept, Verb

FIELDS = len(RunRow._fields)
BRIEF = 9
"""Parts of a row as the function `brief` sends it."""


class Call(NamedTuple):
    runs: str
    """The numbers of runs that fenced verbs name, as an array of Postgres."""
    needs: str | None
    groups: str
    shape: list[tuple[type, list[Verb]]]
    """The kinds of its groups, and the verbs of each."""


class _Needs:
    """What a batch must lock: see the function `lock`."""

    def __init__(self) -> None:
        self.runs: set[int] = set()
        self.lists: dict[str, list[Any]] = {}
        self.depth_max: dict[str, int | None] = {}
        """The least that is asked for, of each queue."""
        self.claims: list[str] | None = []

    def add(self, what: str, *things: Any) -> None:
        self.lists.setdefault(what, []).extend(things)

    def document(self) -> str:
        found: dict[str, Any] = dict(self.lists)
        if self.depth_max:
            found["depths"], found["depth_max"] = list(self.depth_max), self.depth_max
        if self.claims is None or self.claims:
            found["claims"] = self.claims
        return _dumps(found)


def call(batch: Sequence[Verb], floors: Any, place: Callable[[verbs.Prune], Any]) -> Call:
    """`place`: where a Prune goes on. BadValue for what JSON cannot carry."""
    try:
        if all(type(verb) is verbs.Record for verb in batch):
            return _records(batch)
        return _mixture(batch, floors, place)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadValue(str(error)) from error


def _records(batch: Sequence[Any]) -> Call:
    """Most batches are entries and nothing else."""
    groups = _dumps([("Record", batch)])
    return Call(_array({verb.run for verb in batch}), None, groups, [(verbs.Record, list(batch))])


def _mixture(batch: Sequence[Verb], floors: Any, place: Callable[[verbs.Prune], Any]) -> Call:
    needs = _Needs()
    groups: list[Any] = []
    shape: list[tuple[type, list[Verb]]] = []
    for (kind, _), group in groupby(batch, _alike):
        some = list(group)
        need = _NEEDS.get(kind)
        if need is not None:
            for verb in some:
                need(needs, verb)
        sent: list[Any] = some
        if kind is verbs.Claim:
            sent = [(*verb, floors) for verb in some]
        elif kind is verbs.Prune:
            sent = [_with_place(cast("verbs.Prune", verb), place) for verb in some]
        elif kind is verbs.Decide:
            sent = [_with_token(cast("verbs.Decide", verb)) for verb in some]
        groups.append((kind.__name__, sent))
        shape.append((kind, some))
    waits = [kind for kind, _ in shape if kind in _WAIT_FOR_RUNS]
    if len(waits) == 1 and waits[0] in _IN_ORDER and "ids" not in needs.lists:
        needs.runs.clear()  # they are locked by its statement, and no other one waits for any
        needs.lists.pop("enders", None)
    return Call(_array(needs.runs), needs.document(), _dumps(groups), shape)


def _alike(verb: Verb) -> tuple[type, bool]:
    return type(verb), type(verb) is verbs.Submit and verb.worker is not None


_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _array(numbers: set[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def record_values(verb: Verb, writer: str, epoch: int) -> list[bytes | None] | None:
    """For the statement RECORD. None if the verb is another, or has something in it that the server would not take, or not as it is."""
    if type(verb) is not verbs.Record:
        return None
    try:
        values = [None if part is None else _word(part) for part in (*verb, writer, epoch)]
    except ValueError:
        return None
    return values


def _word(part: Any) -> bytes:
    """A value as libpq takes it. ValueError."""
    if isinstance(part, str):  # of whatever class: as JSON has it
        word = str.encode(part)
        if b"\0" in word:
            raise ValueError("libpq would end it there")
        return word
    if type(part) is float and not isfinite(part):
        raise ValueError(part)
    return repr(part).encode()


# -- what a verb needs


def _changes(needs: _Needs, verb: verbs.Record | verbs.Save | verbs.Wait | verbs.Undo | verbs.Ack) -> None:
    needs.runs.add(verb.run)


def _may_end(needs: _Needs, verb: verbs.Settle | verbs.Release) -> None:
    needs.runs.add(verb.run)
    needs.add("enders", verb.run)


def _named(needs: _Needs, verb: verbs.Send | verbs.Resume | verbs.Decide | verbs.UndoChild) -> None:
    needs.add("ids", verb.id)


def _with_parent(needs: _Needs, verb: verbs.Cancel | verbs.Retry) -> None:
    needs.add("ender_ids", verb.id)


def _submit(needs: _Needs, verb: verbs.Submit) -> None:
    if verb.worker is not None:
        needs.add("readers", verb.worker)
    else:
        asked, known = verb.depth_max, needs.depth_max.get(verb.queue)
        needs.depth_max[verb.queue] = (
            min(asked, known)
            if asked is not None and known is not None
            else asked
            if known is None
            else known
        )


def _submit_many(needs: _Needs, verb: verbs.SubmitMany) -> None:
    for run in verb.runs:
        _submit(needs, run)


def _claim(needs: _Needs, verb: verbs.Claim) -> None:
    needs.add("readers", verb.worker)
    if verb.ids:
        needs.add("ids", *verb.ids)
    elif not verb.queues:
        needs.claims = None
    elif needs.claims is not None:
        needs.claims += verb.queues


def _worker(needs: _Needs, verb: verbs.Enlist | verbs.Renew | verbs.AskDrain) -> None:
    needs.add("workers", verb.worker)


def _leaver(needs: _Needs, verb: verbs.Leave | verbs.Drain) -> None:
    needs.add("leavers", verb.worker)


def _session(needs: _Needs, verb: verbs.Keep | verbs.Forget) -> None:
    needs.add("sessions", (verb.space, verb.session))
    needs.add("made", (verb.space, verb.session))
    if verb.record is not None:
        needs.runs.add(verb.record.run)


_NEEDS: dict[type, Callable[[_Needs, Any], None]] = {
    verbs.Record: _changes,
    verbs.Save: _changes,
    verbs.Wait: _changes,
    verbs.Undo: _changes,
    verbs.Ack: _changes,
    verbs.Settle: _may_end,
    verbs.Release: _may_end,
    verbs.Send: _named,
    verbs.Retry: _with_parent,
    verbs.Resume: _named,
    verbs.Decide: _named,
    verbs.UndoChild: _named,
    verbs.Cancel: _with_parent,
    verbs.Submit: _submit,
    verbs.SubmitMany: _submit_many,
    verbs.Claim: _claim,
    verbs.Enlist: _worker,
    verbs.Renew: _worker,
    verbs.AskDrain: _worker,
    verbs.Leave: _leaver,
    verbs.Drain: _leaver,
    verbs.Sweep: lambda needs, _: needs.lists.update(sweep=[True]),
    verbs.Limit: lambda needs, verb: needs.add("limits", verb.queue),
    verbs.Keep: _session,
    verbs.Forget: _session,
    verbs.Touch: lambda needs, verb: needs.add("sessions", (verb.space, verb.session)),
}


_IN_ORDER = {verbs.Ack, verbs.Settle}
"""Verbs of which a group locks all its runs by one statement. Nobody but their worker locks many of these, so that is order enough; and a
deadlock is no more than a wait: see AGAIN."""
_WAIT_FOR_RUNS = set(_NEEDS) - {
    verbs.Claim,
    verbs.Submit,
    verbs.SubmitMany,
    verbs.Enlist,
    verbs.Renew,
    verbs.AskDrain,
    verbs.Limit,
}
"""Verbs that wait for runs that others have locked."""


def _with_place(verb: verbs.Prune, place: Callable[[verbs.Prune], Any]) -> tuple[Any, ...]:
    """As the function takes it: `dead`, which came later, last."""
    return (verb.before, verb.limit, verb.items, verb.sessions, verb.ids, place(verb), verb.dead)


def _with_token(verb: verbs.Decide) -> verbs.Decide:
    try:
        return verb._replace(decision=json.dumps(json.loads(verb.decision) | {"token": verb.token}))
    except (ValueError, TypeError) as error:
        raise BadValue(f"a decision must be a JSON object: {error}") from None


# -- what comes back


class Answer:
    def __init__(self, text: bytes, shape: Sequence[tuple[type, Sequence[Verb]]]) -> None:
        self.now: float
        self.rings: bool
        self.now, self.rings, groups = json.loads(text)
        self.scans: list[tuple[float, int, Any]] = []
        """How long each claim looked for something, over how many entries, and the first runs that it found."""
        self.places: list[Any] = []
        """Where each Prune stopped; None: at the end."""
        self.late: dict[int, int] = {}
        """The fences of runs whose rows are still to be read, by their numbers."""
        self.outcomes: list[Any] = []
        for (kind, some), group in zip(shape, groups, strict=True):
            if group is None:
                self.outcomes += [None] * len(some)
            elif group is True:
                self.outcomes += [Submitted(None, new=True)] * len(some)
            else:
                self.outcomes += [
                    self._outcome(kind, each, verb) for each, verb in zip(group, some, strict=True)
                ]

    def _outcome(self, kind: type, said: Any, verb: Verb) -> Any:
        if type(said) is dict:
            return Refused(*said["!"])
        if type(verb) is verbs.SubmitMany and said is True:
            return [Submitted(None, new=True)] * len(verb.runs)
        if type(verb) is verbs.Claim:
            return self._claimed(said, verb)
        read = _READ.get(kind)
        return said if read is None else read(self, said)

    def _row(self, said: Any) -> RunRow | None:
        if said is None:
            return None
        if len(said) == FIELDS:
            return RunRow._make(said)
        self.late[said[0]] = said[1]
        return _LATE._replace(pk=said[0], fence=said[1])

    def _submitted(self, said: Any) -> Submitted:
        return Submitted(self._row(said[0]), said[1])

    def _all_submitted(self, said: Any) -> list[Submitted]:
        return [self._submitted(each) for each in said]

    def _claimed(self, said: Any, verb: verbs.Claim) -> list[RunRow | None]:
        rows, scan = said
        if scan is not None:
            self.scans.append(tuple(scan))
        return [_begun(row, verb) if len(row) == BRIEF else self._row(row) for row in rows]

    def _pruned(self, said: Any) -> Any:
        self.places.append(said[1])
        return said[0]

    def fill(self, rows: Sequence[RunRow]) -> bool:
        """Put in the rows that were too long for the answer. What was claimed and is another's by now was not claimed. False if one that was joined
        is gone."""
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
        return not any(outcome.row is not None and outcome.row.id == "" for outcome in _joined(self.outcomes))


def _joined(outcomes: Sequence[Any]) -> Iterator[Submitted]:
    for outcome in outcomes:
        if isinstance(outcome, Submitted):
            yield outcome
        elif isinstance(outcome, list):
            yield from _joined(outcome)


def _begun(said: list[Any], verb: verbs.Claim) -> RunRow:
    """A run in its first life, to which nothing has happened before this claim."""
    pk, fence, priority, created, started, due, attempts_max, interruptions_max, texts = said
    id, workflow, args, queue, seed = texts
    return RunRow(
        pk, id, workflow, args, queue, priority, "running", fence, verb.worker, verb.token, seed, None, created, started, due,
        None, None, None, None, 0, 0, "", None, None, None, None, None, 1, 0, 0, 0, 0, 0, attempts_max, interruptions_max, None, None,
    )  # fmt: skip


_LATE = RunRow._make([0, "", *[None] * (FIELDS - 2)])

_READ: dict[type, Callable[[Answer, Any], Any]] = {
    verbs.Submit: Answer._submitted,
    verbs.SubmitMany: Answer._all_submitted,
    verbs.Prune: Answer._pruned,
    verbs.Sweep: lambda _, said: Swept(*map(tuple, said)),
    verbs.Drain: lambda _, said: tuple(said),
}
