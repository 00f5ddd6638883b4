"""Define the commands that change sessions."""

from __future__ import annotations

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


class UpdateSession(NamedTuple):
    """Change a session and its expiry. Result: the new version.

    `fields` are set first (None deletes one), then `appends` are added to lists. A field is either
    a value or a list: setting it removes the list, appending to it removes the value. With
    `version`, the command is refused with VERSION, and the current version, unless they are equal
    (0: no session exists). A command that only deletes creates no session: if none exists, its
    result is 0.

    A repeat with the token of one of the last `TOKENS_MAX` changes does nothing and returns the
    version which that change created. This holds even if the session has expired, was deleted or
    was created again since: tokens survive until they are pruned.

    With `record`, the store also writes that Record in the same transaction. The command is then
    fenced, and refused with FENCE where the Record would be. The store writes the entry's value:
    {"version": the new one}, or {"conflict": the current one} where it refuses with VERSION, so a
    refusal is recorded too. A repeat of the record (same run, seq and fence) writes nothing and
    returns what its entry says.
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
