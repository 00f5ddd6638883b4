"""Encode a batch of commands as one call of the commit function.

`functions/10_commit.sql` documents what the server-side functions take.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import groupby
from math import isfinite
from typing import Any, NamedTuple, cast

from outlast.store import commands
from outlast.store.commands import Command
from outlast.store.protocol import BadValue
from outlast.store.session_answers import check_distinct


class Call(NamedTuple):
    runs: str
    """The numbers of the runs that fenced commands name, as a PostgreSQL array."""
    needs: str | None
    groups: str
    shape: list[tuple[type, list[Command]]]
    """The kind of each group, and its commands."""


class _Needs:
    """Collect what a batch must lock: see the function `lock`."""

    def __init__(self) -> None:
        self.runs: set[int] = set()
        self.lists: dict[str, list[Any]] = {}
        self.depth_max: dict[str, int | None] = {}
        """The lowest limit that a command sets, by queue."""
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


def call(
    batch: Sequence[Command], scan_cursors: Any, place: Callable[[commands.Prune], Any]
) -> Call:
    """Encode a batch. `place` returns where a Prune continues.

    Raise BadValue for a value that JSON cannot carry.
    """
    try:
        if all(type(command) is commands.Record for command in batch):
            return _records(batch)
        return _mixture(batch, scan_cursors, place)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadValue(str(error)) from error


def _records(batch: Sequence[Any]) -> Call:
    """Encode a batch of Records only, the most frequent kind."""
    groups = _dumps([("Record", batch)])
    return Call(
        _array({command.run for command in batch}), None, groups, [(commands.Record, list(batch))]
    )


def _mixture(
    batch: Sequence[Command], scan_cursors: Any, place: Callable[[commands.Prune], Any]
) -> Call:
    needs = _Needs()
    groups: list[Any] = []
    shape: list[tuple[type, list[Command]]] = []
    for (kind, _), group in groupby(batch, _alike):
        some = list(group)
        need = _NEEDS.get(kind)
        if need is not None:
            for command in some:
                need(needs, command)
        sent: list[Any] = some
        if kind is commands.Claim:
            sent = [(*command, scan_cursors) for command in some]
        elif kind is commands.Prune:
            sent = [_with_place(cast("commands.Prune", command), place) for command in some]
        elif kind is commands.Publish:
            sent = [_counted(cast("commands.Publish", command)) for command in some]
        elif kind is commands.Decide:
            sent = [_with_token(cast("commands.Decide", command)) for command in some]
        groups.append((kind.__name__, sent))
        shape.append((kind, some))
    waits = [kind for kind, _ in shape if kind in _WAIT_FOR_RUNS]
    if len(waits) == 1 and waits[0] in _IN_ORDER and "ids" not in needs.lists:
        # The group's own statement locks these runs, and no other group waits for any.
        needs.runs.clear()
        needs.lists.pop("enders", None)
    return Call(_array(needs.runs), needs.document(), _dumps(groups), shape)


def _alike(command: Command) -> tuple[type, bool]:
    return type(command), type(command) is commands.Submit and command.worker is not None


_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _array(numbers: set[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def record_values(command: Command, writer: str, epoch: int) -> list[bytes | None] | None:
    """Return the values for the statement RECORD.

    Return None for another command, or for a value that the server would refuse or change.
    """
    if type(command) is not commands.Record:
        return None
    try:
        values = [None if part is None else _encoded(part) for part in (*command, writer, epoch)]
    except ValueError:
        return None
    return values


def _encoded(part: Any) -> bytes:
    """Return a value as libpq takes it. Raise ValueError for one that it cannot carry."""
    # Subclasses of str count too, as they do in JSON.
    if isinstance(part, str):
        encoded = str.encode(part)
        if b"\0" in encoded:
            raise ValueError("a text contains a zero byte, which Postgres cannot store")
        return encoded
    if type(part) is float and not isfinite(part):
        raise ValueError(part)
    return repr(part).encode()


# -- the locks that a command needs


def _changes(
    needs: _Needs,
    command: commands.Record
    | commands.SaveProgress
    | commands.Publish
    | commands.SetWaiting
    | commands.Undo
    | commands.Ack,
) -> None:
    needs.runs.add(command.run)


def _may_end(needs: _Needs, command: commands.Settle | commands.Release) -> None:
    needs.runs.add(command.run)
    needs.add("enders", command.run)


def _named(
    needs: _Needs, command: commands.Send | commands.Resume | commands.Decide | commands.UndoChild
) -> None:
    needs.add("ids", command.id)


def _with_parent(needs: _Needs, command: commands.Cancel | commands.Retry) -> None:
    needs.add("ender_ids", command.id)


def _submit(needs: _Needs, command: commands.Submit) -> None:
    if command.worker is not None:
        needs.add("readers", command.worker)
    else:
        if command.replace:
            needs.add("ids", command.id)
        asked, known = command.depth_max, needs.depth_max.get(command.queue)
        needs.depth_max[command.queue] = (
            min(asked, known)
            if asked is not None and known is not None
            else asked
            if known is None
            else known
        )


def _submit_many(needs: _Needs, command: commands.SubmitMany) -> None:
    for run in command.runs:
        _submit(needs, run)


def _claim(needs: _Needs, command: commands.Claim) -> None:
    needs.add("readers", command.worker)
    if command.ids:
        needs.add("ids", *command.ids)
        needs.add("claim_ids", *command.ids)
    elif not command.queues:
        needs.claims = None
    elif needs.claims is not None:
        needs.claims += command.queues


def _worker(
    needs: _Needs, command: commands.RegisterWorker | commands.Renew | commands.RequestDrain
) -> None:
    needs.add("workers", command.worker)


def _leaver(needs: _Needs, command: commands.DeregisterWorker | commands.Drain) -> None:
    needs.add("leavers", command.worker)


def _session(needs: _Needs, command: commands.UpdateSession | commands.DeleteSession) -> None:
    needs.add("sessions", (command.space, command.session))
    needs.add("made", (command.space, command.session))
    if command.record is not None:
        needs.runs.add(command.record.run)


def _sessions(needs: _Needs, command: commands.UpdateSessions) -> None:
    check_distinct(command)
    for change in command.changes:
        _session(needs, change)
    if command.record is not None:
        needs.runs.add(command.record.run)


_NEEDS: dict[type, Callable[[_Needs, Any], None]] = {
    commands.Record: _changes,
    commands.SaveProgress: _changes,
    commands.Publish: _changes,
    commands.SetWaiting: _changes,
    commands.Undo: _changes,
    commands.Ack: _changes,
    commands.Settle: _may_end,
    commands.Release: _may_end,
    commands.Send: _named,
    commands.Retry: _with_parent,
    commands.Resume: _named,
    commands.Decide: _named,
    commands.UndoChild: _named,
    commands.Cancel: _with_parent,
    commands.Submit: _submit,
    commands.SubmitMany: _submit_many,
    commands.Claim: _claim,
    commands.RegisterWorker: _worker,
    commands.Renew: _worker,
    commands.RequestDrain: _worker,
    commands.DeregisterWorker: _leaver,
    commands.Drain: _leaver,
    commands.Sweep: lambda needs, _: needs.lists.update(sweep=[True]),
    commands.SetQueueLimits: lambda needs, command: needs.add("limits", command.queue),
    commands.UpdateSession: _session,
    commands.UpdateSessions: _sessions,
    commands.DeleteSession: _session,
    commands.ExtendSession: lambda needs, command: needs.add(
        "sessions", (command.space, command.session)
    ),
}


_IN_ORDER = {commands.Ack, commands.Settle}
"""Commands whose group locks all its runs in one statement. Only their worker locks many of these
runs, so that is order enough, and a deadlock costs no more than a wait: see AGAIN.
"""
_WAIT_FOR_RUNS = set(_NEEDS) - {
    commands.Claim,
    commands.Submit,
    commands.SubmitMany,
    commands.RegisterWorker,
    commands.Renew,
    commands.RequestDrain,
    commands.SetQueueLimits,
}
"""Commands that wait for runs that other transactions have locked."""


def _with_place(command: commands.Prune, place: Callable[[commands.Prune], Any]) -> tuple[Any, ...]:
    """Return the Prune as the function takes it. `dead` was added later and comes last."""
    return (
        command.before,
        command.limit,
        command.items,
        command.sessions,
        command.ids,
        place(command),
        command.dead,
    )


def _counted(command: commands.Publish) -> tuple[Any, ...]:
    """Return the Publish as the function takes it."""
    return (
        *command[:6],
        len(command.values),
        commands.chunk_of(command.values),
        command.resumes,
        command.last,
        command.record,
        commands.FOLD_MAX,
    )


def _with_token(command: commands.Decide) -> commands.Decide:
    try:
        return command._replace(
            decision=json.dumps(json.loads(command.decision) | {"token": command.token})
        )
    except (ValueError, TypeError) as error:
        raise BadValue(f"a decision must be a JSON object: {error}") from None
