"""Fill a store, then put hostile texts and numbers into every column."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

from security_tools import ESCAPES, JSON_TEXTS, clone, columns_of

from outlast.store.address import store_at
from outlast.store.commands import (
    CHECKPOINT,
    Append,
    Drain,
    Record,
    RegisterWorker,
    SaveProgress,
    Send,
    Settle,
    StoreDrainReport,
    Submit,
    UpdateSession,
    verdict,
)

KINDS = (
    "step", "attempt", "intent", "compensation", "child", "verify", "decision", "undoing", "message", "session", "items", "done", "fired",
    "cancel", "death", "interruption", "failure", "retry", "resume", "inner", "effect", "unit", ESCAPES,
)  # fmt: skip
"""Of entries: all that a journal knows, and one that it does not."""
NUMBERS = {"REAL": (1e308, float("-inf"), -1.0), "INTEGER": (2**62, -1)}
"""Extreme numbers, by the type of their column. The schema keeps everything else out."""
GONE = " (gone)"
"""How the ids of sessions end that nobody is shown any more."""
STATUSES = (
    "queued",
    "running",
    "waiting",
    "parked",
    "done",
    "failed",
    "cancelled",
    "dead",
)


FEW = ("deep list", "object", "no JSON", "empty")
"""Of the texts: where the same function reads all of them."""


class Hostile(NamedTuple):
    path: Path
    runs: list[str]
    drains: list[str]
    sessions: list[str]
    workers: list[str]


def fill(path: Path) -> None:
    fill_at(f"sqlite:///{path}")


def fill_at(address: str) -> None:
    """One good row of each kind."""
    store = store_at(address)
    store.open()
    try:
        held = store.commit(
            [
                RegisterWorker("w", "host", 1, 1e6, ("default",), ("flow",), 4),
                Submit("canary", "flow", "{}", "t1", "00" * 16, worker="w"),
                Submit("good", "flow", "{}", "t2", "00" * 16, worker="w"),
                Send("good", "name", "m1", "1"),
                UpdateSession(
                    "good session",
                    "t",
                    {"field": "1"},
                    ttl=1e6,
                    appends={"list": Append(("1", "2"))},
                ),
                UpdateSession("good checkpoint", "t", {"field": "1"}, space=CHECKPOINT),
            ]
        )
        canary, good = held[1].row, held[2].row
        store.commit(
            [
                Settle(canary.pk, canary.fence, "done", value='"the canary"'),
                Record(
                    good.pk,
                    1,
                    good.fence,
                    "step",
                    "a#1",
                    good.created,
                    value="1",
                    cost='{"tokens":1}',
                ),
                SaveProgress(good.pk, good.fence, "b#1", 1, "1"),
                RegisterWorker("drained", "host", 2, 1e6),
                Drain("drained", "a reason"),
                StoreDrainReport("drained", "{}"),
            ]
        )
    finally:
        store.close()


def spoil(db: Any) -> tuple[list[str], ...]:
    runs, drains, sessions, workers = [], [], [], []
    texts, few = list(JSON_TEXTS.values()), [JSON_TEXTS[name] for name in FEW]

    def run(**changed: Any) -> int:
        id = changed.pop("id", f"run {len(runs)}.")
        clone(db, "runs", "id = 'good'", **{"pk": None, "id": id, "token": id} | changed)
        runs.append(id)
        return int(db.execute("SELECT max(pk) FROM runs").fetchone()[0])

    own = sorted(
        set(columns_of(db, "runs", "TEXT")) - {"id", "status", "args", "value", "error", "workflow"}
    )
    for column, text in (
        *itertools.product(own, few),
        *itertools.product(("args", "value", "error"), texts),
    ):
        run(**{column: text})
    run(workflow=ESCAPES, queue=ESCAPES)
    for status in STATUSES:
        error = json.dumps({"type": ESCAPES, "message": ESCAPES, "traceback": ESCAPES})
        run(
            id=f"{status} {ESCAPES}",
            status=status,
            reason=f"unknown: {ESCAPES}",
            error=error,
            worker=None,
        )
        run(
            status=status,
            undoing=verdict("failed", error=error),
            ended=1.0 if status == "done" else None,
        )
    for text in ("deep list", "object", "null"):
        run(
            undoing=json.dumps({"status": [], "error": JSON_TEXTS[text], "reason": {}}),
            status="parked",
        )
        run(
            error=json.dumps({"type": JSON_TEXTS[text], "message": None, "traceback": [1]}),
            status="failed",
        )
    for column, number in extremes(db, "runs", without=("pk", "ready")):
        run(**{column: number})
    entries = (
        *itertools.product(("value", "error"), texts),
        *itertools.product(("args", "cost", "key"), few),
    )
    for column, text in entries:
        pk = run(lives=2)
        for seq, kind in enumerate(KINDS, 2):
            clone(db, "entries", "seq = 1", **{"run": pk, "seq": seq, "kind": kind, column: text})
    for column, number in extremes(db, "entries", without=("run", "seq")):
        pk = run(lives=2)
        for seq, kind in enumerate(KINDS, 2):
            clone(db, "entries", "seq = 1", **{"run": pk, "seq": seq, "kind": kind, column: number})
    for column, text in itertools.product(("name", "id", "value"), few):
        clone(db, "messages", "name = 'name'", **{"run": run(lives=2), column: text})
    for column, text in itertools.product(("host", "asked"), few):
        workers.append(f"worker {len(workers)}")
        clone(db, "workers", "id = 'w'", **{"id": workers[-1], column: text})
    constrained = ("lease", "lease_until", "renewed", "draining")
    for column, number in extremes(db, "workers", without=constrained):
        workers.append(f"worker {len(workers)}")
        clone(db, "workers", "id = 'w'", **{"id": workers[-1], column: number})
    for column, text in itertools.product(("host", "reason", "report"), few):
        drains.append(f"drain {len(drains)}")
        clone(db, "drains", "number = 1", **{"number": None, "worker": drains[-1], column: text})
    for name in (
        "seconds",
        "layers",
        "left",
        "cleanup",
        "recoveries",
        "cost",
        "units",
        "blocked",
        "completed",
        "not_checkpointed",
    ):
        for value in (ESCAPES, [ESCAPES, 1, None], {ESCAPES: ESCAPES}, None, 1e308):
            drains.append(f"drain {len(drains)}")
            clone(
                db,
                "drains",
                "number = 1",
                number=None,
                worker=drains[-1],
                report=json.dumps({name: value}),
            )
    for column, number in extremes(db, "drains", without=("number", "swept")):
        drains.append(f"drain {len(drains)}")
        clone(db, "drains", "number = 1", **{"number": None, "worker": drains[-1], column: number})
    for column, text in itertools.product(("field", "value", "list", "item"), few):
        sessions.append(f"session {len(sessions)}")
        clone(db, "sessions", "id = 'good session'", pk=None, id=sessions[-1])
        pk = db.execute("SELECT max(pk) FROM sessions").fetchone()[0]
        if column in ("field", "value"):
            clone(db, "session_fields", "field = 'field'", **{"session": pk, column: text})
        if column in ("list", "item"):
            name = {"field": text} if column == "list" else {}
            clone(db, "session_fields", "field = 'list'", **{"session": pk} | name)
            clone(
                db,
                "session_items",
                "field = 'list'",
                **{"session": pk} | name | ({"value": text} if column == "item" else {}),
            )
    for column, number in extremes(db, "sessions", without=("pk",)):
        sessions.append(
            f"session {len(sessions)}{GONE if column in ('version', 'expires') and number < 0 else ''}"
        )
        clone(
            db,
            "sessions",
            "id = 'good session'",
            **{"pk": None, "id": sessions[-1], column: number},
        )
    rate = {"key_starts_max": 1, "key_period": 1.0}
    for column, number in extremes(db, "queues", without=("paused",)):
        if column.startswith("key_") and number < 0:
            continue  # The schema rejects it.
        clone(
            db,
            "queues",
            "name = 'default'",
            **{"name": f"{column} {number!r} {ESCAPES}", **rate, column: number},
        )
    return runs, drains, sessions, workers


def extremes(db: Any, table: str, without: tuple[str, ...] = ()) -> list[tuple[str, float]]:
    """Return each number column of a table with each extreme number."""
    return [
        (column, number)
        for kind, numbers in NUMBERS.items()
        for column in columns_of(db, table, kind)
        if column not in without
        for number in numbers
    ]
