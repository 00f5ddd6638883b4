"""Turn problem documents back into the exceptions of `outlast.errors`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from outlast import errors
from outlast.client.errors import ApiError
from outlast.errors import OutlastError

Facts = Mapping[str, Any]

_MADE: dict[str, Callable[[Facts], OutlastError]] = {
    "UnknownRun": lambda facts: errors.UnknownRun(facts["run"]),
    "UnknownSchedule": lambda facts: errors.UnknownSchedule(facts["schedule"]),
    "UnknownEffect": lambda facts: errors.UnknownEffect(
        facts["run"], facts["effect"], list(facts["there"])
    ),
    "Conflict": lambda facts: errors.Conflict(
        facts["run"], facts.get("recorded", ""), facts.get("asked", "")
    ),
    "AlreadySubmitted": lambda facts: errors.AlreadySubmitted(
        facts["run"], datetime.fromisoformat(facts["until"])
    ),
    "VersionConflict": lambda facts: errors.VersionConflict(
        facts["session"], facts["expected"], facts["current"]
    ),
    "NotOwner": lambda facts: errors.NotOwner(facts["session"], facts["owner"], facts["current"]),
    "Backpressure": lambda facts: errors.Backpressure(
        facts["queue"], facts["depth"], facts["limit"]
    ),
    "LimitExceeded": lambda facts: errors.LimitExceeded(
        facts["limit"], facts["allowed"], facts["asked"], facts["what"]
    ),
}
"""How to build the exceptions that have attributes. The others have only a message."""


def error_of(status: int, document: Any) -> OutlastError:
    """Return the exception for an unsuccessful answer. `document` may be anything."""
    facts = document if isinstance(document, dict) else {}
    detail = facts.get("detail")
    message = detail if isinstance(detail, str) else _unknown(status)
    name = facts.get("error")
    if isinstance(name, str) and name in _MADE:
        try:
            return _MADE[name](facts)
        except (KeyError, TypeError, ValueError):
            # The server has another version. Its message says enough.
            return ApiError(status, message, facts)
    kind = vars(errors).get(name) if isinstance(name, str) else None
    if isinstance(kind, type) and issubclass(kind, OutlastError):
        return kind(message)
    following = facts.get("next")
    if isinstance(following, str):
        message = f"{message} {following}"
    return ApiError(status, message, facts)


def _unknown(status: int) -> str:
    return (
        "the server answered with something that is not of Outlast's HTTP API. Check the URL: "
        "`GET /v1/me` must answer below it."
        if status < 500
        else "the server failed to answer."
    )
