"""Answer errors as problem+json (RFC 9457)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from outlast.codec.documents import render
from outlast.codec.text import iso
from outlast.errors import (
    AlreadySubmitted,
    Backpressure,
    BadCursor,
    BadName,
    Conflict,
    Draining,
    LimitExceeded,
    NotOwner,
    OutlastError,
    SettingsError,
    StoreUnavailable,
    UnknownEffect,
    UnknownRun,
    UnknownSchedule,
    Unrecordable,
    VersionConflict,
    WrongStatus,
)

MEDIA_TYPE = "application/problem+json"
NO_STORE = {"cache-control": "no-store"}
RETRY_SECONDS = "1"
_SIZES = {"value_size_max", "message_size_max", "stream_size_max", "submit_many_max"}
_STATUS: tuple[tuple[type[OutlastError], int], ...] = (
    (UnknownRun, 404),
    (UnknownEffect, 404),
    (UnknownSchedule, 404),
    (WrongStatus, 409),
    (Conflict, 409),
    (VersionConflict, 409),
    (NotOwner, 409),
    (Backpressure, 429),
    (Draining, 503),
    (StoreUnavailable, 503),
    (BadName, 422),
    (BadCursor, 422),
    (Unrecordable, 422),
    (SettingsError, 422),
)
_FACTS: dict[type[OutlastError], dict[str, str]] = {
    UnknownRun: {"run": "id"},
    UnknownSchedule: {"schedule": "name"},
    UnknownEffect: {"run": "id", "effect": "effect", "there": "there"},
    Conflict: {"run": "id", "recorded": "recorded", "asked": "asked"},
    AlreadySubmitted: {"run": "id", "until": "until"},
    VersionConflict: {"session": "session", "expected": "expected", "current": "current"},
    NotOwner: {"session": "session", "owner": "owner", "current": "current"},
    Backpressure: {"queue": "queue", "depth": "depth", "limit": "limit"},
    LimitExceeded: {"limit": "limit", "allowed": "allowed", "asked": "asked", "what": "what"},
}
"""The extra members of a problem document per error, with the names of the error's attributes."""
_NEXT = {
    "UnknownRun": "Check the id: GET /v1/runs lists the runs.",
    "UnknownEffect": "Name one of the effects in `there`, by its place.",
    "UnknownSchedule": "Check the name: GET /v1/schedules lists the schedules.",
    "WrongStatus": "Read the run, and act according to its status.",
    "Conflict": "Use another id, or submit with on_conflict=join to get the existing run.",
    "AlreadySubmitted": "Repeat it after `until`, or pass on_repeat=join or replace.",
    "VersionConflict": "Read the session again, and repeat the change.",
    "NotOwner": "Stop writing, or take the session again.",
    "Backpressure": "Repeat the request later with the same id, or pass `wait`.",
    "Draining": "Repeat the request: another process answers, or this one after its restart.",
    "StoreUnavailable": "Repeat the request with the same id or Idempotency-Key.",
    "BadCursor": "Begin without a cursor.",
    "BadName": "Use printable text.",
    "LimitExceeded": "Make it smaller, or raise the limit in the settings of the server.",
    "Unrecordable": "Correct the values that `errors` names.",
    "SettingsError": "Correct the option.",
}


class Problem(Exception):
    """An answer with what went wrong and what to do next.

    `error` is a name that `outlast explain` knows, or None.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        next: str,
        error: str | None = None,
        kind: str | None = None,
        headers: Mapping[str, str] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.next = next
        self.error = error
        self.kind = kind
        self.headers = dict(headers or {})
        self.facts = dict(facts or {})

    def document(self) -> dict[str, Any]:
        title = HTTPStatus(self.status).phrase
        kind = self.error or self.kind or title.replace(" ", "")
        return {
            "type": f"urn:outlast:problem:{kind}",
            "title": title,
            "status": self.status,
            "detail": self.detail,
            "error": self.error,
            "next": self.next,
            **self.facts,
        }

    def response(self) -> Response:
        return Response(
            render(self.document()),
            self.status,
            headers={**self.headers, **NO_STORE},
            media_type=MEDIA_TYPE,
        )


def problem_of(error: OutlastError, *, masked: bool = False) -> Problem:
    """Return the problem that an error of Outlast is to a caller.

    With `masked`, leave out what the error says of values that the caller may not see.
    """
    name = error.explained_as
    headers: dict[str, str] = {}
    if type(error) is Conflict and masked:
        error = Conflict(error.id, "", "")
    names = _FACTS.get(type(error), {})
    facts = {name: _plain(getattr(error, attribute)) for name, attribute in names.items()}
    status = _status_of(error)
    if status in (429, 503):
        headers["retry-after"] = RETRY_SECONDS
    then = _NEXT.get(name, f"Run `outlast explain {name}` where the server runs.")
    return Problem(status, str(error), next=then, error=name, headers=headers, facts=facts)


def _plain(value: Any) -> Any:
    return iso(value.timestamp()) if isinstance(value, datetime) else value


def _status_of(error: OutlastError) -> int:
    if isinstance(error, LimitExceeded):
        if error.limit == "messages_max":
            return 409
        return 413 if error.limit in _SIZES else 422
    if isinstance(error, UnknownEffect) and error.there:
        return 409
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def invalid(
    errors: Iterable[tuple[Sequence[str | int], str]], detail: str, error: str | None = None
) -> Problem:
    """Return the problem of a request with wrong values, each with its path."""
    found = [{"path": list(path), "message": message} for path, message in errors]
    return Problem(
        422,
        detail,
        next="Correct the values that `errors` names. /v1/openapi.json describes the request.",
        error=error,
        kind="InvalidRequest",
        facts={"errors": found},
    )
