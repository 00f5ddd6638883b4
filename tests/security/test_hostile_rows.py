"""Hostile values in any column of a store do not break commands or metrics."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from prometheus_client import generate_latest
from security_tools import ESCAPES, JSON_TEXTS, Shell, clone, columns_of, harmless, rewrite

from outlast import Outlast, OutlastError
from outlast.cli.exit_codes import FAILED, TRY_AGAIN, UNKNOWN_RUN, USAGE, WRONG_STATUS
from outlast.http.metrics import registry_of
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
from support.stores import redis_place

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
COMMANDS = (
    ("runs", "--limit", "100000"), ("runs", "--items"), ("runs", "--undoing"), ("workers",), ("queues",), ("drains", "--limit", "1000"),
    ("sessions", "--limit", "1000"), ("sessions", "--checkpoints", "--limit", "1000"),
)  # fmt: skip


FORMS = ((), ("--full",), ("--json",))
FEW = ("deep list", "object", "no JSON", "empty")
"""Of the texts: where the same function reads all of them."""


class Hostile(NamedTuple):
    path: Path
    runs: list[str]
    drains: list[str]
    sessions: list[str]
    workers: list[str]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    """A store in which every column of every table has held every hostile text, each in a row of its own, among good rows."""
    path = tmp_path_factory.mktemp("hostile") / "outlast.db"
    fill(path)
    return rewrite(path, lambda db: Hostile(path, *spoil(db)))


@pytest.fixture
def shell(hostile: Hostile, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(f"sqlite:///{hostile.path}", capsys)


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
    for column, number in extremes(db, "queues"):
        clone(
            db,
            "queues",
            "name = 'default'",
            **{"name": f"{column} {number!r} {ESCAPES}", column: number},
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


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("form", ["people", "json"])
def test_lists_show_every_readable_row_among_hostile_ones(hostile, shell, words, form) -> None:
    answer = shell(*words, *(["--json"] if form == "json" else []))
    assert answer.code == 0, answer.err[-300:]
    assert harmless(answer)
    assert missing(listed(hostile, words), answer.out, form) == []


def listed(hostile: Hostile, words: tuple[str, ...]) -> list[str]:
    """What a list must have in it: good rows, and as many of the others as have a name that can be looked for."""
    return {
        COMMANDS[0]: ["canary", "good", *(id for id in hostile.runs if ESCAPES not in id)],
        ("workers",): ["w", *hostile.workers],
        ("queues",): ["default"],
        ("drains", "--limit", "1000"): ["drained", *hostile.drains],
        ("sessions", "--limit", "1000"): [
            "good session",
            *(id for id in hostile.sessions if not id.endswith(GONE)),
        ],
        ("sessions", "--checkpoints", "--limit", "1000"): ["good checkpoint"],
    }.get(words, [])


def missing(names: list[str], out: str, form: str) -> list[str]:
    """Return those that are no words of their own, or no text of their own."""
    if form == "json":
        rows = [row for part in json.loads(out).values() if isinstance(part, list) for row in part]
        texts = {
            text
            for row in rows
            if isinstance(row, dict)
            for text in row.values()
            if isinstance(text, str)
        }
        return [name for name in names if name not in texts]
    words = f" {' '.join(out.split())} "
    return [name for name in names if f" {name} " not in words]


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.extended) for part in (1, 2, 3))]
)
def test_show_survives_hostile_texts_and_numbers(hostile, shell, part) -> None:
    """Show each run in one of the three forms, which read it alike. `make stores` shows all runs."""
    for number, id in list(enumerate(hostile.runs))[part::4]:
        answer = shell("show", id, *FORMS[number % 3])
        assert harmless(answer), id
        assert answer.code == (USAGE if ESCAPES in id else 0), (id, answer.err)


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.extended)])
def test_sessions_and_drains_survive_hostile_contents(hostile, shell, part) -> None:
    """Show every other one. `make stores` shows all of them."""
    for number, id in enumerate(hostile.sessions[part::2]):
        answer = shell("sessions", id, *FORMS[number % 2 * 2])
        assert harmless(answer), id
        assert answer.code in (0, UNKNOWN_RUN), (id, answer.err)
    for number, worker in enumerate(hostile.drains[part::2]):
        answer = shell("drains", worker, *FORMS[number % 2 * 2])
        assert harmless(answer), worker
        assert answer.code == 0, (worker, answer.err)


ACTS = (
    ("cancel", "--why", ESCAPES), ("retry",), ("resume",), ("decide", "a#1", "--did-not"), ("send", "name", "1"), ("prune", "--older-than", "1000000w"),
)  # fmt: skip


def test_commands_on_hostile_runs_escape_their_output(hostile, capsys, tmp_path) -> None:
    """On a copy. Each is refused or done, and what is said of it has no power."""
    shutil.copy(hostile.path, tmp_path / "outlast.db")
    shell = Shell(f"sqlite:///{tmp_path}/outlast.db", capsys)
    for number, (name, *rest) in enumerate(ACTS):
        for id in hostile.runs[number::40]:
            words = [name, *rest] if name == "prune" else [name, id, *rest]
            answer = shell(*words, *(["--json"] if number % 2 else []))
            assert harmless(answer), words
            assert answer.code in (0, FAILED, USAGE, WRONG_STATUS), (words, answer.err)


def test_chaos_verify_survives_hostile_rows(hostile, capsys, tmp_path) -> None:
    """On a copy."""
    shutil.copy(hostile.path, tmp_path / "outlast.db")
    shell = Shell(f"sqlite:///{tmp_path}/outlast.db", capsys)
    for form in ((), ("--json",), ("--thorough",)):
        answer = shell("chaos", "verify", "--since", "1000w", *form)
        assert harmless(answer)
        assert answer.code == FAILED
        assert "cannot be read" in answer.out


def test_doctor_survives_hostile_rows(shell) -> None:
    answer = shell("doctor")
    assert harmless(answer)
    assert answer.code in (0, FAILED)
    assert "StoreBroken" not in answer.out + answer.err


def test_app_and_metrics_survive_hostile_rows(hostile, tmp_path) -> None:
    """On a copy: an app that is open sweeps."""
    shutil.copy(hostile.path, tmp_path / "outlast.db")

    async def main() -> tuple[set[str], bytes]:
        async with Outlast(f"sqlite:///{tmp_path}/outlast.db") as app:
            known = {run.id for run in await app.runs(limit=100_000)}
            await app.workers()
            await app.queues()
            await app.drains(limit=1000)
            for id in hostile.runs[::10]:
                with suppress(OutlastError):
                    await app.effects(id)
            app.status_provider.refresh()
            text = generate_latest(registry_of(app.status_provider.samples))
        return known, text

    known, text = asyncio.run(main())
    assert {"canary", *hostile.runs} <= known
    assert b"outlast_store_up 1" in text
    assert b'outlast_queue_depth{queue="default"}' in text
    assert not [line for line in text.splitlines() if b"\x1b" in line]


LOOKS = (
    ["runs"],
    ["runs", "--json"],
    ["show", "canary"],
    ["workers"],
    ["queues"],
    ["drains"],
    ["sessions"],
    ["doctor"],
    ["chaos", "verify", "--since", "1h"],
)


def test_invalid_utf8_in_a_store_is_a_one_line_error(tmp_path, capsys) -> None:
    """SQLite keeps the bytes as they are, and reading them takes the whole answer."""
    fill(tmp_path / "outlast.db")
    rewrite(
        tmp_path / "outlast.db",
        lambda db: db.execute(
            "UPDATE runs SET error = CAST(x'ff00fe' AS TEXT), reason = CAST(x'c328' AS TEXT)"
        ),
    )
    shell = Shell(f"sqlite:///{tmp_path}/outlast.db", capsys)
    for words in LOOKS:
        answer = shell(*words)
        assert answer.code in (0, FAILED), words
        assert len(answer.err.splitlines()) <= 2
        assert harmless(answer)
    assert "a text in it is damaged" in shell("runs").err


def test_foreign_redis_keys_cause_one_line_errors(redis_server, capsys) -> None:
    """Whatever they hold, and of whatever kind they are."""
    with redis_place(redis_server.url) as place, redis.Redis.from_url(redis_server.url) as client:
        prefix = place.rpartition("prefix=")[2]
        for number, spoilt in enumerate(
            (b"garbage", b"[" * 5_000, b'{"a":1}', b"\xff\x00", ESCAPES.encode())
        ):
            address = f"{place}{number}"
            fill_at(address)
            for key in client.scan_iter(f"{{{prefix}{number}}}:run:*"):
                client.hset(key, mapping=dict.fromkeys(client.hkeys(key), spoilt))
            shell = Shell(address, capsys)
            for words in LOOKS:
                answer = shell(*words)
                assert answer.code in (0, FAILED, UNKNOWN_RUN, TRY_AGAIN), (words, answer.err)
                assert harmless(answer), words
