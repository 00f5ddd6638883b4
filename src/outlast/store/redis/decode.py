"""Decode the rows that the scripts return.

Numbers arrive as texts, because Redis would truncate them to integers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from outlast.errors import StoreBroken
from outlast.store.rows import (
    DrainRow,
    Entry,
    ExecutionRow,
    Message,
    QueueRow,
    RunRow,
    WorkerRow,
)
from outlast.store.session_rows import SessionRow


def _pairs(flat: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _float(text: str | None) -> float | None:
    return None if text is None else float(text)


def _int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _damaged(kind: str, name: str, error: ValueError) -> StoreBroken:
    return StoreBroken(
        f"{kind} {name!r}: a number in it is damaged ({error}). "
        "Restore a copy of the data, or correct the row."
    )


def run_row(text: str) -> RunRow:
    """Decode a run. Raise StoreBroken, with its id, if a number in it is none."""
    fields = _pairs(json.loads(text))
    try:
        return _run_row(fields)
    except ValueError as error:
        raise _damaged("run", fields.get("id", ""), error) from None


def _run_row(fields: dict[str, Any]) -> RunRow:
    got = fields.get
    return RunRow(
        int(got("pk", 0)),
        got("id", ""),
        got("workflow", ""),
        got("args", ""),
        got("queue", ""),
        int(got("priority", 0)),
        got("status", ""),
        int(got("fence", 0)),
        got("worker") or None,
        got("token"),
        got("seed", ""),
        got("parent"),
        float(got("created", "0")),
        _float(got("started")),
        float(got("due", "0")),
        _float(got("timeout")),
        _float(got("deadline")),
        _float(got("ended")),
        _float(got("interrupted")),
        int(got("deaths", 0)),
        int(got("interruptions", 0)),
        got("waits", ""),
        got("cancel"),
        got("reason"),
        _int(got("failed_at")),
        got("value"),
        got("error"),
        int(got("lives", 0)),
        int(got("ready", 0)),
        int(got("mark", 0)),
        int(got("deaths_in_a_row", 0)),
        int(got("interruptions_in_a_row", 0)),
        int(got("failures", 0)),
        int(got("attempts_max", 0)),
        int(got("interruptions_max", 0)),
        got("undoing"),
        _float(got("abandon_after")),
        got("by"),
        got("key"),
        _float(got("turn") or None),
    )


def entries(flat: Sequence[str]) -> list[Entry]:
    """Decode entries from a flat list of seq and text."""
    return [entry(int(seq), text) for seq, text in zip(flat[::2], flat[1::2], strict=True)]


def entry(seq: int, text: str) -> Entry:
    fence, _, body = text.partition(" ")
    # The JSON list does not contain the fence.
    return Entry(seq, *json.loads(body), fence=int(fence))  # type: ignore[misc]


def message(number: int, text: str) -> Message:
    named, at, rest = text.split("\n", 2)
    id, value, *by = json.loads(rest)
    return Message(number, json.loads(named)[0], id, value, float(at), *by)


def execution(run: int, text: str) -> ExecutionRow:
    """Decode an execution of a run. Raise StoreBroken if a number in it is none."""
    fence, worker, host, pid, began, ended, status, reason = json.loads(text)
    try:
        worker_facts = (worker, host, int(pid), float(began), _float(ended))
        return ExecutionRow(int(fence), *worker_facts, status, reason)
    except ValueError as error:
        raise _damaged("an execution of run", str(run), error) from None


def progress(flat: Sequence[str]) -> dict[str, str]:
    """Decode progress. The fence and the attempt precede each value."""
    return {key: text.split(" ", 2)[2] for key, text in _pairs(flat).items()}


def worker_row(flat: Sequence[str]) -> WorkerRow:
    """Decode a worker. Raise StoreBroken, with its id, if a number in it is none."""
    got = _pairs(flat).get
    try:
        return _worker_row(got)
    except ValueError as error:
        raise _damaged("worker", got("id", ""), error) from None


def _worker_row(got: Callable[..., Any]) -> WorkerRow:
    return WorkerRow(
        got("id", ""),
        got("host", ""),
        int(got("pid", "")),
        float(got("started", "")),
        float(got("lease_until", "")),
        int(got("draining", "")),
        float(got("lease", "")),
        float(got("renewed", "")),
        got("queues", ""),
        got("workflows", ""),
        int(got("concurrency", "")),
        got("asked"),
        int(got("held", 0)),
    )


def drain_row(found: Sequence[Any]) -> DrainRow:
    """Decode a drain. Raise StoreBroken, with its worker, if a number in it is none."""
    try:
        return _drain_row(*found)
    except ValueError as error:
        raise _damaged("the drain of worker", found[0], error) from None


def _drain_row(worker: str, flat: Sequence[str], seconds: Sequence[str]) -> DrainRow:
    got = _pairs(flat).get
    return DrainRow(
        worker,
        got("host", ""),
        int(got("pid", "")),
        got("reason", ""),
        float(got("began", "")),
        _float(got("ended")),
        int(got("held", "")),
        got("report"),
        tuple(sorted(map(float, seconds))),
    )


def queue_row(found: Sequence[Any]) -> QueueRow:
    """Decode a queue. Raise StoreBroken, with its name, if a number in it is none."""
    try:
        return _queue_row(*found)
    except ValueError as error:
        raise _damaged("queue", found[0], error) from None


def _queue_row(
    name: str,
    flat: Sequence[str],
    oldest: str | None,
    submitted: str,
    ended: str,
    apart: Sequence[Any],
    delayed: str,
) -> QueueRow:
    fields = _pairs(flat)
    statuses = ("queued", "running", "waiting", "parked", "dead")
    counts = (int(fields.get(status, "0")) for status in statuses)
    limits = (_int(fields.get("depth_max")), _int(fields.get("concurrency_max")))
    returned, since, undoing, stuck = apart
    return QueueRow._make(
        (
            name,
            *counts,
            _float(oldest),
            int(submitted),
            int(ended),
            *limits,
            int(returned),
            _float(since),
            int(undoing),
            int(stuck),
            int(delayed),
            _int(fields.get("key_concurrency_max")),
            _int(fields.get("key_starts_max")),
            _float(fields.get("key_period")),
            fields.get("paused") == "1",
        )
    )


def session_row(found: Sequence[Any]) -> SessionRow:
    """Decode a session. Its fields keep their order."""
    id, version, updated, expires, owner, fields, lists = found
    return SessionRow(
        id,
        int(version),
        float(updated),
        _float(expires),
        _pairs(fields),
        {field: int(count) for field, count in _pairs(lists).items()},
        _int(owner),
    )
