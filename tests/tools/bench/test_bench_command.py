"""Test `outlast bench` on a store that others work in: what it prints, and that nothing of it stays."""

import json
import os
import signal
from pathlib import Path

import pytest
from bench_tools import (
    COMMITS,
    HUNDRED_RUNS,
    LONE_RUN,
    QUICK,
    document,
    made,
    members_of,
    nothing_is_left,
    opened,
    others_seen,
    others_work,
    runs_of_benches,
    started,
)

from outlast.settings import Settings
from outlast.store.address import store_at
from outlast.store.commands import Renew, Submit, Sweep
from outlast.store.file.store import FileStore
from outlast.store.protocol import Store
from outlast.tools.bench import bench as benching
from outlast.tools.bench import command as cli
from outlast.tools.bench import guest as measuring
from outlast.tools.bench import steps as stepping
from outlast.tools.bench.figures import Recovery
from outlast.tools.bench.guest import guest
from outlast.tools.bench.names import QUEUE, RECOVERY
from support.cli import Answer, answer_of
from support.processes import Program
from support.stores import a_place, postgres_place, redis_place
from support.waiting import WAIT_SECONDS, wait_until

SPREAD = {"p50_seconds", "p99_seconds"}
STEPS = SPREAD | {
    "runs", "steps", "seconds", "steps_per_second", "cpu_seconds_per_step", "cores_used", "cores_waited_for", "steps_per_commit",
}  # fmt: skip


def here(capsys: pytest.CaptureFixture[str], address: str, *words: object) -> Answer:
    """Run a bench in this process."""
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
    """Check that the document is as docs/measuring.md says, and that its numbers can be true."""
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


def test_bench_leaves_the_runs_of_others_unchanged(place, tmp_path):
    """The limits that a user has set for runs and queues do not apply to it."""
    limits = {
        "OUTLAST_QUEUE_DEPTH_MAX": "1",
        "OUTLAST_JOURNAL_ENTRIES_MAX": "10",
        "OUTLAST_CONCURRENCY": "1",
        "OUTLAST_SUBMIT_MANY_MAX": "1",
    }
    with opened(place) as store:
        others_work(store)
        before = others_seen(store)
        with started(
            place, tmp_path / "bench", "--seconds", 2, "--json", kills=3, **limits
        ) as bench:
            assert bench.wait() == 0, bench.describe()
        said = document(bench.output)
        check(said)
        assert said["recovery"]["not_measured"] is None
        assert len(said["recovery"]["seconds"]) == 3
        assert all(0 < seconds < WAIT_SECONDS for seconds in said["recovery"]["seconds"])
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
        has_come = {
            "commits": store.workers,
            "steps": lambda: runs_of_benches(store),
            "recovery": lambda: recovers(store),
        }
        with in_part(place, tmp_path / "bench", when) as bench:
            bench.wait_until(has_come[when])
            bench.send_signal(number)
            assert (bench.wait(), bench.output) == (code, ""), bench.describe()
        assert members_of(bench.pid) == []
        nothing_is_left(store)


def in_part(place: str, folder: Path, part: str) -> Program:
    """Start a bench that comes to one part at once and stays there."""
    if part == "recovery":
        return started(place, folder, "--seconds", 1, at_work=3600.0)
    return started(
        place, folder, "--seconds", 3600, shares=COMMITS if part == "commits" else LONE_RUN
    )


def recovers(store: Store) -> bool:
    return any(row.workflow == RECOVERY and row.worker for row in runs_of_benches(store))


def test_next_bench_clears_the_runs_of_a_killed_one(place, tmp_path):
    with opened(place) as store:
        others_work(store)
        before = others_seen(store)
        with started(place, tmp_path / "bench", "--seconds", 3600, shares=HUNDRED_RUNS) as bench:
            bench.wait_until(lambda: len(runs_of_benches(store)) > 100)
        assert len(runs_of_benches(store)) > 100
        with guest(store_at(place), Settings()):
            assert runs_of_benches(store) == []
        assert others_seen(store) == before
        nothing_is_left(store)


def test_bench_workers_die_with_the_bench(redis_server, tmp_path):
    with redis_place(redis_server.url) as place, opened(place) as store:
        with in_part(place, tmp_path, "recovery") as bench:
            bench.wait_until(lambda: recovers(store))
            assert len(members_of(bench.pid)) == 2
        wait_until(lambda: members_of(bench.pid) == [])
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


def test_paused_bench_that_was_declared_dead_says_so(redis_server, tmp_path):
    with redis_place(redis_server.url) as place, opened(place) as store:
        with in_part(place, tmp_path, "steps") as bench:
            bench.wait_until(lambda: runs_of_benches(store))
            bench.pause()
            store.commit([Renew(row.id, 0.0) for row in store.workers()])  # its lease ends now
            wait_until(lambda: store.commit([Sweep()]) and not store.workers())
            with guest(store_at(place), Settings()):
                assert runs_of_benches(store) == []
            bench.resume()
            assert bench.wait() == 1, bench.describe()
        assert "considered dead" in bench.errors
        assert "Traceback" not in bench.errors
        nothing_is_left(store)


def test_drain_request_ends_the_bench(tmp_path, capsys):
    place = made(f"sqlite:///{tmp_path}/outlast.db")
    with opened(place) as store, in_part(place, tmp_path / "bench", "steps") as bench:
        row = bench.wait_until(lambda: [row for row in store.workers() if row.concurrency])[0]
        bench.wait_until(lambda: runs_of_benches(store))
        assert answer_of(["drain", "--worker", row.id, "--store", place], capsys).code == 0
        assert bench.wait() == 75, bench.describe()
        assert "asked to stop" in bench.errors
        assert runs_of_benches(store) == []
        assert store.workers() == []


def test_other_workers_continue_during_a_bench(redis_server, tmp_path, capsys):
    """One of them claims from the same queue and does not know the workflows."""
    (tmp_path / "theirs.py").write_text(PROGRAM)
    words = (
        "-m",
        "outlast",
        "worker",
        "theirs.py",
        "--queue",
        "default",
        "--queue",
        QUEUE,
        "--log",
        "json",
    )
    with redis_place(redis_server.url) as place, opened(place) as store:
        with Program.python(*words, "--store", place, folder=tmp_path) as worker:
            (theirs,) = worker.wait_until(store.workers)
            with started(
                place, tmp_path / "bench", "--seconds", 2, "--json", shares=(0, 0, 1)
            ) as bench:
                wait_until(lambda: len(runs_of_benches(store)) > 50 or bench.has_ended)
                store.commit([Submit("own", "theirs", "{}", "t-own", "seed")])
                doctor = answer_of(["doctor", "--json", "--store", place], capsys)
                wait_until(lambda: store.run("own").status == "done")
                assert bench.wait() == 0, bench.describe()
            check(document(bench.output))
            findings = {one["check"]: one["level"] for one in doctor.json["findings"]}
            assert (findings["runs"], findings["workers"]) == ("ok", "ok")
            assert runs_of_benches(store) == []
            assert [row.id for row in store.workers()] == [theirs.id]
            assert store.run("own").lives == 1
            worker.terminate()
            worker.wait()
    events = [json.loads(line) for line in worker.errors.splitlines()]
    claimed = {event["workflow"] for event in events if event["message"].startswith("Run ")}
    assert claimed == {"theirs"}


@pytest.fixture
def quick(monkeypatch):
    """Make a bench in this process as short as it can be."""
    monkeypatch.setattr(benching, "SHARES", QUICK)
    monkeypatch.setattr(stepping, "WARM_UP_SECONDS", 0.02)


def test_bench_prints_eighty_columns(capsys, quick):
    code, out, err = here(capsys, "memory:", "--seconds", 1)
    assert code == 0, err
    lines = out.splitlines()
    assert [line for line in lines[1:] if len(line) > 80] == []
    assert out.isascii()
    assert "\x1b" not in out
    assert lines[2].split() == ["STEPS/S", "P50", "P99", "CPU/STEP", "STEPS/COMMIT"]
    assert [line[:18].rstrip() for line in lines[3:6]] == [
        "one durable commit",
        "a single run",
        "100 runs at once",
    ]
    assert lines[7].startswith("Recovery was not measured: a memory: store ")
    assert "A single run " in out


def test_bench_prints_the_seconds_of_each_recovery():
    said = cli._recovery(Recovery((0.301, 1.2, 0.45)))
    assert said == "Recovery: 0.30, 1.20 and 0.45 s from a kill -9 until another worker continued."


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_bench_skips_recovery_on_single_process_stores(tmp_path, capsys, quick, scheme):
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


def test_missing_store_is_not_created(tmp_path, capsys):
    code, _, err = here(capsys, f"sqlite:///{tmp_path}/none.db")
    assert code == 1
    assert "there is no store" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["sqlit:///x.db", "sqlite:x.db", "redis://h:99999/0"])
def test_wrong_address_exits_with_2(address, capsys):
    assert here(capsys, address).code == 2


def test_unavailable_store_exits_with_75(tmp_path, capsys, monkeypatch):
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


def test_read_only_store_exits_with_75(postgres_server, capsys):
    with postgres_place(postgres_server.url) as address:
        made(address)
        code, _, err = here(capsys, f"{address}&options=-c%20default_transaction_read_only%3Don")
        assert code == 75, err
        assert "read-only" in err
