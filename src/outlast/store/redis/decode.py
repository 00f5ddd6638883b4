"""Decode what the scripts return into rows and outcomes.

Numbers arrive as texts, because Redis would truncate them to integers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from outlast.store import commands
from outlast.store.commands import Refused, Submitted, Swept
from outlast.store.rows import DrainRow, Entry, Message, QueueRow, RunRow, SessionRow, WorkerRow


def _pairs(flat: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _float(text: str | None) -> float | None:
    return None if text is None else float(text)


def _int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _as(kind: Callable[[str], Any], text: str | None) -> Any:
    try:
        return kind(text or "")
    except ValueError:
        return text


def run_row(text: str) -> RunRow:
    """Decode a run.

    A bad number counts as missing, as it does in the scripts, so that one damaged run does not hide
    others.
    """
    fields = _pairs(json.loads(text))
    try:
        return _run_row(fields)
    except ValueError:
        return _run_row({name: text for name, text in fields.items() if _fits(name, text)})


_TEXTS = {
    "id", "workflow", "args", "queue", "status", "worker", "token", "seed", "parent", "waits", "cancel", "reason", "value", "error",
    "undoing",
}  # fmt: skip
_TIMES = {
    "created",
    "started",
    "due",
    "timeout",
    "deadline",
    "ended",
    "interrupted",
    "abandon_after",
}


def _fits(name: str, text: str) -> bool:
    try:
        name in _TEXTS or (float if name in _TIMES else int)(text)
    except ValueError:
        return False
    return True


def _run_row(fields: dict[str, Any]) -> RunRow:
    got = fields.get
    return RunRow(
        int(got("pk", 0)), got("id", ""), got("workflow", ""), got("args", ""), got("queue", ""), int(got("priority", 0)),
        got("status", ""), int(got("fence", 0)), got("worker") or None, got("token"), got("seed", ""), got("parent"),
        float(got("created", "0")), _float(got("started")), float(got("due", "0")), _float(got("timeout")),
        _float(got("deadline")), _float(got("ended")), _float(got("interrupted")), int(got("deaths", 0)),
        int(got("interruptions", 0)), got("waits", ""), got("cancel"), got("reason"), _int(got("failed_at")), got("value"),
        got("error"), int(got("lives", 0)), int(got("ready", 0)), int(got("mark", 0)), int(got("deaths_in_a_row", 0)),
        int(got("interruptions_in_a_row", 0)), int(got("failures", 0)), int(got("attempts_max", 0)),
        int(got("interruptions_max", 0)), got("undoing"), _float(got("abandon_after")),
    )  # fmt: skip


def entries(flat: Sequence[str]) -> list[Entry]:
    """Decode entries from a flat list of seq and text."""
    return [entry(int(seq), text) for seq, text in zip(flat[::2], flat[1::2], strict=True)]


def entry(seq: int, text: str) -> Entry:
    fence, _, said = text.partition(" ")
    # The JSON list does not contain the fence.
    return Entry(seq, *json.loads(said), fence=int(fence))  # type: ignore[misc]


def message(number: int, text: str) -> Message:
    named, at, rest = text.split("\n", 2)
    id, value = json.loads(rest)
    return Message(number, json.loads(named)[0], id, value, float(at))


def progress(flat: Sequence[str]) -> dict[str, str]:
    """Decode progress. The fence and the attempt precede each value."""
    return {key: text.split(" ", 2)[2] for key, text in _pairs(flat).items()}


def worker_row(flat: Sequence[str]) -> WorkerRow:
    """Decode a worker.

    A bad number stays text: it is reported for this worker and does not hide others.
    """
    got = _pairs(flat).get
    return WorkerRow(
        got("id", ""), got("host", ""), _as(int, got("pid")), _as(float, got("started")), _as(float, got("lease_until")),
        _as(int, got("draining")), _as(float, got("lease")), _as(float, got("renewed")), got("queues", ""), got("workflows", ""),
        _as(int, got("concurrency")), got("asked"), int(got("held", 0)),
    )  # fmt: skip


def drain_row(found: Sequence[Any]) -> DrainRow:
    """Decode a drain. A bad number stays text, as in `worker_row`."""
    worker, flat, seconds = found
    got = _pairs(flat).get
    ended = got("ended")
    return DrainRow(
        worker, got("host", ""), _as(int, got("pid")), got("reason", ""), _as(float, got("began")),
        None if ended is None else _as(float, ended), _as(int, got("held")), got("report"),
        tuple(sorted(took for took in (_as(float, text) for text in seconds) if isinstance(took, float))),
    )  # fmt: skip


def queue_row(found: Sequence[Any]) -> QueueRow:
    name, flat, oldest, submitted, ended, (returned, since, undoing, stuck), delayed = found
    it = _pairs(flat)
    counts = (
        _as(int, it.get(status, "0"))
        for status in ("queued", "running", "waiting", "parked", "dead")
    )
    limits = (_as(int, it.get("depth_max")), _as(int, it.get("concurrency_max")))
    apart = (int(returned), _float(since), int(undoing), int(stuck), _as(int, delayed))
    return QueueRow._make(
        (name, *counts, _float(oldest), int(submitted), int(ended), *limits, *apart)
    )


def session_row(found: Sequence[Any]) -> SessionRow:
    id, version, updated, expires, fields, lists = found
    counts = {field: int(count) for field, count in sorted(_pairs(lists).items())}
    return SessionRow(
        id,
        int(version),
        float(updated),
        _float(expires),
        dict(sorted(_pairs(fields).items())),
        counts,
    )


# -- outcomes


def outcomes(batch: Sequence[commands.Command], answers: Sequence[Any] | int) -> list[Any]:
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


_DECODE: dict[type, Callable[[Any], Any]] = {
    commands.Submit: _submitted,
    commands.SubmitMany: lambda answer: [_submitted(one) for one in answer[1:]],
    commands.Claim: lambda answer: [run_row(text) for text in answer[1:]],
    commands.Sweep: lambda answer: Swept(*map(tuple, answer)),
    commands.Drain: lambda answer: tuple(answer[1:]),
    commands.Prune: lambda answer: Pruned(*map(int, answer)),
    commands.UpdateSession: int,
}
"""Other commands return nothing, or a status."""
