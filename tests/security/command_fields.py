"""Find every text field of every command by its type, and attack each of them."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from outlast.store.commands import (
    CHECKPOINT,
    SESSION,
    Command,
    Decide,
    ExtendSession,
    Prune,
    Record,
    Refused,
    RegisterWorker,
    Resume,
    Retry,
    Send,
    Settle,
    Submit,
    UndoChild,
    UpdateSession,
    verdict,
)  # fmt: skip
from outlast.store.protocol import BadValue, Store, whole_journal
from outlast.store.rows import RunQuery, RunRow
from outlast.store.session_rows import SessionQuery, SessionRow

COMMANDS: tuple[type, ...] = typing.get_args(Command)
STATUS_BEFORE = {Retry: "failed", Resume: "parked", Decide: "parked", UndoChild: "done"}
"""Of the run that a command is about, where it must have ended."""
JSON_FIELDS = {
    "args": "{}", "value": "1", "error": "{}", "report": "{}", "cost": "{}", "verdict": verdict("failed"), "decision": '{"what":"happened","intent":0}',
    "status": "done", "kind": "step", "space": SESSION,
}  # fmt: skip


class Leaf(NamedTuple):
    """One text of one command."""

    command: type
    name: str
    put: Callable[[str], dict[str, Any]]
    """The text, as the value of a field."""


def leaves(command: type) -> Iterator[Leaf]:
    for name, kind in typing.get_type_hints(command).items():
        for number, put in enumerate(_puts(kind)):
            yield Leaf(
                command,
                f"{command.__name__}.{name}[{number}]",
                lambda text, put=put, name=name: {name: put(text)},
            )


def _puts(kind: Any) -> Iterator[Callable[[str], Any]]:
    """Ways to put a text into a value of a type."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is str:
        yield lambda text: text
    elif origin in (typing.Union, types.UnionType):
        for arg in args:
            yield from _puts(arg)
    elif origin is tuple and args[-1:] == (...,):
        for put in _puts(args[0]):
            yield lambda text, put=put: (put(text),)
    elif origin is tuple:
        for place, arg in enumerate(args):
            for put in _puts(arg):
                yield lambda text, put=put, place=place: tuple(
                    put(text) if at == place else "plain" if other is str else 1.0
                    for at, other in enumerate(args)
                )
    elif origin is dict:
        yield lambda text: {text: _value(args[1], "f")}
        for put in _puts(args[1]):
            yield lambda text, put=put: {"f": put(text)}
    elif hasattr(kind, "_fields"):
        for name, inner in typing.get_type_hints(kind).items():
            for put in _puts(inner):
                yield lambda text, put=put, name=name: _built(kind, **{name: put(text)})


def _built(kind: Any, /, **given: Any) -> Any:
    needed = {
        name: one
        for name, one in typing.get_type_hints(kind).items()
        if name not in kind._field_defaults
    }
    return kind(**{name: _value(one, name) for name, one in needed.items()} | given)


def _value(kind: Any, name: str) -> Any:
    """A harmless one."""
    if name in JSON_FIELDS:
        return JSON_FIELDS[name]
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _value(args[0], name)
    if origin is tuple:
        return (
            (_value(args[0], name),)
            if args[-1:] == (...,)
            else tuple(_value(one, name) for one in args)
        )
    if origin is dict:
        return {}
    if hasattr(kind, "_fields"):
        return _built(kind)
    return {str: "plain", int: 1, float: 1.0, bool: False}[kind]


LEAVES = [leaf for command in COMMANDS for leaf in leaves(command)]


class World:
    """A store with canaries, in which every text of every command is set to one text in turn."""

    def __init__(self, store: Store, text: str) -> None:
        self.store, self.text, self.outcomes = store, text, dict[str, Any]()
        self._canaries()

    def _canaries(self) -> None:
        held = self.store.commit(
            [
                RegisterWorker("w", "host", 1, 1e6),
                Submit("canary", "flow", "{}", "t", "00" * 16, worker="w"),
                Send("canary", "name", "m", '"message"'),
                UpdateSession("canary", "t", {"field": '"kept"'}),
                UpdateSession("canary", "t", {"field": '"kept"'}, space=CHECKPOINT),
            ]
        )[1].row
        self.store.commit([Record(held.pk, 1, held.fence, "step", "a#1", 1.0, value='"recorded"')])

    def attack(self) -> None:
        rows = self._runs()
        for number, leaf in enumerate(LEAVES):
            command = self._prepared(leaf, number, rows[number])
            try:
                (outcome,) = self.store.commit([command])
            except BadValue:
                outcome = "a bad value"
            self.outcomes[leaf.name] = outcome

    def _runs(self) -> list[RunRow]:
        """Make a run for each case, held by a worker of its own, in the status that the case needs."""
        made = [
            command
            for number in range(len(LEAVES))
            for command in (
                RegisterWorker(f"worker{number}", "host", 1, 1e6),
                Submit(
                    f"case{number}",
                    "flow",
                    "{}",
                    f"t{number}",
                    "00" * 16,
                    parent="parent",
                    worker=f"worker{number}",
                ),
            )
        ]
        rows = [outcome.row for outcome in self.store.commit(made)[1::2]]
        settled = [
            Settle(row.pk, row.fence, STATUS_BEFORE[leaf.command])
            for leaf, row in zip(LEAVES, rows, strict=True)
            if leaf.command in STATUS_BEFORE
        ]
        self.store.commit(settled)
        return rows

    def _prepared(self, leaf: Leaf, number: int, row: RunRow) -> Any:
        """A command that does something to a run of its own, with the text in one place."""
        id, worker = f"case{number}", f"worker{number}"
        given = {
            "id": id, "run": row.pk, "fence": row.fence, "worker": worker, "token": f"token{number}", "session": f"session{number}", "parent": "parent",
            "queue": "default", "seen": 0, "seq": 1,
        }  # fmt: skip
        known = {name: value for name, value in given.items() if name in leaf.command._fields}  # type: ignore[attr-defined]
        if leaf.command is Submit:
            known["id"] = f"new{number}"
        if leaf.command is Prune:
            known["before"] = 0.0
        if leaf.command is UpdateSession:
            known["fields"] = {"f": "1"}
        if leaf.command is ExtendSession:
            known["ttl"] = None
        put = {
            name: value._replace(run=row.pk, fence=row.fence)
            if isinstance(value, Record)
            else value
            for name, value in leaf.put(self._text_of(number)).items()
        }
        return _built(leaf.command, **known | put)

    def _text_of(self, number: int) -> str:
        return f"{self.text}{number}"

    def dump(self) -> list[Any]:
        """Everything that the store tells of what is in it."""
        store = self.store
        runs = store.runs(RunQuery(limit=1_000_000))
        texts = {
            self._text_of(number)
            for number, leaf in enumerate(LEAVES)
            if "space" in leaf.command._fields
        }
        spaces = {SESSION, CHECKPOINT, *texts}
        sessions = [(space, one) for space in sorted(spaces) for one in _sessions(store, space)]
        pairs = store.measured()
        workers = store.workers()
        told = [
            *(("run", run) for run in runs),
            *(("entry", run.id, entry) for run in runs for entry in whole_journal(store, run.pk)),
            *(("message", run.id, message) for run in runs for message in store.messages(run.pk)),
            *(("progress", run.id, store.progress(run.pk)) for run in runs),
            *(("session", *one) for one in sessions),
            *(
                ("items", space, one.id, name, store.items(one.id, name, space=space))
                for space, one in sessions
                for name in one.lists
            ),
            *(
                (
                    "worker",
                    worker,
                    store.asked(worker.id),
                    sorted(run for run, *_ in store.held(worker.id)),
                    store.cancels(worker.id),
                )
                for worker in workers
            ),
            *(("drain", drain) for drain in store.drains(1_000)),
            *(("queue", queue, store.depth(queue.name)) for queue in store.queues()),
            *(("durations", pair, store.durations([pair])[pair]) for pair in pairs),
        ]
        return [plain(one) for one in told]


def _sessions(store: Store, space: str) -> list[SessionRow]:
    try:
        return store.sessions(SessionQuery(space, "", 10_000, values=True))
    except BadValue:  # what cannot be stored cannot be asked for either
        return []


def plain(value: Any) -> Any:
    """Rows as lists and dicts; JSON in a text as what it says, so that a text in it is compared as a text. Fences are a store's own."""
    if isinstance(value, str):
        try:
            read = json.loads(value)
        except ValueError:
            return value
        return {"json": plain(read)} if isinstance(read, (dict, list)) else value
    if hasattr(value, "_asdict"):
        return {
            name: plain(one if name != "fence" else one > 0)
            for name, one in value._asdict().items()
        }
    if isinstance(value, dict):
        return {plain(name): plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def swapped(value: Any, old: str, new: str) -> Any:
    """With one text in place of another, wherever it is."""
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, dict):
        return {swapped(name, old, new): swapped(one, old, new) for name, one in value.items()}
    if isinstance(value, Refused):
        return Refused(value.why, swapped(value.detail, old, new))
    return [swapped(one, old, new) for one in value] if isinstance(value, list) else value


def in_order(told: list[Any]) -> list[str]:
    """Whatever order the texts have."""
    return sorted(json.dumps(one, sort_keys=True) for one in told)
