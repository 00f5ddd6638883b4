"""Translate between the results of session changes and what a store remembers of them.

An answer is the JSON that a store writes into the change's entry and keeps with its token:
{"version": 3}, with "popped" and "owner" if the change popped items or took the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outlast.store.commands import (
    INDEX,
    LIMIT,
    OWNER,
    PRESENT,
    VERSION,
    Changed,
    Refused,
    UpdateSessions,
)
from outlast.store.protocol import BadValue

RECORDED = frozenset({INDEX, LIMIT, OWNER, PRESENT, VERSION})
"""Why a change is refused whose refusal is recorded. A change under a void fence has no entry."""


def result_of(answer: int | Mapping[str, Any]) -> int | Changed:
    """Return the result of a change: its version alone, or everything it returned."""
    if isinstance(answer, int):
        return answer
    if len(answer) == 1:
        return int(answer["version"])
    popped = {field: tuple(values) for field, values in (answer.get("popped") or {}).items()}
    owner = answer.get("owner")
    return Changed(answer["version"], popped, None if owner is None else int(owner))


def outcome_of(answer: Mapping[str, Any]) -> int | Changed | list[int | Changed] | Refused:
    """Return the outcome of a command, given what its entry says."""
    if "refused" in answer:
        return Refused(*answer["refused"])
    if "changes" in answer:
        return [result_of(one) for one in answer["changes"]]
    return result_of(answer)


def entry_of(outcome: Any) -> dict[str, Any] | None:
    """Return what the entry of a command says, given its outcome. None if it has no entry."""
    if outcome is None:
        return {}
    if isinstance(outcome, int):
        return {"version": outcome}
    if isinstance(outcome, Changed):
        return {name: part for name, part in outcome._asdict().items() if part}
    if isinstance(outcome, list):
        return {"changes": [entry_of(one) for one in outcome]}
    is_recorded = isinstance(outcome, Refused) and outcome.why in RECORDED
    return {"refused": [*outcome]} if is_recorded else None


def check_distinct(command: UpdateSessions) -> None:
    """Raise BadValue if a session occurs twice, or if a change has a record of its own."""
    if len({(change.space, change.session) for change in command.changes}) < len(command.changes):
        raise BadValue("a session occurs twice in one UpdateSessions.")
    if any(change.record is not None for change in command.changes):
        raise BadValue("a change in UpdateSessions has a record of its own.")
