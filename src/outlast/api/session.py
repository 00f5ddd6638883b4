"""Define `Session`: fields and lists that outlive a process and are shared by all processes.

A session has a version and an expiry. In a workflow's own code a call is recorded, so that every
life of the run gets the same answer and a change happens once. Elsewhere, including a step's body,
it is a plain call.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, overload

from outlast.api.session_handle import Awaits
from outlast.api.session_reads import SessionReads
from outlast.codec.codecs import codec_for
from outlast.engine.session_parts import check_size, decoded, encoded, new_token, part_of_update
from outlast.execution.session_changes import Change, ChangeGroup, Outcome
from outlast.store.commands import Changed, Refused, Replace

T = TypeVar("T")


@dataclass(frozen=True)
class SessionChange:
    """A change of one session that has not been made yet, for `update_sessions`."""

    session: Session
    part: Change


class Session(SessionReads):
    """State under an id: `await session.set("name", "Ada")`, `await session.get("name")`.

    A change is durable when its call returns. Every process that has the store open sees the same
    session. Every access keeps it for `ttl` seconds more. Without a `ttl`, an access keeps it for
    at least a day and never shortens its expiry. In a workflow's own code each call is recorded: a
    replay gets the recorded answer, and a change happens once.
    """

    @overload
    def set(self, field: str, value: Any, *, version: int | None = None) -> Awaits[int]: ...
    @overload
    def set(
        self, field: str, value: Any, *, version: int | None = None, if_absent: Literal[True]
    ) -> Awaits[bool]: ...
    def set(
        self, field: str, value: Any, *, version: int | None = None, if_absent: bool = False
    ) -> Awaits[Any]:
        """Set a field and return the session's new version.

        With `if_absent`, set it only if it has no value and is no list, and return whether it was
        set.

        Raise VersionConflict, and write nothing, if `version` is given and is not the current one.
        Version 0 means that the session does not exist yet.
        """
        part = self._part("set", {field: value}, version=version, if_absent=if_absent)
        return self._write(replace(part, result=_was_applied) if if_absent else part)

    def update(
        self,
        fields: Mapping[str, Any] | None = None,
        /,
        *,
        append: Mapping[str, Iterable[Any]] | None = None,
        delete: Iterable[str] = (),
        keep: int | None = None,
        version: int | None = None,
        if_absent: bool | Iterable[str] = False,
        **more: Any,
    ) -> Awaits[int]:
        """Change several fields and lists at once, all or none, and return the new version.

        Call it as `update(name="Ada", age=36)` or `update({"name": "Ada"})`. `append` adds values
        to lists, of which only the newest `keep` items stay. `delete` names fields and lists to
        delete. With `if_absent`, fields that have a value stay as they are: all of `fields`, or
        those that it names. `version` works as in `set`.
        """
        given = self._given("update", fields, append, delete, more)
        return self._write(
            self._part(
                "update", given, append, delete, keep=keep, version=version, if_absent=if_absent
            )
        )

    def change(
        self,
        fields: Mapping[str, Any] | None = None,
        /,
        *,
        append: Mapping[str, Iterable[Any]] | None = None,
        delete: Iterable[str] = (),
        keep: int | None = None,
        version: int | None = None,
        if_absent: bool | Iterable[str] = False,
        **more: Any,
    ) -> SessionChange:
        """Return the change that `update` would make, to be made by `update_sessions`."""
        given = self._given("change", fields, append, delete, more)
        part = self._part(
            "change", given, append, delete, keep=keep, version=version, if_absent=if_absent
        )
        return SessionChange(self, part)

    def append(self, field: str, *values: Any, keep: int | None = None) -> Awaits[int]:
        """Append values to a list and return the session's new version.

        Only the newest `keep` items stay (None: all). A field that had a value becomes a list.
        """
        if not values:
            raise ValueError("append() takes the values to add: append('turns', turn).")
        return self._write(self._part("append", {}, {field: values}, keep=keep))

    @overload
    def pop(self, field: str, count: int = 1) -> Awaits[list[Any]]: ...
    @overload
    def pop(self, field: str, count: int = 1, *, type: type[T]) -> Awaits[list[T]]: ...
    def pop(
        self, field: str, count: int = 1, *, type: builtins.type[Any] = object
    ) -> Awaits[list[Any]]:
        """Remove the newest `count` items of a list and return them, oldest first, each as `type`.

        Return fewer if the list is shorter. A list without items is deleted.
        """
        if builtins.type(count) is not int or count < 1:
            raise ValueError(f"count={count!r} must be a whole number from 1.")
        field, codec = self._field(field), codec_for(type)
        what = f"an item popped from list {field!r} of {self._at}"

        def result(outcome: Outcome) -> list[Any]:
            texts = outcome.popped.get(field, ()) if isinstance(outcome, Changed) else ()
            return [decoded(codec, text, what) for text in texts]

        return self._write(
            Change(self._at, self._name("pop"), new_token(), pops={field: count}, result=result)
        )

    def replace(self, field: str, index: int, value: Any) -> Awaits[int]:
        """Replace one item of a list and return the session's new version.

        A negative index counts from the end. Raise IndexError if there is no such item.
        """
        if type(index) is not int:
            raise ValueError(f"index={index!r} must be a whole number.")
        item = Replace(index, encoded(self._at, field, value))
        part = Change(
            self._at, self._name("replace"), new_token(), replaces={self._field(field): item}
        )
        check_size(self._settings, str(self._at), part)
        return self._write(part)

    def delete(self, *fields: str) -> Awaits[int]:
        """Delete fields and lists and return the session's new version, or 0 if it does not exist.

        `clear()` deletes the whole session.
        """
        if not fields:
            raise ValueError("delete() takes names of fields. clear() deletes the whole session.")
        return self._write(self._part("delete", {}, None, fields))

    def clear(self) -> Awaits[None]:
        """Delete the session, including its version. An owner empties it and stays its owner."""
        part = Change(self._at, self._name("clear"), new_token(), result=_nothing)
        owned = self._at.owner is not None
        return self._write(replace(part, empty=True) if owned else replace(part, forget=True))

    def take(self) -> Awaits[Session]:
        """Become the session's only owner, and return a handle for the owner's writes.

        Once another process takes the session, the handle's writes raise NotOwner and change
        nothing. A session that does not exist is created. Writes through handles that did not take
        the session are not checked.
        """
        unowned = replace(self._at, owner=None)
        return self._write(
            Change(unowned, self._name("take"), new_token(), take=True, result=self._taken)
        )

    def owned_by(self, owner: int) -> Session:
        """Return a handle that writes as the owner with this number, as `take` numbered it.

        Use it where only the number is at hand, such as in a process that got it in a message.
        """
        if type(owner) is not int:
            raise TypeError(f"owner={owner!r} must be the number of an owner.")
        owned = copy(self)
        owned._at = replace(self._at, owner=owner)
        return owned

    def _taken(self, outcome: Outcome) -> Session:
        assert isinstance(outcome, Changed), outcome
        assert outcome.owner is not None, outcome
        return self.owned_by(outcome.owner)

    # -- building changes

    def _given(
        self,
        name: str,
        fields: Mapping[str, Any] | None,
        append: Mapping[str, Iterable[Any]] | None,
        delete: Iterable[str],
        more: dict[str, Any],
    ) -> dict[str, Any]:
        given = {**(fields or {}), **more}
        if not given and not append and not delete:
            raise ValueError(f"{name}() takes the fields to set.")
        return given

    def _part(self, name: str, *args: Any, **options: Any) -> Change:
        return part_of_update(self._at, self._name(name), self._settings, *args, **options)

    def _save(self, name: str, fields: dict[str, Any]) -> Awaits[None]:
        """Set fields and return nothing, for checkpoints."""
        if not fields:
            raise ValueError(f"{name}() takes the fields to set.")
        return self._write(replace(self._part(name, fields), result=_nothing))


def update_sessions(*changes: SessionChange) -> Awaits[list[int]]:
    """Change several sessions of one store, all or none, and return their new versions in order.

    Call it as `update_sessions(a.change(...), b.change(...))`. If one change is refused, its error
    is raised and nothing is written.
    """
    if not changes:
        raise ValueError("update_sessions() takes changes: update_sessions(a.change(x=1), ...).")
    for change in changes:
        if not isinstance(change, SessionChange):
            raise TypeError(
                f"update_sessions() takes what session.change(...) returns, not {change!r}."
            )
    first = changes[0].session
    if any(change.session._services() is not first._services() for change in changes):
        raise ValueError("update_sessions() takes sessions of one Outlast.")
    parts = tuple(change.part for change in changes)
    if len({(part.at.space, part.at.id) for part in parts}) < len(parts):
        raise ValueError("update_sessions() takes one change per session.")
    check_size(first._settings, "several sessions", *parts)
    return first._write(ChangeGroup(parts))


def make_change(change: SessionChange, *, alone: bool = False) -> Awaits[int]:
    """Make a change of one session and return its new version.

    `alone` says that this process writes nothing else at the moment. If a commit takes less than a
    millisecond, it is made on the event loop then, which saves waking the writer's thread.
    """
    return change.session._write(change.part, alone=alone)


def _was_applied(outcome: Outcome) -> bool:
    return not isinstance(outcome, Refused)


def _nothing(_: Outcome) -> None:
    return None
