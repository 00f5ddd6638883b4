"""Define the commands that change sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from outlast.store.commands.held_runs import Record

SESSION = "session"
CHECKPOINT = "checkpoint"
"""The spaces of sessions. The same id in two spaces is two sessions."""

TOKENS_MAX = 20
"""How many changes of a session are remembered to recognise repeats. The oldest are dropped."""

SESSION_MEMORY = 300.0
"""How many seconds a session stays in the store after it expired or was deleted, so that its tokens
still recognise repeats. A later repeat is a new change.
"""


class Append(NamedTuple):
    """Append values to a session's list, then keep only the newest `keep` (None: all)."""

    values: tuple[str, ...]
    keep: int | None = None


class Replace(NamedTuple):
    """Replace the item of a session's list at an index. A negative one counts from the end."""

    at: int
    value: str


class SessionLimits(NamedTuple):
    """How much a session may hold. A change may still make a larger one smaller."""

    fields: int
    """Fields and lists of the session."""
    items: int
    """Items of one list."""
    popped: int
    """Characters of all items that one change removes and returns."""


class Changed(NamedTuple):
    """What a change returns if it pops items or takes a session."""

    version: int
    popped: Mapping[str, tuple[str, ...]] = {}
    """The removed items by list, oldest first. A list without any is left out."""
    owner: int | None = None
    """The number of the new owner."""


class UpdateSession(NamedTuple):
    """Change a session and its expiry. Result: the new version, or `Changed` for pops and a take.

    The parts are applied in this order. `clear` deletes all fields and lists. `fields` are set
    (None deletes one). `pops` removes this many of the newest items of a list. `replaces` replaces
    an item. `appends` are added to lists. A field is either a value or a list: setting it removes
    the list, appending to it removes the value. A list without items does not exist. A command that
    only deletes creates no session: if none exists, its version is 0.

    **Conditions** are checked in this order, in the transaction that writes. The command is refused
    - with OWNER, and the owner's number ("" if there is none), unless `owner` owns the session,
    - with VERSION, and the current version, unless `version` is equal (0: no session exists),
    - with PRESENT, and the current version, if all it would do is set fields of `absent` that have
      a value or are lists (otherwise such fields are left as they are),
    - with INDEX, "length/field", if `replaces` names an item that does not exist,
    - with LIMIT, "what/limit/needed/field", beyond one of the `limits`. `what` is the name of the
      limit, `field` is empty unless it is the limit of one list.

    **Owner.** `take` makes the caller the session's owner, under a number from the counter of
    fences, which only grows. A session that expired or was deleted has no owner. A change without
    `owner` is not checked.

    **A repeat** with the token of one of the last `TOKENS_MAX` changes does nothing and returns
    what that change returned. This holds even if the session has expired, was deleted or was
    created again since: tokens survive until they are pruned.

    With `record`, the store also writes that Record in the same transaction. The command is then
    fenced, and refused with FENCE where the Record would be. The store writes the entry's value:
    the fields of `Changed` that are set, or {"refused": [why, detail]}, so a refusal is recorded
    too. A repeat of the record (same run, seq and fence) writes nothing and returns what its entry
    says.
    """

    session: str
    token: str
    fields: dict[str, str | None]
    ttl: float | None = None
    version: int | None = None
    appends: dict[str, Append] = {}  # noqa: RUF012 - never changed
    space: str = SESSION
    record: Record | None = None
    extends: bool = False
    """If the session exists, the later expiry wins, as with ExtendSession. Otherwise the expiry is
    `ttl` seconds from now, even if that is earlier.
    """
    absent: tuple[str, ...] = ()
    pops: dict[str, int] = {}  # noqa: RUF012 - never changed
    replaces: dict[str, Replace] = {}  # noqa: RUF012 - never changed
    clear: bool = False
    take: bool = False
    owner: int | None = None
    limits: SessionLimits | None = None

    @property
    def may_create(self) -> bool:
        """Return whether the command creates a session that does not exist."""
        deletes = bool(self.fields or self.pops or self.clear)
        sets = any(value is not None for value in self.fields.values())
        return bool(sets or self.appends or self.take or not deletes)


class UpdateSessions(NamedTuple):
    """Change several sessions, all or none. Result: the result of each change, in order.

    No session may occur twice, and the changes have no `record`. If a condition of one is not met,
    the command is refused as that change would be, with its position from 0 before the detail:
    "1/7". A change that has nothing to set is made all the same, and not refused with PRESENT. The
    entry of `record` is {"changes": [what each entry would be]} or {"refused": …}.

    A repeat is recognised as long as one of the sessions remembers its token. A change whose
    session does not remember it returns the current version.
    """

    changes: tuple[UpdateSession, ...]
    record: Record | None = None


class ExtendSession(NamedTuple):
    """Keep a session for at least `ttl` seconds from now (None: forever). Result: None.

    The result is None also if there is no session. The version does not change. The later expiry
    wins: the command never shortens the time, whatever other processes have written since.
    """

    session: str
    ttl: float | None
    space: str = SESSION


class DeleteSession(NamedTuple):
    """Delete a session and its content at once. Result: None.

    `record` works as for UpdateSession; the entry's value is {}. A tombstone stays, even if there
    was no session: an expired row that cannot be read, with the tokens of the last changes and of
    this one. So a repeat of this command or of an earlier change does nothing, even if the session
    was created again since.
    """

    session: str
    token: str
    space: str = SESSION
    record: Record | None = None
