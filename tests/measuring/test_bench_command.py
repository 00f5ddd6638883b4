"""`outlast bench` on a store that others work in: what it says, and that nothing of it stays."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from bench_tools import (
    bench,
    document,
    environ,
    made,
    members_of,
    nothing_is_left,
    opened,
    others_seen,
    others_work,
    outlast,
    runs_of_benches,
    started,
)

from outlast.measuring import bench as benching
from outlast.measuring import guest as measuring
from outlast.measuring.guest import guest
from outlast.measuring.names import QUEUE, RECOVERY
from outlast.settings import Settings
from outlast.store.address import store_at
from outlast.store.file.store import FileStore
from outlast.store.protocol import Store
from outlast.store.verbs import Submit, Sweep
from support.cli import Answer, answer_of
from support.stores import a_place, postgres_place, redis_place
from support.waiting import WAIT_SECONDS, wait_until

SPREAD = {"p50_seconds", "p99_seconds"}
STEPS = SPREAD | {
    "runs", "steps", "seconds", "steps_per_second", "cpu_seconds_per_step", "cores_used", "cores_waited_for", "steps_per_commit",
}  # fmt: skip


def here(capsys: pytest.CaptureFixture[str], address: str, *words: object) -> Answer:
    """In this process."""
    return answer_of(["bench", "--store", address, *map(str, words)], capsys)


PROGRAM = """
from outlast import step, workflow

@step
async def once() -> int:
    return 1

@workflow
async def theirs() -> int:
    return await once()
"""


def check(said: dict) -> None:
    """The document is as docs/commands.md says, and its numbers can be true."""
    assert set(said) == {"store", "seconds", "commit", "lone", "hundred", "recovery", "limits"}
    assert set(said["commit"]) == SPREAD | {"commits"}
    assert set(said["lone"]) == set(said["hundred"]) == STEPS
    assert (said["lone"]["runs"], said["hundred"]["runs"]) == (1, 100)
    for part in (said["commit"], said["lone"], said["hundred"]):
        assert 0 < part["p50_seconds"] <= part["p99_seconds"] < 60
    for part in (said["lone"], said["hundred"]):
        assert part["steps_per_second"] == pytest.approx(part["steps"] / part["seconds"])
    assert 0.2 < said["lone"]["steps_per_commit"] < 1.5
    assert said["hundred"]["steps_per_commit"] > 2
    assert set(said["recovery"]) == {"seconds", "not_measured"}
    assert [(limit["of"], set(limit)) for limit in said["limits"]] == [
        ("lone", {"of", "by", "text"}),
        ("hundred", {"of", "by", "text"}),
    ]
    assert {limit["by"] for limit in said["limits"]} <= {"commit", "cpu", "store"}


def test_bench_leaves_the_runs_of_others_unchanged(place):
    with opened(place) as store:
        others_work(store)
        before = others_seen(store)
    code, out, err = bench(place, "--seconds", 1, "--json")
    assert code == 0, err
    said = document(out)
    check(said)
    assert said["recovery"]["not_measured"] is None
    assert len(said["recovery"]["seconds"]) == 3
    assert all(0 < seconds < WAIT_SECONDS for seconds in said["recovery"]["seconds"])
    with opened(place) as store:
        assert others_seen(store) == before
        assert len(before) == 6
        nothing_is_left(store)


@pytest.mark.parametrize(
    ("kind", "when", "number", "code"),
    [
        ("redis", "commits", signal.SIGINT, 130),
        ("postgres", "steps", signal.SIGINT, 130),
        ("sqlite", "steps", signal.SIGTERM, 75),
        ("sqlite", "recovery", signal.SIGINT, 130),
    ],
)
def test_signal_ends_the_bench_and_deletes_its_runs(request, tmp_path, kind, number, code, when):
    with a_place(request, kind, tmp_path) as place, opened(place) as store:
        come = {
            "commits": store.workers,
            "steps": lambda: runs_of_benches(store),
            "recovery": lambda: recovers(store),
        }
        for _ in range(ATTEMPTS):
            with started(place, "--seconds", 1 if when == "recovery" else 60) as process:
                wait_until(lambda: come[when]() or process.poll() is not None)
                process.send_signal(number)
                out, err = process.communicate(timeout=WAIT_SECONDS)
            if process.returncode != 0:
                break
        assert (process.returncode, out) == (code, ""), err
        assert members_of(process.pid) == []
        nothing_is_left(store)


ATTEMPTS = 10
"""A recovery takes a second or two. A test that got no CPU meanwhile is too late, and tries again."""


def recovers(store: Store) -> bool:
    return any(row.workflow == RECOVERY and row.worker for row in runs_of_benches(store))


def test_next_bench_clears_the_runs_of_a_killed_one(place):
    with opened(place) as store:
        others_work(store)
        before = others_seen(store)
        with started(place, "--seconds", 60):
            wait_until(lambda: len(runs_of_benches(store)) > 100)
        assert len(runs_of_benches(store)) > 100
        with guest(store_at(place), Settings()):
            assert runs_of_benches(store) == []
        assert others_seen(store) == before
        nothing_is_left(store)


def test_bench_workers_die_with_the_bench(redis_server):
    with redis_place(redis_server.url) as place, opened(place) as store:
        for _ in range(ATTEMPTS):
            with started(place, "--seconds", 1) as process:
                wait_until(lambda: recovers(store) or process.poll() is not None)
            if runs_of_benches(store):
                break
        wait_until(lambda: members_of(process.pid) == [])
        assert len(runs_of_benches(store)) == 1
        with guest(store_at(place), Settings()):
            assert runs_of_benches(store) == []
        nothing_is_left(store)


def test_only_one_bench_runs_at_a_time(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measuring, "ALONE_SECONDS", 0.1)
    place = made(f"sqlite:///{tmp_path}/outlast.db")
    with guest(store_at(place), Settings()):
        code, out, err = here(capsys, place, "--json")
        assert (code, document(out)["error"]["type"]) == (75, "OneAtATime")
        assert f"process {os.getpid()} " in err


def test_paused_bench_that_was_declared_dead_says_so(redis_server):
    with redis_place(redis_server.url) as place:
        made(place)
        lease = {"OUTLAST_LEASE": "5", "OUTLAST_HEARTBEAT": "0.1", "OUTLAST_STALL_MAX": "4"}
        with opened(place) as store, started(place, "--seconds", 60, **lease) as process:
            wait_until(lambda: runs_of_benches(store))
            process.send_signal(signal.SIGSTOP)
            wait_until(lambda: store.commit([Sweep()]) and not store.workers())
            with guest(store_at(place), Settings()):
                assert runs_of_benches(store) == []
            process.send_signal(signal.SIGCONT)
            _, err = process.communicate(timeout=WAIT_SECONDS)
            assert process.returncode == 1
            assert "was taken for dead" in err
            assert "Traceback" not in err
            nothing_is_left(store)


def test_drain_request_ends_the_bench(tmp_path, capsys):
    place = made(f"sqlite:///{tmp_path}/outlast.db")
    with opened(place) as store, started(place, "--seconds", 60) as process:
        row = wait_until(lambda: [row for row in store.workers() if row.concurrency])[0]
        wait_until(lambda: runs_of_benches(store))
        assert answer_of(["drain", "--worker", row.id, "--store", place], capsys).code == 0
        _, err = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 75, err
        assert "asked to end" in err
        assert runs_of_benches(store) == []
        assert store.workers() == []


def test_other_workers_continue_during_a_bench(redis_server, tmp_path, capsys):
    """One that claims from the same queue, too: it does not know the workflows."""
    (tmp_path / "theirs.py").write_text(PROGRAM)
    with redis_place(redis_server.url) as place, opened(place) as store:
        words = ("worker", "theirs.py", "--store", place, "--queue", "default", "--queue", QUEUE, "--log", "json")  # fmt: skip
        worker = subprocess.Popen(
            outlast(*words), cwd=tmp_path, env=environ(), stderr=subprocess.PIPE, text=True
        )
        with worker:
            try:
                (theirs,) = wait_until(store.workers)
                with started(place, "--seconds", 3, "--json") as process:
                    wait_until(lambda: len(runs_of_benches(store)) > 50 or process.poll() is not None)
                    store.commit([Submit("own", "theirs", "{}", "t-own", "seed")])
                    doctor = answer_of(["doctor", "--json", "--store", place], capsys)
                    wait_until(lambda: store.run("own").status == "done")
                    out, err = process.communicate(timeout=WAIT_SECONDS)
                assert process.returncode == 0, err
                check(document(out))
                findings = {one["check"]: one["level"] for one in doctor.json["findings"]}
                assert (findings["runs"], findings["workers"]) == ("ok", "ok")
                assert runs_of_benches(store) == []
                assert [row.id for row in store.workers()] == [theirs.id]
                assert store.run("own").lives == 1
            finally:
                worker.send_signal(signal.SIGTERM)
            _, log = worker.communicate(timeout=WAIT_SECONDS)
    events = [json.loads(line) for line in log.splitlines()]
    claimed = {event["workflow"] for event in events if event["message"].startswith("run ")}
    assert claimed == {"theirs"}


def test_bench_ignores_limits_and_prints_eighty_columns(tmp_path):
    code, out, err = bench(
        made(f"sqlite:///{tmp_path}/outlast.db"), "--seconds", 1,
        OUTLAST_QUEUE_DEPTH_MAX="1", OUTLAST_JOURNAL_ENTRIES_MAX="10", OUTLAST_CONCURRENCY="1", OUTLAST_SUBMIT_MANY_MAX="1",
    )  # fmt: skip
    assert code == 0, err
    lines = out.splitlines()
    assert [line for line in lines[1:] if len(line) > 80] == []
    assert out.isascii()
    assert "\x1b" not in out
    assert lines[2].split() == ["STEPS/S", "P50", "P99", "CPU/STEP", "STEPS/COMMIT"]
    assert [line[:18].rstrip() for line in lines[3:6]] == [
        "one durable commit",
        "a lone run",
        "100 runs at once",
    ]
    assert re.match(r"Recovery: [\d.]+, [\d.]+ and [\d.]+ s from a kill -9", lines[7])
    assert "A lone run " in out


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_bench_skips_recovery_on_single_process_stores(tmp_path, capsys, monkeypatch, scheme):
    monkeypatch.setattr(benching, "SHARES", (0.02, 0.05, 0.1))
    address = "memory:" if scheme == "memory" else made(f"file://{tmp_path}/state")
    code, out, err = here(capsys, address, "--seconds", 1, "--json")
    assert code == 0, err
    said = document(out)
    check(said)
    assert said["recovery"]["seconds"] == []
    assert f"a {scheme}: store" in said["recovery"]["not_measured"]
    if scheme == "file":
        with opened(address) as store:
            nothing_is_left(store)


def test_a_store_that_is_not_there_is_not_made(tmp_path, capsys):
    code, _, err = here(capsys, f"sqlite:///{tmp_path}/none.db")
    assert code == 1
    assert "there is no store" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["sqlit:///x.db", "sqlite:x.db", "redis://h:99999/0"])
def test_a_wrong_address_is_two(address, capsys):
    assert here(capsys, address).code == 2


def test_a_store_that_is_away_is_seventy_five(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("OUTLAST_STORE_PATIENCE", "3600")  # which the command does not wait for
    for address in ("redis://127.0.0.1:1/0", "postgresql://127.0.0.1:1/none"):
        code, out, _ = here(capsys, address, "--json")
        assert (code, document(out)["error"]["exit_code"]) == (75, 75)
    store = FileStore.at(f"file://{tmp_path}/state")
    store.open()
    try:
        code, _, err = here(capsys, f"file://{tmp_path}/state")
        assert code == 75, err
    finally:
        store.close()


def test_a_store_that_takes_no_writes_is_seventy_five(postgres_server, capsys):
    with postgres_place(postgres_server.url) as address:
        made(address)
        code, _, err = here(capsys, f"{address}&options=-c%20default_transaction_read_only%3Don")
        assert code == 75, err
        assert "read-only" in err


def test_bench_is_imported_lazily():
    code = (
        "import sys, outlast, outlast.cli.app; print([name for name in sys.modules if 'measuring' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
