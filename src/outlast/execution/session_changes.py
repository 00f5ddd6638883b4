"""Describe writes to sessions: the command of each, its identity in a run, and what it returns."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from outlast.codec.signature import canonical, shortened
from outlast.errors import LimitExceeded, NotOwner, VersionConflict
from outlast.settings import Settings
from outlast.store.commands import (
    INDEX,
    LIMIT,
    OWNER,
    VERSION,
    Append,
    Changed,
    DeleteSession,
    Record,
    Refused,
    Replace,
    SessionLimits,
    UpdateSession,
    UpdateSessions,
)
from outlast.store.session_answers import entry_of, outcome_of

Outcome: TypeAlias = int | Changed | Refused | None
"""What the store returns of a change. A refusal is one for which `Change.error` has no error."""

REFUSALS = (VersionConflict, NotOwner, LimitExceeded, IndexError)
"""What a change raises that the store has refused."""

_LIMITS = {
    "fields": "session_fields_max",
    "items": "session_items_max",
    "popped": "value_size_max",
}
"""The setting of each limit of a session."""


@dataclass(frozen=True, slots=True)
class At:
    """A session's address, how long each access keeps it, and who writes to it."""

    space: str
    id: str
    ttl: float | None
    extends: bool = False
    """True if the caller gave no time. An existing expiry is not shortened."""
    owner: int | None = None
    """The number under which the caller has taken the session."""
    fields_max: int | None = None
    """The limit of this session. None: the setting."""

    def __str__(self) -> str:
        return f"{self.space} {self.id!r}"


def version_of(outcome: Outcome) -> int:
    """Return the session's version after a change, or after one that had nothing to do."""
    if isinstance(outcome, Refused):
        return int(outcome.detail)
    return outcome.version if isinstance(outcome, Changed) else outcome or 0


@dataclass(frozen=True, slots=True)
class Change:
    """A write to one session. With `forget`, it deletes the session."""

    at: At
    name: str
    token: str
    fields: dict[str, str | None] = field(default_factory=dict)
    appends: dict[str, Append] = field(default_factory=dict)
    pops: dict[str, int] = field(default_factory=dict)
    replaces: dict[str, Replace] = field(default_factory=dict)
    version: int | None = None
    absent: frozenset[str] = frozenset()
    """The fields that stay as they are if they have a value or are lists."""
    take: bool = False
    empty: bool = False
    """Whether all fields and lists are deleted first. The session stays."""
    forget: bool = False
    result: Callable[[Outcome], Any] = version_of
    """Turns what the store returned into what the caller gets."""

    @property
    def identity(self) -> str:
        """Return what must be equal in a replay: the session, the names and the version.

        The values do not count. A framework puts its own times and ids into them.
        """
        return fingerprint(*self.parts)

    @property
    def parts(self) -> tuple[Any, ...]:
        sets = {name for name, value in self.fields.items() if value is not None}
        named = {
            "set": sorted(sets - self.absent),
            "set if absent": sorted(sets & self.absent),
            "delete": sorted(name for name, value in self.fields.items() if value is None),
            "append": sorted(self.appends),
            "pop": self.pops,
            "replace": {name: part.at for name, part in self.replaces.items()},
        }
        done = {what: names for what, names in named.items() if names}
        return (self.at.id, *([done] if done else []), self.version)

    def command(
        self, settings: Settings, record: Record | None = None
    ) -> UpdateSession | DeleteSession:
        at = self.at
        if self.forget:
            return DeleteSession(at.id, self.token, at.space, record)
        return UpdateSession(
            at.id,
            self.token,
            self.fields,
            at.ttl,
            self.version,
            self.appends,
            at.space,
            record,
            at.extends,
            absent=tuple(name for name in self.fields if name in self.absent),
            pops=self.pops,
            replaces=self.replaces,
            clear=self.empty,
            take=self.take,
            owner=at.owner,
            limits=SessionLimits(
                at.fields_max or settings.session_fields_max,
                settings.session_items_max,
                settings.value_size_max,
            ),
        )

    def decode(self, text: str) -> Any:
        """Return the result from the text of an entry. Raise one of REFUSALS."""
        answer = json.loads(text)
        return self.returned(outcome_of(answer) if answer else None)

    def returned(self, outcome: Any) -> Any:
        """Return the caller's result. Raise one of REFUSALS."""
        error = self.error(outcome) if isinstance(outcome, Refused) else None
        if error is not None:
            raise error
        return self.result(outcome)

    def error(self, refused: Refused) -> Exception | None:
        """Return the error of a refusal. None if the caller gets a result."""
        at = self.at
        if refused.why == VERSION:
            return VersionConflict(at.id, self.version or 0, int(refused.detail))
        if refused.why == OWNER:
            return NotOwner(at.id, at.owner or 0, int(refused.detail or 0))
        if refused.why == INDEX:
            count, name = refused.detail.split("/", 1)
            index = self.replaces[name].at
            return IndexError(f"list {name!r} of {at} has {count} items, and none at {index}.")
        if refused.why == LIMIT:
            what, limit, needed, name = refused.detail.split("/", 3)
            subject = f"list {name!r} of {at}" if name else f"the {_SUBJECTS[what]} {at}"
            return LimitExceeded(_LIMITS[what], int(limit), int(needed), subject)
        return None


_SUBJECTS = {"fields": "fields of", "popped": "items popped from"}


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """Writes to several sessions, all or none. The result is the list of theirs."""

    changes: tuple[Change, ...]
    name: str = "session.update_sessions"

    @property
    def identity(self) -> str:
        return fingerprint(*(change.parts for change in self.changes))

    def command(self, settings: Settings, record: Record | None = None) -> UpdateSessions:
        commands = (change.command(settings) for change in self.changes)
        return UpdateSessions(
            tuple(command for command in commands if isinstance(command, UpdateSession)), record
        )

    def decode(self, text: str) -> list[Any]:
        """Return the results from the text of an entry. Raise one of REFUSALS."""
        return self.returned(outcome_of(json.loads(text)))

    def returned(self, outcome: Any) -> list[Any]:
        """Return the callers' results. Raise one of REFUSALS."""
        if isinstance(outcome, Refused):
            # Of the refusals without an error, no group has one.
            position, detail = outcome.detail.split("/", 1)
            change = self.changes[int(position)]
            return [change.returned(outcome._replace(detail=detail))]
        return [change.returned(one) for change, one in zip(self.changes, outcome, strict=True)]


Write: TypeAlias = Change | ChangeGroup


def entry_text(outcome: Any) -> str | None:
    """Return the text for the entry of a change, given the store's answer.

    Return None if the change has no entry.
    """
    answer = entry_of(outcome)
    return None if answer is None else json.dumps(answer)


def fingerprint(*parts: Any) -> str:
    """Return a short text that is equal for equal arguments, in every process."""
    return shortened(canonical(parts)[1:-1])
