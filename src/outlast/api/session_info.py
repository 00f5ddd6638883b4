"""Define `SessionInfo`, and list the sessions of a store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from outlast.store.commands import SESSION
from outlast.store.session_rows import SessionQuery, SessionRow

if TYPE_CHECKING:
    from outlast.engine.engine import Engine

PAGE = 100
SessionOrder: TypeAlias = Literal["updated", "id"]
_LAST = datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp()


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as the store lists it: names of fields and lists, not their contents."""

    id: str
    version: int
    """The number of changes since it was created."""
    updated_at: datetime
    expires_at: datetime | None
    """None: never."""
    fields: tuple[str, ...]
    """The names of the fields that have a value."""
    lists: dict[str, int]
    """The number of items in each list."""
    owner: int | None = None
    """The number of its owner. None: it has no owner."""

    @classmethod
    def of(cls, row: SessionRow) -> SessionInfo:
        expires = None if row.expires is None else _moment(row.expires)
        return cls(
            row.id,
            row.version,
            _moment(row.updated),
            expires,
            tuple(row.fields),
            dict(row.lists),
            row.owner,
        )


async def list_sessions(
    engine: Engine,
    prefix: str,
    limit: int,
    order: SessionOrder = "updated",
    after: str | None = None,
    space: str = SESSION,
) -> list[SessionInfo]:
    """Return sessions, reading the store page by page."""
    if type(limit) is not int or limit < 0:
        raise ValueError(f"limit={limit!r} must be a whole number from 0.")
    if order not in ("updated", "id"):
        raise ValueError(f"order={order!r} must be 'updated' or 'id'.")
    if after is not None and order != "id":
        raise ValueError("after= continues a list in the order of ids. Pass order='id' too.")
    found: list[SessionInfo] = []
    query = SessionQuery(space, prefix, by_id=order == "id", after=after)
    while len(found) < limit:
        rows = await engine.client.read(
            engine.store.sessions, query._replace(limit=min(PAGE, limit - len(found)))
        )
        found += map(SessionInfo.of, rows)
        if len(rows) < PAGE:
            break
        last = rows[-1]
        query = (
            query._replace(after=last.id)
            if order == "id"
            else query._replace(before=(last.updated, last.id))
        )
    return found


def _moment(seconds: float) -> datetime:
    """Convert a timestamp, limited to the latest datetime that Python can represent."""
    return datetime.fromtimestamp(min(seconds, _LAST), UTC)
