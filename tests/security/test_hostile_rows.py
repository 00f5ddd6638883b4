"""Hostile values in any column of a store do not break commands or metrics."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import suppress

import pytest
import redis
from hostile_store import GONE, Hostile, fill, fill_at, spoil
from prometheus_client import generate_latest
from security_tools import ESCAPES, Shell, harmless, rewrite

from outlast import Outlast, OutlastError
from outlast.cli.exit_codes import FAILED, TRY_AGAIN, UNKNOWN_RUN, USAGE, WRONG_STATUS
from outlast.http.metrics import registry_of
from support.stores import redis_place

COMMANDS = (
    ("runs", "--limit", "100000"), ("runs", "--items"), ("runs", "--undoing"), ("workers",), ("queues",), ("drains", "--limit", "1000"),
    ("sessions", "--limit", "1000"), ("sessions", "--checkpoints", "--limit", "1000"),
)  # fmt: skip


FORMS = ((), ("--full",), ("--json",))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    """A store in which every column of every table has held every hostile text, each in a row of its own, among good rows."""
    path = tmp_path_factory.mktemp("hostile") / "outlast.db"
    fill(path)
    return rewrite(path, lambda db: Hostile(path, *spoil(db)))


@pytest.fixture
def shell(hostile: Hostile, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(f"sqlite:///{hostile.path}", capsys)


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
    """Run each command on a copy. It is refused or done, and its output cannot control a terminal."""
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
