"""`outlast drain`: ask workers to drain, and wait for them."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from drain_rows import FORBIDDEN, HERE, HOSTILE, REPORT, drained, registered

from outlast.cli.drain import AGAIN_SECONDS
from outlast.cli.os_user import os_user
from outlast.store.address import store_at
from outlast.store.commands import (
    DeregisterWorker,
    Drain,
    RegisterWorker,
    RequestDrain,
    StoreDrainReport,
)
from support.waiting import WAIT_SECONDS

BY = f" (by {os_user()})"
"""What the command adds to a reason: who asked."""
BY_DEFAULT = f"outlast drain{BY}"


def asked(outlast, worker="w1"):
    store = store_at(outlast.address)
    store.open()
    try:
        return store.asked(worker)
    finally:
        store.close()


# -- whom drain asks


@pytest.mark.parametrize("command", ["drain", "drains"])
def test_without_a_store_nothing_is_made(outlast, command):
    answer = outlast(command)
    assert answer.code == 1
    assert "there is no store" in answer.err
    assert not outlast.db.exists()


def test_drain_asks_the_worker_of_this_host(outlast):
    registered(outlast, "w1")
    registered(outlast, "w2", host="another-host")
    answer = outlast("drain", "--why", "a deploy")
    assert (answer.code, answer.out) == (0, "")
    assert "worker w1 (pid 4242" in answer.err
    assert (asked(outlast, "w1"), asked(outlast, "w2")) == (f"a deploy{BY}", None)


def test_first_drain_request_is_kept(outlast):
    registered(outlast)
    assert outlast("drain", "--why", "the first").code == 0
    assert outlast("drain", "--why", "the second").code == 0
    assert asked(outlast) == f"the first{BY}"


def test_drain_without_workers_says_what_to_do(outlast):
    outlast.submitted("r1")
    answer = outlast("drain", "--json")
    assert answer.code == 1
    assert answer.json["error"]["type"] == "NoWorker"
    assert f"no worker to drain on this host ({HERE})" in answer.err
    assert "OUTLAST_STORE" in answer.err


def test_drain_names_workers_of_other_hosts(outlast):
    registered(outlast, "w2", host="another-host")
    answer = outlast("drain")
    assert answer.code == 1
    assert "w2 (another-host)" in answer.err
    assert "`outlast drain --worker ID`" in answer.err
    assert asked(outlast, "w2") is None


def test_a_dead_worker_is_not_asked(outlast):
    registered(outlast, "gone", lease=0)
    answer = outlast("drain", "--wait")
    assert answer.code == 1
    assert "on this host seem dead, and the next sweep removes them: gone (pid 4242)" in answer.err
    assert asked(outlast, "gone") is None
    registered(outlast, "w1")
    assert outlast("drain").code == 0
    assert (asked(outlast, "gone"), asked(outlast, "w1")) == (None, BY_DEFAULT)


def test_drain_needs_a_worker_id_if_there_are_two(outlast):
    registered(outlast, "w1")
    registered(outlast, "w2")
    answer = outlast("drain")
    assert answer.code == 2
    for word in ("w1", "w2", "--worker", "--all"):
        assert word in answer.err
    assert asked(outlast, "w1") is asked(outlast, "w2") is None
    assert outlast("drain", "--worker", "w2").code == 0
    assert (asked(outlast, "w1"), asked(outlast, "w2")) == (None, BY_DEFAULT)


def test_drain_all_asks_every_worker_of_this_host(outlast):
    registered(outlast, "w1")
    registered(outlast, "w2")
    registered(outlast, "w3", host="another-host")
    answer = outlast("drain", "--all", "--json")
    assert [(one["id"], one["state"]) for one in answer.json["workers"]] == [
        ("w1", "asked"),
        ("w2", "asked"),
    ]
    assert asked(outlast, "w3") is None


def test_drain_accepts_the_prefix_of_a_worker_id(outlast):
    registered(outlast, "abc1", host="another-host")
    registered(outlast, "abd2", host="another-host")
    assert outlast("drain", "--worker", "ab").code == 2
    assert outlast("drain", "--worker", "abd").code == 0
    assert (asked(outlast, "abc1"), asked(outlast, "abd2")) == (None, BY_DEFAULT)


@pytest.mark.parametrize("name", ["nobody", "", "%", "' OR 1=1 --", HOSTILE])
def test_a_worker_that_is_not_there_is_an_error(outlast, name):
    registered(outlast)
    answer = outlast("drain", "--worker", name)
    assert answer.code == 1
    assert "has this store open" in answer.err
    assert not FORBIDDEN & set(answer.err)
    assert asked(outlast) is None


def test_drain_skips_programs_that_only_submit(outlast):
    registered(outlast, "client", concurrency=0, queues=())
    registered(outlast, "w1")
    assert outlast("drain").code == 0
    assert (asked(outlast, "client"), asked(outlast, "w1")) == (None, BY_DEFAULT)


def test_drain_stops_waiting_for_a_program_without_claims(outlast, monkeypatch):
    monkeypatch.setattr("outlast.cli.drain.HEAR_SECONDS", 0.2)
    registered(outlast, "consumer", concurrency=0, queues=())
    answer = outlast("drain", "--wait")
    assert answer.code == 1
    assert "Does it consume a queue?" in answer.err
    assert asked(outlast, "consumer") == BY_DEFAULT


def test_options_that_make_no_sense_are_refused(outlast):
    registered(outlast)
    for words in (
        ["--worker", "w1", "--all"],
        ["--timeout", "5"],
        ["--wait", "--timeout", "-1"],
        ["--wait", "--timeout", "x"],
    ):
        assert outlast("drain", *words).code == 2
    assert asked(outlast) is None


def test_long_drain_reason_is_truncated(outlast, monkeypatch):
    registered(outlast)
    monkeypatch.setenv("OUTLAST_ERROR_TEXT_MAX", "10")
    assert outlast("drain", "--why", "x" * 50).code == 0
    assert asked(outlast) == "x" * 10


# -- waiting


def test_drain_wait_ends_with_the_report(outlast, clock):
    registered(outlast)
    commands = [
        Drain("w1", "outlast drain"),
        StoreDrainReport("w1", json.dumps(REPORT)),
        DeregisterWorker("w1"),
    ]

    def obey():
        assert asked(outlast) == BY_DEFAULT
        outlast.commit(*commands)

    clock.after(1.0, obey)
    answer = outlast("drain", "--wait")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == (
        "outlast: worker w1 drained in 3.2 s: 4 completed, 3 released, 2 waiting, 1 checkpointed, 5 not started, 1 left.\n"
    )


def test_drain_wait_covers_a_worker_that_drains_already(outlast, clock):
    registered(outlast)
    outlast.commit(Drain("w1", "SIGTERM"))
    answer = outlast("drain")
    assert (answer.code, answer.err) == (0, "outlast: worker w1 is already draining: SIGTERM.\n")
    clock.after(
        2.0,
        lambda: outlast.commit(StoreDrainReport("w1", json.dumps(REPORT)), DeregisterWorker("w1")),
    )
    answer = outlast("drain", "--wait", "--json")
    (one,) = answer.json["workers"]
    assert (answer.code, one["state"], one["drain"]["reason"]) == (0, "gone", "SIGTERM")
    assert set(one) == {"id", "host", "pid", "state", "drain"}
    assert asked(outlast) is None


def test_drain_wait_timeout_is_an_error(outlast, clock):
    registered(outlast)
    began = clock.now
    answer = outlast("drain", "--wait", "--timeout", "0.3", "--json")
    assert clock.now - began == pytest.approx(0.3)
    assert (answer.code, answer.json["workers"][0]["state"]) == (1, "waiting")
    assert asked(outlast) == BY_DEFAULT
    answer = outlast("drain", "--wait", "--timeout", "0")
    assert answer.code == 1
    assert answer.err == (
        "outlast: worker w1 has not begun to drain after 0 ms. Is its event loop blocked? The "
        "request stands. To keep waiting, run `outlast drain --worker w1 --wait`.\n"
    )
    outlast.commit(Drain("w1", "SIGTERM"))
    answer = outlast("drain", "--wait", "--timeout", "0.1")
    assert answer.code == 1
    assert answer.err == (
        "outlast: worker w1 is still draining after 100 ms. The request stands. To keep waiting, "
        "run `outlast drain --worker w1 --wait`.\n"
    )


def test_the_command_that_waits_again_names_the_same_worker(outlast, clock):
    for id in ("w1", "w2"):
        registered(outlast, id)
    answer = outlast("drain", "--worker", "w1", "--wait", "--timeout", "1")
    outlast.commit(Drain("w1", "SIGTERM"))
    again = answer.err.rpartition("`outlast ")[2].partition("`")[0].split()
    outlast(*again, "--timeout", "1")
    assert asked(outlast, "w2") is None, "w2 is healthy"


def test_drain_wait_ends_when_the_worker_is_dead(outlast):
    registered(outlast)
    outlast.commit(Drain("w1", "SIGTERM"))
    outlast.commit(
        RegisterWorker("w1", HERE, 4242, 0.0, ("default",), ("report",), 4)
    )  # its lease has run out
    answer = outlast("drain", "--wait", "--worker", "w1")
    assert answer.code == 0
    assert "The next sweep releases" in answer.err


def test_drain_wait_reports_a_worker_that_has_left(outlast):
    drained(outlast)
    answer = outlast("drain", "--wait", "--worker", "w1")
    assert answer.code == 0
    assert "worker w1 drained in 3.2 s" in answer.err


def test_drain_retries_a_busy_store(outlast, clock, monkeypatch):
    monkeypatch.setattr("outlast.store.sqlite.connection.BUSY_SECONDS", 0.05)
    registered(outlast)
    with closing(sqlite3.connect(outlast.db, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        clock.after(0.1, db.rollback)
        answer = outlast("drain")
    assert answer.code == 0, answer.err
    assert asked(outlast) == BY_DEFAULT


def test_drain_gives_up_on_a_busy_store_at_its_timeout(outlast, clock, monkeypatch):
    monkeypatch.setattr("outlast.store.sqlite.connection.BUSY_SECONDS", 0.05)
    registered(outlast)
    with closing(sqlite3.connect(outlast.db, isolation_level=None, timeout=0)) as db:
        db.execute("BEGIN IMMEDIATE")
        began = clock.now
        assert outlast("drain", "--wait", "--timeout", "0.5").code == 75
        assert clock.now - began <= 0.5 + AGAIN_SECONDS


# -- with a real worker


def test_drain_imports_neither_rich_nor_a_server(outlast):
    registered(outlast)
    code = (
        "import sys\nfrom outlast.cli import main\n"
        "try: main(['drain'])\nexcept SystemExit: print([m for m in ('rich', 'starlette', 'uvicorn') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=outlast.folder,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_drain_request_for_a_missing_worker_is_refused(outlast):
    """What `drain` relies on: a worker that left between the look and the request was not asked."""
    outlast.submitted("r1")
    (refused,) = outlast.commit(RequestDrain("nobody", "why"))
    assert refused is not None
