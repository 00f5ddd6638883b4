"""Decode the answer of the commit script into one outcome per command."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from outlast.errors import StoreBroken
from outlast.store import commands
from outlast.store.commands import Refused, Submitted, Swept
from outlast.store.redis.decode import run_row
from outlast.store.rows import RunRow
from outlast.store.session_answers import outcome_of

log = logging.getLogger("outlast.store")


def decode_outcomes(batch: Sequence[commands.Command], answers: Sequence[Any] | int) -> list[Any]:
    """Decode the answers to a batch. A plain number stands for that many outcomes of None."""
    if isinstance(answers, int):
        return [None] * answers
    return [
        None if answer is None else _outcome(type(command), answer)
        for command, answer in zip(batch, answers, strict=True)
    ]


def _outcome(kind: type, answer: Any) -> Any:
    if isinstance(answer, list) and answer and answer[0] == "!":
        return Refused(answer[1], answer[2])
    return _DECODE.get(kind, str)(answer)


class Pruned(NamedTuple):
    """The result of one call for a Prune."""

    gone: int
    passed: int
    """The number of candidates, from the beginning, that the call skipped: they must stay."""
    more: int
    """1 if more candidates follow."""


def _submitted(answer: Any) -> Submitted:
    if answer == "1":
        return Submitted(None, new=True)
    new, text = answer
    return Submitted(run_row(text), new == "1")


def _claimed(answer: Any) -> list[RunRow]:
    """Decode the claimed runs. A damaged one is logged and left out.

    The claim is committed, so an error would leave the worker with runs that it never received.
    """
    rows: list[RunRow] = []
    for text in answer[1:]:
        try:
            rows.append(run_row(text))
        except StoreBroken as error:
            log.error("A claimed run cannot be executed: %s", error)
    return rows


def _changed(answer: str) -> Any:
    """Decode the JSON of a session change, or what the entry of an earlier one says."""
    return outcome_of(json.loads(answer))


_DECODE: dict[type, Callable[[Any], Any]] = {
    commands.Submit: _submitted,
    commands.SubmitMany: lambda answer: [_submitted(one) for one in answer[1:]],
    commands.Claim: _claimed,
    commands.Sweep: lambda answer: Swept(*map(tuple, answer)),
    commands.Drain: lambda answer: tuple(answer[1:]),
    commands.Prune: lambda answer: Pruned(*map(int, answer)),
    commands.UpdateSession: _changed,
    commands.UpdateSessions: _changed,
}
"""Other commands return nothing, or a status."""
