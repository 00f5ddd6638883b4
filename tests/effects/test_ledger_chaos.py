"""Effects happen once and are undone once while workers and the ledger are killed at random.

OUTLAST_TEST_KILLS=200 is the full form. `pytest -s` prints the figures. OUTLAST_TEST_KILL_SEED repeats the choices.
"""

import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ledger_tools import HERE, Ledger, until

from support.seeds import seeded_random

sys.path.insert(0, str(HERE.parent / "shutdown"))

import ledger_flows as flows
from fleet_tools import assert_nothing_was_recorded_under_a_stale_fence
from kubelet import Node, Pod

from support.snapshots import Snapshot
from support.waiting import WAIT_SECONDS, wait_for_state

LONG = "OUTLAST_TEST_KILLS" in os.environ
KILLS = int(os.environ.get("OUTLAST_TEST_KILLS", "3")) * 3 // 2
WORKERS = 3 if LONG else 2
UNDER_WAY = 12 if LONG else 5
"""Runs that are kept under way. There are five workflows."""
PAUSE_SECONDS = 1.0 if LONG else 0.5
"""How long it takes at most until something happens again."""
LEASES_STOPPED = 3.5 if LONG else 1.5
"""How many leases a worker is stopped for at most."""
LEASE = 2.0
GRACE = 4.0
SETTINGS: dict[str, Any] = {
    "lease": LEASE, "heartbeat": 0.1, "grace": GRACE, "effect_margin": 1.0, "verify_attempts": 50, "max_attempts": 1000,
    "interruptions_max": 10_000, "death_backoff": 0.05, "death_backoff_max": 0.5, "suspect_patience": 0.2, "linger": 0.3,
}  # fmt: skip
ENDS = {"done", "failed", "cancelled"}


class Chaos:
    """Workers on a store, the ledger, and what befalls them."""

    def __init__(self, node: Node, ledger: Ledger, rng: random.Random) -> None:
        self.node, self.ledger, self.rng = node, ledger, rng
        self.files = node.folder / "files"
        self.files.mkdir()
        self.pods: list[Pod] = []
        self.stopped: list[tuple[float, Pod]] = []
        """Who is to go on, and when."""
        self.leaving: list[tuple[float, Pod]] = []
        """Who was told to end, and when it is killed."""
        self.submitted = 0
        self.to_cancel: set[str] = set()
        self.befell: Counter[str] = Counter()

    # -- processes

    def start(self) -> None:
        command = [
            sys.executable,
            "-W",
            "error",
            "-m",
            "outlast",
            "worker",
            str(HERE / "programs_ledger" / "ledger_flows.py"),
        ]
        settings = {f"OUTLAST_{name.upper()}": str(value) for name, value in SETTINGS.items()}
        outside = {"LEDGER_URL": self.ledger.url, "LEDGER_FILES": str(self.files)}
        pod = Pod(
            self.node.folder,
            [*command, "--store", self.node.address, "--concurrency", "10"],
            env={**settings, **outside},
        )
        self.pods.append(pod)
        self.node.pods.append(pod)

    def befall(self) -> None:
        """Something happens to a worker, or to the ledger."""
        what = self.rng.choices(
            ["kill", "stop", "stop long", "stop, kill", "term", "ledger"], [8, 3, 4, 1, 4, 1]
        )[0]
        self.befell[what] += 1
        if what == "ledger":
            self.ledger.kill()
            time.sleep(self.rng.uniform(0, 0.3))
            self.ledger.start()
            return
        pod = self.pods.pop(self.rng.randrange(len(self.pods)))
        now = time.monotonic()
        if what == "kill":
            pod.send_signal(signal.SIGKILL)
        elif what == "term":
            pod.send_signal(signal.SIGTERM)
            self.leaving.append((now + GRACE + 2.0, pod))
        elif what == "stop, kill":
            self.stop(pod)
            self.leaving.append((now + self.rng.uniform(0, 2 * LEASE), pod))
        else:
            self.stop(pod)
            seconds = (
                self.rng.uniform(0.05, 0.5 * LEASE)
                if what == "stop"
                else self.rng.uniform(1.2, LEASES_STOPPED) * LEASE
            )
            self.stopped.append((now + seconds, pod))
        if what != "stop":
            self.start()

    def stop(self, pod: Pod) -> None:
        """Send SIGSTOP at any moment but in a commit: a stopped process that holds SQLite's lock blocks all others."""
        while not pod.has_ended:
            pod.send_signal(signal.SIGSTOP)
            until(
                lambda: pod.has_ended or " (stopped)" in Path(f"/proc/{pod.pid}/status").read_text()
            )
            if not self._keeps_everybody_out():
                return
            pod.send_signal(signal.SIGCONT)
            time.sleep(self.rng.uniform(0.01, 0.05))

    def _keeps_everybody_out(self) -> bool:
        if not self.node.address.startswith("sqlite:"):
            return False  # a commit is one call: a stopped process holds no lock of a server
        file = self.node.address.removeprefix("sqlite:///")
        with closing(sqlite3.connect(file, isolation_level=None, timeout=0.3)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
                other.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return True
        return False

    def go_on(self) -> None:
        """Who was stopped goes on when it is time, who was told to end is killed."""
        now = time.monotonic()
        for due, pod in [one for one in self.stopped if one[0] <= now]:
            self.stopped.remove((due, pod))
            pod.send_signal(signal.SIGCONT)
            self.pods.append(pod)
        for due, pod in [one for one in self.leaving if one[0] <= now or one[1].has_ended]:
            self.leaving.remove((due, pod))
            pod.kill()
        while len(self.pods) > WORKERS + 1:  # they have gone on while others had taken their place
            pod = self.pods.pop(0)
            pod.send_signal(signal.SIGTERM)
            self.leaving.append((now + GRACE + 2.0, pod))
        for pod in [pod for pod in self.pods if pod.has_ended]:
            raise AssertionError(f"a worker ended by itself: {pod.errors[-3000:]}")

    # -- runs

    def submit(self, count: int) -> None:
        calls = {}
        for _ in range(count):
            name = list(flows.FLOWS)[self.submitted % len(flows.FLOWS)]
            calls[f"{name}-{self.submitted}"] = flows.FLOWS[name](self.submitted)
            if name == "endless":
                self.to_cancel.add(f"{name}-{self.submitted}")
            self.submitted += 1
        self.node.submit(calls)

    def cancel(self, ids: list[str]) -> None:
        async def cancel(app: Any) -> None:
            for id in ids:
                await app.cancel(id, "enough")

        if ids:
            self.node.do(cancel)
            self.to_cancel -= set(ids)

    def feed(self) -> None:
        """Keep this many in flight, and cancel some of those that would never end."""
        over = sum(count for status, count in self.node.statuses().items() if status in ENDS)
        # children are not counted: there may be some more than that
        missing = UNDER_WAY - (self.submitted - over)
        if missing > UNDER_WAY // 4:
            self.submit(missing)
        ready = sorted(self.to_cancel)
        self.cancel([id for id in ready if self.rng.random() < 0.3])

    def until_all_ended(self) -> None:
        """Wait for as long as runs change their status."""

        def go_on() -> Counter[str]:
            self.go_on()
            statuses = self.node.statuses()
            assert not statuses["parked"] + statuses["dead"], f"{statuses}: {self.tell()}"
            return statuses

        wait_for_state(go_on, lambda statuses: set(statuses) <= ENDS, self.tell, pause=0.1)

    def tell(self) -> str:
        rows = self.node.ask(
            "SELECT id, status, worker, deaths, interruptions, ready, due, reason FROM runs WHERE status NOT IN ('done', 'failed', 'cancelled')"
        )
        errors = [f"--- {pod.pid}\n{pod.errors[-1500:]}" for pod in self.pods[-3:]]
        return "\n".join([*map(str, rows[:20]), *errors])


@pytest.mark.timeout(4 * WAIT_SECONDS + KILLS * 6)
def test_effects_happen_and_are_undone_once_despite_killed_workers(place, tmp_path):
    rng, began = seeded_random("ledger chaos"), time.monotonic()
    with Ledger(tmp_path) as ledger, Node(tmp_path, place) as node:
        chaos = Chaos(node, ledger, rng)
        chaos.submit(UNDER_WAY)
        for _ in range(WORKERS):
            chaos.start()
        for pod in list(chaos.pods):
            pod.up()
        for _ in range(KILLS):
            pause = time.monotonic() + rng.uniform(0.05, PAUSE_SECONDS)
            while time.monotonic() < pause:
                chaos.go_on()
                time.sleep(0.02)
            if len(chaos.pods) > 1:
                chaos.befall()
            chaos.feed()
        chaos.cancel(sorted(chaos.to_cancel))
        chaos.until_all_ended()
        assert_all_is_as_it_should_be(node.image(), ledger, chaos.files)
        lines = Counter(line["what"] for line in ledger.log())
        deaths = sum(
            len([e for e in journal if e["kind"] == "death"])
            for journal in node.image().journals.values()
        )
        print(
            f"{sum(chaos.befell.values())} faults {dict(chaos.befell)} in {time.monotonic() - began:.0f} s; {chaos.submitted} runs, {deaths} deaths; "
            f"ledger: {dict(lines)}"
        )


# -- what must be so


def assert_all_is_as_it_should_be(image: Snapshot, ledger: Ledger, files: Path) -> None:
    acts, undone = ledger.acts(), ledger.undone()
    assert {key: lines for key, lines in acts.items() if len(lines) > 1} == {}, (
        "an effect happened twice"
    )
    assert {key: lines for key, lines in undone.items() if len(lines) > 1} == {}, (
        "an effect was undone twice"
    )
    ledger.assert_nothing_was_done_under_a_stale_fence()
    assert_nothing_was_recorded_under_a_stale_fence(image)
    of_run: dict[str, dict[str, str]] = defaultdict(dict)
    for key, (line,) in acts.items():
        root = root_of(image, line["run"])
        assert line["body"]["what"] not in of_run[root], f"{root} did {line} twice, under two keys"
        of_run[root][line["body"]["what"]] = key
    for id, row in image.runs.items():
        assert_the_journal_says_what_the_ledger_says(id, image.journals.get(id, []), acts, undone)
        if row["parent"] is None:
            name, _, number = id.rpartition("-")
            assert row["status"] == flows.STATUS[name], (
                f"{id} is {row['status']}: {row['reason']} {row['error']}"
            )
            assert_undone_as_it_should_be(id, name, of_run[id], set(undone))
            text = "".join(f"order {number}\n" for _ in range(100)) if name == "order" else None
            path = files / id
            assert (path.read_text() if path.exists() else None) == text, f"the file of {id}"


def assert_undone_as_it_should_be(
    id: str, name: str, did: dict[str, str], undone: set[str]
) -> None:
    if name in flows.EXPECTED:
        assert set(did) == flows.EXPECTED[name], f"{id} did {sorted(did)}"
    for what, key in did.items():
        to_undo = flows.STATUS[name] != "done" or what.endswith("-rolled")
        assert (key in undone) is to_undo, (
            f"{what} of {id} ({key}) was {'not ' if to_undo else ''}undone"
        )
    if name == "failing":
        assert id in undone, f"what {id} had registered was not called"


def assert_the_journal_says_what_the_ledger_says(
    id: str, journal: list[dict[str, Any]], acts: dict[str, Any], undone: dict[str, Any]
) -> None:
    """Every effect that the run says happened is in the ledger, and none that it says did not."""
    keys = {
        entry["key"]: json.loads(entry["value"]) for entry in journal if entry["kind"] == "intent"
    }
    ends = {
        entry["key"]: entry for entry in journal if entry["kind"] == "step" and entry["key"] in keys
    }
    assert set(keys) == set(ends), f"{id} has ended with open intents"
    by_undo = {line["key"] for lines in undone.values() for line in lines}
    for place, said in keys.items():
        if said["effect"] in ("note", "undo note"):
            continue
        there = said["key"] in acts or said["key"] in by_undo
        happened = ends[place]["value"] is not None
        assert happened is there, (
            f"{place} of {id}: its run says {happened}, the ledger says {there}"
        )


def root_of(image: Snapshot, id: str) -> str:
    pks = {row["pk"]: id for id, row in image.runs.items()}
    while (parent := image.runs[id]["parent"]) is not None:
        id = pks.get(parent, parent)
    return id
