"""Checks of this machine and its store, with made facts: each fires, and does not."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from outlast.settings import Settings
from outlast.settings.load import load
from outlast.shutdown.report import DrainReport
from outlast.store.fleet import Stall
from outlast.store.rows import QueueRow, WorkerRow
from outlast.tools.doctor import fleet, grace, local_checks, processes, servers
from outlast.tools.doctor.facts import Facts, InStore
from outlast.tools.doctor.finding import Level
from outlast.tools.doctor.host import Mount, Process
from outlast.tools.doctor.store_folder import Folder

NOW = 1_000_000.0
QUEUE = QueueRow("default", 3, 1, 0, 0, 0, NOW - 5, 0, 0, None, None)
WORKER = WorkerRow(
    "w1", "host", 7, 0.0, NOW + 30, 0, 30.0, NOW, '["default"]', '["f"]', 20, None, 0
)
FOLDER = Folder(
    Path("/data/x.db"),
    exists=True,
    writable=True,
    free=50 * 10**9,
    size=100 * 10**9,
    mount=Mount("/data", "ext4", "/dev/sda"),
)
STORE = InStore(NOW, (QUEUE,), {}, (WORKER,), durations={("f", "quick"): [1.0] * 5})
POSTGRES = {
    "server_version": "16.1", "fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "100",
    "transaction_read_only": "off", "used": 10, "replica": False, "pooler": False, "skew": 0.01, "trip": 0.001,
}  # fmt: skip
REDIS = {"dangers": [], "version": "7.0", "appendfsync": "always", "skew": 0.0, "trip": 0.0}


def own(**changes) -> Process:
    return Process(50, 1, "outlast", ("outlast", "worker"), False, True)._replace(**changes)


def parent(pid: int, name: str, above: int = 0) -> Process:
    return Process(pid, above, name, (name,), False, False)


def script(name: str) -> Process:
    return Process(9, 1, name, (name, "-c", "outlast worker x.py"), False, False)


def facts(**changes) -> Facts:
    settings = changes.pop("settings", {})
    whole = Facts(load({"store": "sqlite:////data/x.db", **settings}, {}), "sqlite", FOLDER, STORE)
    return replace(whole, **changes)


def levels(found) -> list[str]:
    return [one.level.value for one in found if one.level is not Level.OK]


def drained(**changes) -> DrainReport:
    return DrainReport("w0", began=datetime.fromtimestamp(NOW - 60, UTC), seconds=3.0, **changes)


STALL = Stall("w1", "fetch", 3, 12.0, NOW - 60, "flows.py:12")
CASES = [
    (fleet.workers, {}, {"store": replace(STORE, stalls=(STALL,))}, "warning", "`fetch` blocked the event loop of a worker for 12.0 s, 60 s ago, at flows.py:12"),
    (grace.steps, {}, {"store": replace(STORE, durations={("f", "slow"): [100.0] * 5})}, "warning", "never finish within the 24.7 s"),
    (grace.steps, {}, {"store": replace(STORE, durations={("f", "slow"): [100.0] * 4})}, "note", "no step has 5 recorded durations yet"),
    (grace.steps, {"store": replace(STORE, durations={("f", "quick"): [1.0] * 5, ("f", "slow"): [100.0] * 4})}, {"store": replace(STORE, durations={("f", "slow"): [1.0, 1.0, 100.0, 100.0, 100.0]})}, "note", "usually"),
    (grace.lease, {}, {"settings": {"stall_max": 40.0}}, "warning", "stall_max=40"),
    (grace.lease, {}, {"settings": {"lease": 4.0, "stall_max": 2.0}}, "warning", "lease=4 s"),
    (grace.lease, {}, {"settings": {"poll": 20.0}}, "warning", "poll=20"),
    (grace.lease, {}, {"store": replace(STORE, workers=(WORKER, WORKER._replace(id="w2", lease=60.0)))}, "warning", "30 s, 60 s"),
    (processes.signals, {"processes": {"w1": (own(), parent(1, "tini"))}}, {"processes": {"w1": (own(parent=1), parent(1, "sh"))}}, "error", "PID 1 is a shell"),
    (processes.signals, {"processes": {"w1": (own(pid=1, parent=0),)}}, {"processes": {"w1": (own(ignores_term=True),)}}, "error", "trap '' TERM"),
    (processes.signals, {"processes": {"w1": (own(), script("bash"), parent(1, "systemd"))}}, {"processes": {"w1": (own(), script("bash"), parent(1, "tini"))}}, "warning", "between PID 1"),
    (processes.signals, {"processes": {"w1": (own(), script("sh"), parent(8, "node", 1), parent(1, "tini"))}}, {"processes": {"w1": (own(), script("sh"), script("bash"), parent(1, "tini"))}}, "warning", "between PID 1"),
    (processes.signals, {"processes": {"w1": (own(), Process(9, 1, "bash", ("bash", "-l"), False, False), parent(1, "myapp"))}}, {"processes": {"w1": (own(), script("sh"), parent(1, "myapp"))}}, "warning", "between PID 1"),
    (processes.signals, {"processes": {"w1": (own(), parent(9, "bash", 1), parent(1, "myapp"))}}, {"processes": {"w1": (own(), script("sh"), parent(1, "myapp"))}}, "warning", "between PID 1"),
    (processes.signals, {"processes": {"w1": (own(), parent(1, "tini"))}}, {"processes": {"w1": (own(catches_term=False),)}}, "warning", "no handler"),
    (processes.signals, {"processes": {"w1": (own(),)}}, {"processes": {"w1": (own(),)}, "settings": {"signals": 0}}, "warning", "signals=0"),
    (processes.signals, {"processes": {"w1": (own(),)}}, {"has_proc": False}, "note", "no /proc"),
    (processes.signals, {"processes": {"w1": (own(),)}}, {}, "note", "no worker of this host"),
    (local_checks.filesystem, {}, {"folder": replace(FOLDER, writable=False)}, "error", "cannot write"),
    (local_checks.filesystem, {}, {"folder": replace(FOLDER, mount=Mount("/data", "nfs4", "srv:/x"))}, "error", "nfs4"),
    (local_checks.filesystem, {}, {"folder": replace(FOLDER, mount=Mount("/data", "fuse.sshfs", "x"))}, "error", "fuse.sshfs"),
    (local_checks.filesystem, {}, {"folder": replace(FOLDER, mount=Mount("/data", "9p", "x"))}, "error", "9p"),
    (local_checks.filesystem, {"folder": replace(FOLDER, mount=Mount("/data", "fuseblk", "x"))}, {"folder": replace(FOLDER, mount=Mount("/data", "vboxsf", "x"))}, "error", "vboxsf"),
    (local_checks.filesystem, {}, {"folder": replace(FOLDER, mount=Mount("/", "fuse.fuse-overlayfs", "x"))}, "warning", "lost with the container"),
    (local_checks.filesystem, {}, {"folder": replace(FOLDER, mount=Mount("/", "overlay", "overlay"))}, "warning", "lost with the container"),
    (local_checks.filesystem, {}, {"folder": replace(FOLDER, mount=None)}, "note", "unknown"),
    (local_checks.filesystem, {}, {"folder": replace(FOLDER, free=50_000_000)}, "error", "50 MB"),
    (local_checks.filesystem, {"folder": replace(FOLDER, free=900_000_000, size=10**9)}, {"folder": replace(FOLDER, free=900_000_000)}, "warning", "900 MB"),
    (local_checks.http, {"settings": {"http": "127.0.0.1:8080"}}, {"settings": {"http": "0.0.0.0:8080"}}, "warning", "no secret"),
    (local_checks.http, {"settings": {"http": ":8080"}}, {"settings": {"http": "127.evil.example:8080"}}, "warning", "no secret"),
    (local_checks.http, {"settings": {"http": "0.0.0.0:8080", "http_secret": "s" * 16}}, {}, "note", "no HTTP server"),
    (local_checks.http, {"settings": {"http": "127.0.0.1:8080", "http_secret": "s"}}, {"settings": {"http": "0.0.0.0:8080", "http_secret": "s" * 15}}, "warning", "guesses"),
    (servers.postgres, {"scheme": "postgresql", "server": POSTGRES}, {"scheme": "postgresql", "server": {**POSTGRES, "fsync": "off"}}, "error", "fsync is off"),
    (servers.postgres, {}, {"scheme": "postgresql", "server": {**POSTGRES, "synchronous_commit": "off"}}, "warning", "synchronous_commit"),
    (servers.postgres, {}, {"scheme": "postgresql", "server": {**POSTGRES, "replica": True}}, "error", "accepts no writes"),
    (servers.postgres, {}, {"scheme": "postgresql", "server": {**POSTGRES, "pooler": True}}, "note", "transaction pooler"),
    (servers.postgres, {}, {"scheme": "postgresql", "server": {**POSTGRES, "used": 90}}, "warning", "90 of 100"),
    (servers.postgres, {}, {"scheme": "postgresql", "server": {**POSTGRES, "skew": -3.0}}, "warning", "3.0 s ahead of"),
    (servers.redis, {"scheme": "redis", "server": REDIS}, {"scheme": "redis", "server": {**REDIS, "dangers": ["appendonly is off: lost."]}}, "error", "appendonly"),
    (servers.redis, {}, {"scheme": "redis", "server": {**REDIS, "dangers": ["the server does not tell whether appendonly is on."]}}, "note", "does not tell"),
    (servers.redis, {}, {"scheme": "redis", "server": {**REDIS, "appendfsync": "everysec"}}, "note", "everysec"),
    (servers.redis, {}, {"scheme": "redis", "server": {**REDIS, "appendfsync": None}}, "note", "does not report appendfsync"),
    (servers.redis, {}, {"scheme": "redis", "server_error": "it may not."}, "note", "it may not"),
    (servers.postgres, {}, {"scheme": "postgresql", "server_error": "it may not."}, "note", "it may not"),
    (servers.postgres, {}, {"scheme": "postgresql", "server": {**POSTGRES, "full_page_writes": "off"}}, "error", "full_page_writes"),
    (servers.postgres, {}, {"scheme": "postgresql", "server": {**POSTGRES, "transaction_read_only": "on"}}, "error", "accepts no writes"),
    (servers.redis, {}, {"scheme": "redis", "server": {**REDIS, "skew": 5.0}}, "warning", "5.0 s behind"),
    (fleet.runs, {}, {"store": replace(STORE, queues=(QUEUE._replace(parked=2, stuck=2),))}, "error", "2 runs cannot be compensated"),
    (fleet.runs, {}, {"store": replace(STORE, queues=(QUEUE._replace(parked=3, stuck=0),))}, "warning", "3 runs wait for a person"),
    (fleet.runs, {}, {"store": replace(STORE, queues=(QUEUE._replace(dead=4),))}, "warning", "4 dead letters"),
    (fleet.runs, {}, {"store": replace(STORE, unknown={"default": ("old_flow",)})}, "warning", "workflows that no live worker knows: old_flow"),
    (fleet.runs, {}, {"store": replace(STORE, unknown={"default": ("f",)}, unclaimed=frozenset({"default"}))}, "warning", "runs of f are ready, and no live worker claims from this queue"),
    (fleet.runs, {}, {"store": replace(STORE, queues=(QUEUE._replace(paused=True),))}, "note", "the queue is paused, and 3 runs wait in it"),
    (fleet.runs, {"store": replace(STORE, queues=(QUEUE._replace(returned=5, returned_since=NOW - 10),))}, {"store": replace(STORE, queues=(QUEUE._replace(returned=5, returned_since=NOW - 100),))}, "warning", "the longest for 100 s"),
    (fleet.store, {}, {"store": None, "store_error": "there is none yet."}, "note", "there is none yet"),
    (fleet.store, {}, {"store": None, "store_error": "it is away.", "store_fails": True}, "error", "it is away"),
    (fleet.workers, {}, {"store": replace(STORE, dead=frozenset({"w1"}))}, "warning", "w1"),
    (fleet.workers, {}, {"store": replace(STORE, workers=())}, "warning", "no worker claims"),
    (fleet.workers, {"store": replace(STORE, queues=(QUEUE._replace(oldest=None, delayed=3),), workers=())}, {"store": replace(STORE, workers=(WORKER._replace(draining=1),), dead=frozenset({"w1"}))}, "warning", "no worker claims"),
    (fleet.workers, {"store": replace(STORE, workers=(WORKER._replace(concurrency=0, held=1),))}, {"store": replace(STORE, workers=(WORKER._replace(concurrency=0),))}, "note", "Consumers of items are not"),
    (fleet.drains, {"store": replace(STORE, drains=(drained(),))}, {"store": replace(STORE, drains=(drained(cut_short=True),))}, "error", "1 of the last 1"),
    (fleet.drains, {}, {"store": replace(STORE, drains=(drained(not_checkpointed=["crunch"]),))}, "warning", "crunch"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "fine", "wrong", "level", "says"), CASES)
def test_each_check_reports_its_fault_and_nothing_else(check, fine, wrong, level, says):
    assert levels(check(facts(**fine))) == [], "nothing is wrong here"
    found = [one for one in check(facts(**wrong)) if one.level.value == level]
    assert len(found) >= 1
    assert any(says in one.what for one in found), found
    assert all(one.fix for one in found if one.level in (Level.WARNING, Level.ERROR))


@pytest.mark.parametrize(
    ("check", "given", "says"),
    [
        (fleet.runs, {"store": replace(STORE, queues=(QUEUE._replace(parked=1, stuck=1),))}, "1 run cannot be compensated: its effects are still in place."),
        (fleet.runs, {"store": replace(STORE, queues=(QUEUE._replace(parked=1),))}, "1 run waits for a person."),
        (fleet.runs, {"store": replace(STORE, queues=(QUEUE._replace(dead=1),))}, "1 dead letter."),
        (fleet.runs, {"store": replace(STORE, queues=(QUEUE._replace(returned=1, returned_since=NOW - 100),))}, "1 interrupted run waits, the longest for 100 s."),
        (fleet.runs, {"store": replace(STORE, queues=(QUEUE._replace(queued=1, concurrency_max=0),))}, "the queue is paused, and 1 run waits in it."),
        (fleet.workers, {"store": replace(STORE, dead=frozenset({"w1"}))}, "1 worker seems dead, and what it held has not been taken over yet: w1."),
        (fleet.drains, {"store": replace(STORE, drains=(drained(),))}, "1 drain in the last week, none cut short."),
        (grace.steps, {"store": replace(STORE, durations={("f", "quick"): [1.0] * 5})}, "1 step with recorded durations finishes within the 24.7 s that a drain allows."),
    ],
)  # fmt: skip
def test_one_is_counted_as_people_do(check, given, says):
    assert says in [one.what for one in check(facts(**given))]


@pytest.mark.parametrize(
    ("lease", "says"), [(2.0, "1.3"), (30.0, "20"), (1000.0, "667"), (0.5, "0.33")]
)
def test_suggested_value_is_rounded(lease, says):
    found = next(iter(grace.leases(Settings(lease=lease, stall_max=lease, heartbeat=lease / 10))))
    assert found.fix == f"Set stall_max to {says} or less."


def test_without_a_manifest_the_surroundings_are_not_known(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (found,) = grace.grace(facts())
    assert (found.level, "32 s" in found.fix) == (Level.NOTE, True)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    (found,) = grace.grace(facts())
    assert "terminationGracePeriodSeconds" in found.what


def test_old_drain_is_not_reported():
    old = DrainReport("w0", began=datetime.fromtimestamp(NOW - 30 * 86_400, UTC), cut_short=True)
    assert levels(fleet.drains(facts(store=replace(STORE, drains=(old,))))) == []


def test_workers_that_sigterm_reaches_are_one_finding():
    chain = (own(), parent(1, "tini"))
    fine = {f"w{number}": chain for number in range(7)}
    (found,) = processes.signals(facts(processes=fine))
    assert found.what == "SIGTERM reaches 7 workers and begins a drain."
    assert found.where == "workers w0, w1, w2, w3, w4 and 2 more"
    mixed = {**fine, "w9": (own(ignores_term=True),)}
    assert [one.level.value for one in processes.signals(facts(processes=mixed))] == ["error", "ok"]


def test_advice_about_a_blocking_step_says_how_to_call_it():
    (found,) = fleet.workers(facts(store=replace(STORE, stalls=(STALL,))))
    assert "call it with `await NAME.aio(...)`" in found.fix


def test_damaged_run_leaves_the_other_findings():
    store = replace(STORE, crashing=None, queues=(QUEUE._replace(dead=1),))
    found = list(fleet.runs(facts(store=store)))
    assert levels(found) == ["warning", "note"]
    assert "an active run is damaged" in found[1].what
