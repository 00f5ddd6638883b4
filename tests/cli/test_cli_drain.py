"""`outlast drain` and `outlast drains`."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from outlast import effect, workflow
from outlast.store.address import store_at
from outlast.store.verbs import AskDrain, Claim, Drain, Enlist, Leave, Release, Report, Sweep

HERE = socket.gethostname()
HOSTILE = "\x1b[2J\x07 [red]\u202e\x9b31m\r\n\x7f"
FORBIDDEN = set("\x1b\x07\x9b\r\x7f\u202e")

REPORT_KEYS = {
    "worker", "reason", "host", "pid", "began", "seconds", "layers", "completed", "released", "waiting", "checkpointed",
    "given_back", "compensations", "cost", "left", "not_checkpointed", "blocked", "units", "cleanup", "cut_short", "recoveries",
}  # fmt: skip

REPORT = {
    "seconds": 3.25,
    "layers": {"coordinate": 0.004, "boundary": 2.5, "checkpoint": 3.0, "exit": 3.25},
    "completed": 4, "released": 3, "waiting": 2, "checkpointed": 1, "given_back": 5,
    "left": [{"what": "run", "id": "r9", "step": "crunch#1", "seconds": 12.5, "why": "it was told to stop and did not"}],
    "not_checkpointed": ["r9 crunch#1"],
    "blocked": ["the event loop stood still for 1.5 s"],
    "units": {"committed": 2, "rolled_back": 1},
    "cleanup": [{"name": "flush", "seconds": 0.1, "error": None}, {"name": "close", "seconds": 0.2, "error": "OSError()"}],
}  # fmt: skip


def enlisted(outlast, worker="w1", host=HERE, lease=1e6, concurrency=4, queues=("default",)):
    outlast.commit(Enlist(worker, host, 4242, lease, queues, ("report",), concurrency))


def drained(outlast, worker="w1", reason="SIGTERM", report=REPORT, **fields):
    enlisted(outlast, worker, **fields)
    outlast.commit(Drain(worker, reason), Report(worker, json.dumps(report)), Leave(worker))


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


def test_the_worker_of_this_host_is_asked(outlast):
    enlisted(outlast, "w1")
    enlisted(outlast, "w2", host="another-host")
    answer = outlast("drain", "--why", "a deploy")
    assert (answer.code, answer.out) == (0, "")
    assert "worker w1 (pid 4242" in answer.err
    assert (asked(outlast, "w1"), asked(outlast, "w2")) == ("a deploy", None)


def test_the_first_request_stays(outlast):
    enlisted(outlast)
    assert outlast("drain", "--why", "the first").code == 0
    assert outlast("drain", "--why", "the second").code == 0
    assert asked(outlast) == "the first"


def test_with_nobody_there_it_says_so_and_what_to_do(outlast):
    outlast.submitted("r1")
    answer = outlast("drain", "--json")
    assert answer.code == 1
    assert answer.json["error"]["type"] == "NoWorker"
    assert f"no worker of this host ({HERE})" in answer.err
    assert "OUTLAST_STORE" in answer.err


def test_workers_of_other_hosts_are_named_and_not_asked(outlast):
    enlisted(outlast, "w2", host="another-host")
    answer = outlast("drain")
    assert answer.code == 1
    assert "w2 (another-host)" in answer.err
    assert "`outlast drain --worker ID`" in answer.err
    assert asked(outlast, "w2") is None


def test_a_dead_worker_is_not_asked(outlast):
    enlisted(outlast, "gone", lease=0)
    answer = outlast("drain", "--wait")
    assert answer.code == 1
    assert "of this host seem dead, and the next sweep buries them: gone (pid 4242)" in answer.err
    assert asked(outlast, "gone") is None
    enlisted(outlast, "w1")
    assert outlast("drain").code == 0
    assert (asked(outlast, "gone"), asked(outlast, "w1")) == (None, "outlast drain")


def test_of_two_workers_of_this_host_one_must_be_named(outlast):
    enlisted(outlast, "w1")
    enlisted(outlast, "w2")
    answer = outlast("drain")
    assert answer.code == 2
    for word in ("w1", "w2", "--worker", "--all"):
        assert word in answer.err
    assert asked(outlast, "w1") is asked(outlast, "w2") is None
    assert outlast("drain", "--worker", "w2").code == 0
    assert (asked(outlast, "w1"), asked(outlast, "w2")) == (None, "outlast drain")


def test_all_are_those_of_this_host(outlast):
    enlisted(outlast, "w1")
    enlisted(outlast, "w2")
    enlisted(outlast, "w3", host="another-host")
    answer = outlast("drain", "--all", "--json")
    assert [(one["id"], one["state"]) for one in answer.json["workers"]] == [("w1", "asked"), ("w2", "asked")]
    assert asked(outlast, "w3") is None


def test_a_worker_of_another_host_can_be_named_by_the_beginning_of_its_id(outlast):
    enlisted(outlast, "abc1", host="another-host")
    enlisted(outlast, "abd2", host="another-host")
    assert outlast("drain", "--worker", "ab").code == 2
    assert outlast("drain", "--worker", "abd").code == 0
    assert (asked(outlast, "abc1"), asked(outlast, "abd2")) == (None, "outlast drain")


@pytest.mark.parametrize("name", ["nobody", "", "%", "' OR 1=1 --", HOSTILE])
def test_a_worker_that_is_not_there_is_an_error(outlast, name):
    enlisted(outlast)
    answer = outlast("drain", "--worker", name)
    assert answer.code == 1
    assert "has this store open" in answer.err
    assert not FORBIDDEN & set(answer.err)
    assert asked(outlast) is None


def test_who_only_submits_is_not_asked_beside_a_worker(outlast):
    enlisted(outlast, "client", concurrency=0, queues=())
    enlisted(outlast, "w1")
    assert outlast("drain").code == 0
    assert (asked(outlast, "client"), asked(outlast, "w1")) == (None, "outlast drain")


def test_one_without_claims_on_record_may_consume_a_queue_and_is_not_waited_for_in_vain(outlast, monkeypatch):
    monkeypatch.setattr("outlast.cli.drain.HEAR_SECONDS", 0.2)
    enlisted(outlast, "consumer", concurrency=0, queues=())
    answer = outlast("drain", "--wait")
    assert answer.code == 1
    assert "does it consume a queue?" in answer.err
    assert asked(outlast, "consumer") == "outlast drain"


def test_options_that_make_no_sense_are_refused(outlast):
    enlisted(outlast)
    for words in (
        ["--worker", "w1", "--all"],
        ["--timeout", "5"],
        ["--wait", "--timeout", "-1"],
        ["--wait", "--timeout", "x"],
    ):
        assert outlast("drain", *words).code == 2
    assert asked(outlast) is None


def test_a_reason_that_is_too_long_is_cut(outlast, monkeypatch):
    enlisted(outlast)
    monkeypatch.setenv("OUTLAST_ERROR_TEXT_MAX", "10")
    assert outlast("drain", "--why", "x" * 50).code == 0
    assert asked(outlast) == "x" * 10


# -- waiting


def test_waiting_ends_when_the_worker_has_left_and_says_what_came_of_it(outlast):
    enlisted(outlast)
    verbs = [Drain("w1", "outlast drain"), Report("w1", json.dumps(REPORT)), Leave("w1")]

    def obey():
        deadline = time.monotonic() + 30
        while asked(outlast) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        outlast.commit(*verbs)

    later = threading.Thread(target=obey)
    later.start()
    answer = outlast("drain", "--wait")
    later.join()
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == (
        "outlast: worker w1 drained in 3.2 s: 4 completed, 3 released, 2 waiting, 1 checkpointed, 5 given back, 1 left.\n"
    )


def test_a_worker_that_drains_already_is_waited_for_too(outlast):
    enlisted(outlast)
    outlast.commit(Drain("w1", "SIGTERM"))
    answer = outlast("drain")
    assert (answer.code, answer.err) == (0, "outlast: worker w1 drains already: SIGTERM.\n")
    later = threading.Timer(2.0, outlast.commit, [Report("w1", json.dumps(REPORT)), Leave("w1")])
    later.start()
    answer = outlast("drain", "--wait", "--json")
    later.join()
    (one,) = answer.json["workers"]
    assert (answer.code, one["state"], one["drain"]["reason"]) == (0, "gone", "SIGTERM")
    assert set(one) == {"id", "host", "pid", "state", "drain"}
    assert asked(outlast) is None


def test_a_wait_that_runs_out_is_an_error(outlast):
    enlisted(outlast)
    began = time.monotonic()
    answer = outlast("drain", "--wait", "--timeout", "0.3", "--json")
    assert 0.25 < time.monotonic() - began < 20
    assert (answer.code, answer.json["workers"][0]["state"]) == (1, "waiting")
    assert asked(outlast) == "outlast drain"
    answer = outlast("drain", "--wait", "--timeout", "0")
    assert answer.code == 1
    assert "it has not begun to drain" in answer.err
    outlast.commit(Drain("w1", "SIGTERM"))
    answer = outlast("drain", "--wait", "--timeout", "0.1")
    assert answer.code == 1
    assert "it still drains" in answer.err


def test_waiting_ends_when_the_process_of_the_worker_is_gone(outlast):
    enlisted(outlast)
    outlast.commit(Drain("w1", "SIGTERM"))
    outlast.commit(Enlist("w1", HERE, 4242, 0.0, ("default",), ("report",), 4))  # its lease has run out
    answer = outlast("drain", "--wait", "--worker", "w1")
    assert answer.code == 0
    assert "given back by the next sweep" in answer.err


def test_one_that_has_left_already_is_gone(outlast):
    drained(outlast)
    answer = outlast("drain", "--wait", "--worker", "w1")
    assert answer.code == 0
    assert "worker w1 drained in 3.2 s" in answer.err


def test_a_busy_store_is_tried_again(outlast):
    enlisted(outlast)
    db = sqlite3.connect(outlast.db, isolation_level=None, check_same_thread=False)
    db.execute("BEGIN IMMEDIATE")
    later = threading.Timer(2.5, db.rollback)  # longer than one attempt waits
    later.start()
    answer = outlast("drain")
    later.join()
    db.close()
    assert answer.code == 0, answer.err
    assert asked(outlast) == "outlast drain"


def test_a_store_that_stays_busy_is_try_again_within_the_time_out(outlast, monkeypatch):
    monkeypatch.setattr("outlast.store.sqlite.store.BUSY_SECONDS", 0.2)
    enlisted(outlast)
    with closing(sqlite3.connect(outlast.db, isolation_level=None, timeout=0)) as db:
        db.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        assert outlast("drain", "--wait", "--timeout", "0.5").code == 75
        assert time.monotonic() - began < 20


# -- drains


def test_drains_of_an_empty_store_says_so(outlast):
    outlast.submitted("r1")
    answer = outlast("drains")
    assert (answer.code, answer.out, answer.err) == (0, "", "outlast: no worker has drained here yet.\n")
    assert outlast("drains", "--json").json == {"drains": []}


def test_drains_lists_the_last_ones_newest_first(outlast):
    for number in range(3):
        drained(outlast, f"w{number}", reason=f"deploy {number}")
    answer = outlast("drains", "--limit", "2")
    head, *lines = answer.out.splitlines()
    assert head.split()[:3] == ["BEGAN", "WORKER", "HOST"]
    assert [line.split()[3] for line in lines] == ["w2", "w1"]
    assert "drained  3.2 s" in lines[0]
    assert "deploy 2" in lines[0]
    assert [one["worker"] for one in outlast("drains", "--json").json["drains"]] == ["w2", "w1", "w0"]
    assert outlast("drains", "--limit", "0").code == 2


def test_a_document_of_a_drain_is_the_whole_report(outlast):
    drained(outlast)
    (one,) = outlast("drains", "--json").json["drains"]
    assert set(one) == REPORT_KEYS
    assert one["began"].endswith("Z")
    assert one["left"] == REPORT["left"]
    assert one["cleanup"] == REPORT["cleanup"]
    assert outlast("drains", "w", "--json").json == {"drain": one}


def test_one_drain_is_shown_in_full(outlast):
    drained(outlast)
    shown = outlast("drains", "w1").out
    for words in (
        "worker w1  drained", f"{HERE}, pid 4242", "SIGTERM", "coordinate by 4 ms", "exit by 3.2 s",
        "4 completed, 3 released, 2 waiting, 1 checkpointed, 5 given back, 1 left", "2 committed, 1 rolled back",
        "run r9 at crunch#1, for 12.5 s: it was told to stop and did not", "did not stop  r9 crunch#1",
        "the event loop stood still", "flush: 100 ms", "close: 200 ms, failed: OSError()",
    ):  # fmt: skip
        assert words in shown


@effect(timeout=1000, undo=None)
async def long_act() -> None:
    await asyncio.sleep(500)


@workflow
async def acting() -> None:
    await long_act()


def test_an_effect_that_acts_at_the_end_of_the_grace_is_open_and_did_not_refuse_to_stop(world):
    async def main(app):
        await app.start(acting(), id="r1")
        await asyncio.sleep(1)
        return await app.drain("test", grace=10)

    report = world.do(main)
    [left] = report.left
    assert (left.step, left.why) == ("long_act#1", "an effect acts, and is not cut: it is open")
    assert report.not_checkpointed == []


def test_a_drain_that_is_not_on_record_or_not_clear_is_an_error(outlast):
    drained(outlast, "abc")
    drained(outlast, "abd")
    assert outlast("drains", "nobody").code == 1
    assert outlast("drains", "").code == 1
    answer = outlast("drains", "ab")
    assert answer.code == 2
    assert "abc" in answer.err
    assert outlast("drains", "abc").code == 0


def test_the_state_of_a_drain_that_has_no_report(outlast):
    enlisted(outlast)
    outlast.commit(Drain("w1", "SIGTERM"))
    assert " draining " in outlast("drains").out
    assert " draining " in outlast("workers").out
    outlast.commit(Leave("w1"))
    assert " no report " in outlast("drains").out


def test_a_drain_that_was_cut_short_says_what_was_left(outlast):
    enlisted(outlast)
    outlast.submitted("r1")
    ((row,),) = outlast.commit(Claim("w1", "t1", queues=("default",), limit=1))
    outlast.commit(Drain("w1", "SIGTERM", keep=(row.fence,)))
    with closing(sqlite3.connect(outlast.db)) as db, db:
        db.execute("UPDATE workers SET lease_until = 0, lease = 0")
    outlast.commit(Sweep())
    assert " cut short " in outlast("drains").out
    shown = outlast("drains", "w1").out
    assert "worker w1  cut short" in shown
    assert "run r1" in shown
    (one,) = outlast("drains", "--json").json["drains"]
    assert (one["cut_short"], [left["id"] for left in one["left"]]) == (True, ["r1"])
    answer = outlast("drain", "--wait", "--worker", "w1")
    assert answer.code == 0
    assert "was gone before it could report" in answer.err


def test_recoveries_are_counted(outlast):
    enlisted(outlast, "w1")
    outlast.submitted("r1")
    (claimed,) = outlast.commit(Claim("w1", "t1", queues=("default",), limit=1))
    (row,) = claimed
    outlast.commit(Drain("w1", "SIGTERM", keep=(row.fence,)))
    outlast.commit(Release(row.pk, row.fence, "drain: SIGTERM", interrupted=True))
    outlast.commit(Report("w1", json.dumps({"seconds": 1.0, "released": 1})), Leave("w1"))
    enlisted(outlast, "w2")
    outlast.commit(Claim("w2", "t2", queues=("default",), limit=1))
    (one,) = outlast("drains", "--json").json["drains"]
    assert one["recoveries"]["count"] == 1
    assert "recovered     1, after p50" in outlast("drains", "w1").out


def test_names_from_a_store_have_no_power_over_the_terminal(outlast):
    report = {
        "left": [{"what": HOSTILE, "id": HOSTILE, "step": HOSTILE, "why": HOSTILE}], "not_checkpointed": [HOSTILE],
        "blocked": [HOSTILE], "cleanup": [{"name": HOSTILE, "seconds": 1, "error": HOSTILE}], "layers": {HOSTILE: 1.0},
        "units": {HOSTILE: 1},
    }  # fmt: skip
    enlisted(outlast, HOSTILE, host=HOSTILE)
    outlast.commit(Drain(HOSTILE, HOSTILE), Report(HOSTILE, json.dumps(report)))
    for words in (["drains"], ["drains", HOSTILE], ["drain"], ["drain", "--worker", HOSTILE], ["workers"]):
        answer = outlast(*words)
        assert not FORBIDDEN & set(answer.out + answer.err), words
    assert outlast("drains", "--json").json["drains"][0]["reason"] == HOSTILE


@pytest.mark.parametrize("text", ["not json", "[]", '"x"', '{"left": 3}', '{"cleanup": [1]}', "[" * 5000])
def test_a_report_that_cannot_be_read_is_shown_as_far_as_it_is_known(outlast, text):
    enlisted(outlast)
    outlast.commit(Drain("w1", "SIGTERM"), Report("w1", text))
    answer = outlast("drains", "w1")
    assert answer.code == 0
    assert "SIGTERM" in answer.out
    assert "cannot be read by this version" in answer.out
    assert "w1" in outlast("drains").out


def test_a_report_of_a_newer_version_is_shown_as_far_as_it_is_known(outlast):
    enlisted(outlast)
    outlast.commit(Drain("w1", "SIGTERM"), Report("w1", '{"left": [{"id": "r1", "new": 1}], "newer": 2}'))
    answer = outlast("drains", "w1")
    assert (answer.code, "r1" in answer.out) == (0, True)


def test_drains_can_be_watched(outlast, monkeypatch):
    def sleep(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("outlast.cli.watch.time.sleep", sleep)
    drained(outlast)
    answer = outlast("drains", "--watch", "--json")
    assert answer.code == 130
    assert json.loads(answer.out)["drains"][0]["worker"] == "w1"


# -- with a real worker

PROGRAM = """
import asyncio
from pathlib import Path

from outlast import Outlast, step, workflow


@step
async def slow() -> str:
    Path("begun").touch()
    await asyncio.sleep(0.7)
    return "slow"


@workflow
async def job() -> str:
    return await slow() + await slow()
"""

CONSUMER = """
import asyncio
from contextlib import asynccontextmanager

from outlast import Outlast


async def handle(item): ...


@asynccontextmanager
async def lifespan(app):
    task = asyncio.create_task(app.queue("mail").consume(handle))
    yield
    task.cancel()


app = Outlast(lifespan=lifespan)
"""


def started(folder, *words):
    child = subprocess.Popen(
        [sys.executable, "-m", "outlast", "worker", *words], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    assert '"working"' in child.stderr.readline()
    return child


def ended(child):
    try:
        _, err = child.communicate(timeout=60)
    finally:
        child.kill()
    assert "Traceback" not in err
    return child.returncode


def test_a_worker_that_is_asked_lets_its_step_end_gives_its_run_back_and_exits_with_0(outlast):
    (outlast.folder / "jobs.py").write_text(PROGRAM)
    child = started(outlast.folder, "jobs.py")
    outlast("submit", "jobs.py:job", "--id", "j1")
    until = time.monotonic() + 30
    while not (outlast.folder / "begun").exists() and time.monotonic() < until:
        time.sleep(0.02)
    answer = outlast("drain", "--wait", "--why", "a deploy")
    assert (answer.code, answer.err.endswith(": 1 released.\n")) == (0, True), answer.err
    assert ended(child) == 0
    assert outlast("workers", "--json").json["workers"] == []
    row = outlast.row("j1")
    assert (row.status, row.interruptions, row.deaths) == ("queued", 1, 0)
    assert outlast("drains", "--json").json["drains"][0]["reason"] == "a deploy"


def test_a_worker_that_only_consumes_hears_of_it_too(outlast):
    (outlast.folder / "mail.py").write_text(CONSUMER)
    child = started(outlast.folder, "mail.py")
    answer = outlast("drain", "--wait")
    assert answer.code == 0, answer.err
    assert ended(child) == 0


def test_a_signal_and_a_request_are_one_drain(outlast):
    (outlast.folder / "jobs.py").write_text(PROGRAM)
    child = started(outlast.folder, "jobs.py")
    outlast("submit", "jobs.py:job", "--id", "j1")
    until = time.monotonic() + 30
    while not (outlast.folder / "begun").exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert outlast("drain").code == 0
    child.send_signal(signal.SIGTERM)
    assert outlast("drain", "--wait", "--timeout", "30").code in (0, 1)  # 1: it had left already
    assert ended(child) == 0
    assert len(outlast("drains", "--json").json["drains"]) == 1


def test_asking_needs_neither_rich_nor_the_http_server(outlast):
    enlisted(outlast)
    code = (
        "import sys\nfrom outlast.cli import main\n"
        "try: main(['drain'])\nexcept SystemExit: print([m for m in ('rich', 'starlette', 'uvicorn') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=outlast.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_a_request_of_nobody_is_refused(outlast):
    """What `drain` relies on: a worker that left between the look and the request was not asked."""
    outlast.submitted("r1")
    (refused,) = outlast.commit(AskDrain("nobody", "why"))
    assert refused is not None
