"""Change sessions and checkpoints.

The token of a change is made of the header Idempotency-Key, so that a repeat does nothing and gets
the same answer. It is remembered for the last changes of a session (TOKENS_MAX).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import EllipsisType
from typing import Annotated, Any
from uuid import uuid4

from fastapi import Header, Query
from starlette.responses import Response

from outlast.codec.documents import value_of
from outlast.codec.identifiers import check_field
from outlast.engine.documents import session_document
from outlast.engine.session_parts import (
    address,
    check_size,
    encoded,
    new_token,
    part_of_update,
)
from outlast.errors import OutlastError
from outlast.execution import session_calls
from outlast.execution.session_changes import At, Change, ChangeGroup, Outcome, Write, version_of
from outlast.http.rest.answers import (
    ClearAnswer,
    DeletedSession,
    ItemsAnswer,
    ReplaceAnswer,
    TakeAnswer,
    TouchAnswer,
    UpdateAnswer,
    UpdatesAnswer,
)
from outlast.http.rest.calls import ApiCall, answer
from outlast.http.rest.masking import MASKED
from outlast.http.rest.problems import Problem, invalid
from outlast.http.rest.requests import Nothing, Segment, key_of
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import Call
from outlast.http.rest.session_requests import (
    FieldsUpdate,
    ItemsToPop,
    ItemToReplace,
    SessionClear,
    SessionTouch,
    SessionUpdates,
    SessionWrite,
)
from outlast.http.rest.session_spaces import Space, SpaceRoutes, found
from outlast.store.commands import (
    CHECKPOINT,
    SESSION,
    Changed,
    DeleteSession,
    ExtendSession,
    Refused,
    Replace,
)

routes = SpaceRoutes("sessions")
log = logging.getLogger("outlast.http")

NoQuery = Annotated[Nothing, Query()]
Key = Annotated[str | None, Header(alias="Idempotency-Key")]


@routes.add_to_spaces(
    "POST", "/{id}/update", Access.OPERATE, UpdateAnswer, problems=(404, 409, 413)
)
async def update_session(
    id: Segment,
    call: Call,
    space: Space,
    body: FieldsUpdate,
    query: NoQuery,
    key: Key = None,
) -> Response:
    """Change fields and lists, all or none."""
    change = replace(_update(call, space, id, body, key), result=_outcome)
    return answer(await _apply(call, change))


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {"version": version_of(outcome), "made": not isinstance(outcome, Refused)}


@routes.add("POST", "/v1/session-updates", Access.OPERATE, UpdatesAnswer, problems=(409, 413))
async def update_sessions(
    call: Call,
    body: SessionUpdates,
    query: NoQuery,
    key: Key = None,
) -> Response:
    """Change several sessions, all or none."""
    parts = tuple(_update(call, SESSION, one.id, one, key) for one in body.changes)
    if not parts or len({part.at.id for part in parts}) < len(parts):
        raise _wrong("changes", "it takes one change for each of at least one session")
    check_size(call.engine.settings, "several sessions", *parts)
    return answer({"versions": await _apply(call, ChangeGroup(parts))})


def _update(call: ApiCall, space: str, id: str, body: FieldsUpdate, key: str | None) -> Change:
    at = replace(_at(call, space, id, body), fields_max=body.fields_max)
    if not body.set and not body.append and not body.delete:
        raise _wrong("set", f"{at}: it takes fields to set, items to append or fields to delete")
    with _valid(at):
        part = part_of_update(
            at,
            "update",
            call.engine.settings,
            body.set,
            body.append,
            body.delete,
            keep=body.keep,
            version=body.version,
            if_absent=body.if_absent,
        )
    return replace(part, token=_token("update", key))


@routes.add_to_spaces("POST", "/{id}/pop", Access.OPERATE, ItemsAnswer, problems=(404, 409, 413))
async def pop_from_session(
    id: Segment,
    call: Call,
    space: Space,
    body: ItemsToPop,
    query: NoQuery,
    key: Key = None,
) -> Response:
    """Remove the newest items of a list and return them, oldest first."""
    field = check_field(body.field, call.engine.settings.name_length_max)

    def popped(outcome: Outcome) -> list[Any]:
        texts = outcome.popped.get(field, ()) if isinstance(outcome, Changed) else ()
        return [MASKED if call.is_masked else value_of(text) for text in texts]

    at = _at(call, space, id, body)
    pops = {field: body.count}
    change = Change(at, "pop", _token("pop", key), pops=pops, result=popped)
    return answer({"items": await _apply(call, change)})


@routes.add_to_spaces(
    "POST", "/{id}/replace", Access.OPERATE, ReplaceAnswer, problems=(404, 409, 413)
)
async def replace_in_session(
    id: Segment,
    call: Call,
    space: Space,
    body: ItemToReplace,
    query: NoQuery,
    key: Key = None,
) -> Response:
    """Replace one item of a list. A negative index counts from the end."""
    at, settings = _at(call, space, id, body), call.engine.settings
    field = check_field(body.field, settings.name_length_max)
    item = Replace(body.index, encoded(at, field, body.value))
    change = Change(at, "replace", _token("replace", key), replaces={field: item})
    check_size(settings, str(at), change)
    return answer({"version": await _apply(call, change)})


@routes.add_to_spaces("POST", "/{id}/clear", Access.OPERATE, ClearAnswer, problems=(404, 409))
async def clear_session(
    id: Segment,
    call: Call,
    space: Space,
    query: NoQuery,
    body: SessionClear | None = None,
    key: Key = None,
) -> Response:
    """Delete a session, or empty it if an owner asks. Repeating it is harmless."""
    owner = None if body is None else body.owner
    at = replace(address(space, id, ..., call.engine.settings), owner=owner)
    owned = owner is not None
    change = Change(at, "clear", _token("clear", key), empty=owned, forget=not owned)
    await _apply(call, change)
    return answer({"cleared": id})


@routes.add_to_spaces("POST", "/{id}/take", Access.OPERATE, TakeAnswer, problems=(404, 409))
async def take_session(
    id: Segment,
    call: Call,
    space: Space,
    query: NoQuery,
    body: SessionTouch | None = None,
    key: Key = None,
) -> Response:
    """Become the only owner of a session. It is created if it does not exist."""
    change = Change(
        _at(call, space, id, body), "take", _token("take", key), take=True, result=_owner
    )
    return answer({"owner": await _apply(call, change)})


def _owner(outcome: Outcome) -> int | None:
    assert isinstance(outcome, Changed), outcome
    return outcome.owner


@routes.add_to_spaces("POST", "/{id}/touch", Access.OPERATE, TouchAnswer, problems=(404,))
async def touch_session(
    id: Segment,
    call: Call,
    space: Space,
    query: NoQuery,
    body: SessionTouch | None = None,
) -> Response:
    """Keep a session for longer. The later expiry wins."""
    engine, at = call.engine, _at(call, space, id, body)
    await engine.writer.execute(ExtendSession(at.id, at.ttl, space))
    row = await engine.client.read(lambda: engine.store.session(at.id, space, names=()))
    return answer({"touched": row is not None})


@routes.add_to_spaces("DELETE", "/{id}", Access.OPERATE, DeletedSession, problems=(404,))
async def delete_session(
    id: Segment,
    call: Call,
    space: Space,
    query: NoQuery,
) -> Response:
    """Delete a session."""
    engine = call.engine
    row = found(await engine.client.read(engine.store.session, id, space), space, id)
    await engine.writer.execute(DeleteSession(id, uuid4().hex, space))
    _note(call, "deleted", space, id)
    return answer({"deleted": session_document(row)})


async def _apply(call: ApiCall, wanted: Write) -> Any:
    """Make a change and return its result. Raise Problem 404 for an item that does not exist."""
    try:
        result = await session_calls.change(call.engine.services, wanted)
    except IndexError as error:
        raise Problem(
            404,
            f"{error}",
            next="Read the list, and name one of its items.",
            kind="IndexError",
        ) from None
    for part in wanted.changes if isinstance(wanted, ChangeGroup) else [wanted]:
        _note(call, "changed", part.at.space, part.at.id)
    return result


def _note(call: ApiCall, what: str, space: str, id: str) -> None:
    log.info(
        "A %s was %s over HTTP.", space, what,
        extra={"event": f"session_{what}", "by": call.by, "session": id},
    )  # fmt: skip


def _at(call: ApiCall, space: str, id: str, body: SessionTouch | None) -> At:
    """Return the address of a session, with the expiry and the owner that a request names."""
    default: float | EllipsisType | None = None if space == CHECKPOINT else ...
    given = body is not None and "ttl" in body.model_fields_set
    ttl = body.ttl if body is not None and given else default
    at = address(space, id, ttl, call.engine.settings)
    return replace(at, owner=body.owner) if isinstance(body, SessionWrite) else at


def _token(what: str, key: str | None) -> str:
    """Return the token of a change: made of the key, or a new one."""
    given = key_of(key)
    if given is None:
        return new_token()
    return hashlib.sha256(f"{what}\0{given}".encode()).hexdigest()[:32]


@contextmanager
def _valid(at: At) -> Iterator[None]:
    """Raise Problem 422 for a change that contradicts itself."""
    try:
        yield
    except OutlastError:
        raise
    except (TypeError, ValueError) as error:
        raise _wrong("set", f"{at}: {error}") from None


def _wrong(field: str, message: str) -> Problem:
    return invalid([(("body", field), message)], message.rstrip(".") + ".")
