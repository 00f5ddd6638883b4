"""The fleet signals what it started, all of it, and nothing else; and its log is read as the workers write it."""

import os
import re
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console, Group

from outlast.testing.servers import redis_server
from outlast.tools.chaos.claims import Claims
from outlast.tools.chaos.experiment_checks import check_experiment
from outlast.tools.chaos.faults import FaultInjector
from outlast.tools.chaos.findings import ASKS
from outlast.tools.chaos.fleet import Fleet, NotOurs, start_time
from outlast.tools.chaos.load_generator import Seen
from outlast.tools.chaos.options import Options
from outlast.tools.chaos.plan import Fault
from outlast.tools.chaos.recovery_times import ExecutionEnd
from outlast.tools.chaos.verdict import Check, Verdict
from outlast.tools.chaos.view import Lines, Screen
from support.processes import clean_environment, is_running
from support.waiting import wait_until

SCRIPT = """
import signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print('{"event": "working"}', child.pid, flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
time.sleep(600)
"""


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """Two programs that are no workers, but behave."""
    real = subprocess.Popen

    def popen(words, **options):
        ours = "outlast.tools.chaos.worker_main" in words
        return real([sys.executable, "-c", SCRIPT] if ours else words, **options)

    monkeypatch.setattr("outlast.tools.chaos.fleet.subprocess.Popen", popen)
    fleet = Fleet(2, ["worker"], clean_environment(), tmp_path)
    fleet.start_all()
    wait_until(lambda: fleet.check() or len(fleet.there("alive")) == 2)
    yield fleet
    fleet.end_all()


def child_of(member) -> int:
    """Return the pid that the program prints once it has a child."""
    printed = wait_until(lambda: re.search(r"\} (\d+)\n", member.log.read_text()))
    return int(printed[1])


def test_killed_worker_and_its_children_are_gone_and_replaced(fleet):
    member = fleet.there()[0]
    child = child_of(member)
    fleet.kill(member)
    wait_until(lambda: not is_running(member.pid) and not is_running(child))
    fleet.check()
    assert [one.lane for one in fleet.there()] == [0, 1] and len(fleet.members) == 3
    assert fleet.surprises == []


def test_children_of_an_ended_worker_are_ended(fleet):
    member = fleet.there()[0]
    child = child_of(member)
    fleet.followed = False
    fleet.term(member)
    wait_until(lambda: fleet.check() or member.gone)
    wait_until(lambda: not is_running(child))
    assert fleet.surprises == [] and member.process.returncode == 0


def test_worker_that_ends_by_itself_is_reported(fleet):
    member = fleet.there()[0]
    os.kill(member.pid, signal.SIGINT)
    wait_until(lambda: fleet.check() or member.gone)
    assert "ended by itself" in fleet.surprises[0]


def test_process_of_another_program_is_never_signalled(fleet):
    member = fleet.there()[0]
    right, member.started = member.started, member.started + 1
    with pytest.raises(NotOurs):
        fleet.kill(member)
    assert is_running(member.pid)
    member.started = right
    assert start_time(os.getpid()) == start_time(os.getpid()) != right
    assert start_time(2**22 + 1) is None


def test_stopped_worker_can_continue(fleet):
    member = fleet.there()[0]
    fleet.stop(member)
    wait_until(lambda: " T " in Path(f"/proc/{member.pid}/stat").read_text())
    assert [one.lane for one in fleet.there("alive")] == [1]
    fleet.go_on(member)
    wait_until(lambda: " T " not in Path(f"/proc/{member.pid}/stat").read_text())
    assert [span.state for span in fleet.spans if span.lane == 0][-1] == "stopped"


def test_stop_is_delayed_while_the_victim_holds_the_lock(fleet):
    locked = [True, True, False]
    faults = FaultInjector(fleet, 60.0, keeps_everybody_out=lambda: locked.pop(0))
    faults.inject(Fault(0.0, "stop", 0.0, 0.05, hard=False))
    wait_until(lambda: faults.go_on() or faults.quiet)
    assert locked == []
    states = [span.state for span in fleet.spans if span.lane == 0]
    assert states[-5:] == ["stopped", "alive", "stopped", "alive", "stopped"]
    assert len(fleet.there("alive")) == 2
    assert [kind for _, kind in fleet.there()[0].faults] == ["stop"], "it was one fault"


def test_delayed_stop_spares_a_worker_that_drains_meanwhile(fleet):
    """Stopped in its drain it would come too late by our own doing."""
    locked = [True, False]
    faults = FaultInjector(fleet, 60.0, keeps_everybody_out=lambda: locked.pop(0))
    first, second = fleet.there()
    faults.inject(Fault(0.0, "stop", 0.0, 0.05, hard=False))
    faults.go_on()
    assert first.state == "alive" and faults.injected == [], "it was put off"
    faults.inject(Fault(0.0, "term", 0.0, 0.0, hard=False))
    fleet.turn(first, "draining")
    faults.go_on()
    assert (first.state, first.faults) == ("draining", [])
    assert second.faults and faults.injected[0].lanes == (1,)
    fleet.turn(first, "alive")


def test_drain_by_the_experiment_itself_is_not_a_fault(fleet):
    faults = FaultInjector(fleet, 60.0)
    first, second = fleet.there()
    fleet.followed = False
    faults.drain(first)
    faults.inject(Fault(0.0, "term", 0.9, 0.0, hard=False))
    wait_until(lambda: faults.go_on() or fleet.check() or faults.quiet)
    assert [kind for _, kind in first.faults] == ["drain"] and [
        kind for _, kind in second.faults
    ] == ["term"]
    verdict = Verdict([Check(name, "") for name in ASKS], {})
    verdict["redone"].facts["bodies_begun_again"] = 3
    check_experiment(verdict, Options(seed=1), fleet, faults, load(acknowledged=["r"]))
    assert verdict["redone"].facts["per_fault"] == 3.0 and verdict["drains"].looked_at == 2
    assert not verdict.violated


def load(**facts):
    return SimpleNamespace(
        **{
            "acknowledged": [],
            "unsure": 0,
            "rate": SimpleNamespace(tried=3),
            "away": None,
            "cancellations": SimpleNamespace(wrong=[]),
            "decisions": None,
            **facts,
        }
    )


def test_experiment_without_work_or_faults_does_not_pass(fleet):
    faults = FaultInjector(fleet, 60.0)
    verdict = Verdict([Check(name, "") for name in ASKS], {})
    check_experiment(
        verdict, Options(seed=1), fleet, faults, load(unsure=3, away="the server cannot be reached")
    )
    assert verdict["ended"].evidence == [
        "of 3 submissions 3 were never acknowledged: the server cannot be reached"
    ]
    assert verdict["recovery"].evidence[0].startswith("none of ")
    verdict = Verdict([Check(name, "") for name in ASKS], {})
    check_experiment(
        verdict, Options(seed=1, per_minute=0.0), fleet, faults, load(acknowledged=["r"])
    )
    assert verdict.outcome == "ok", "no faults were asked for"


def test_rolling_restart_ends_one_worker_at_a_time(fleet):
    faults = FaultInjector(fleet, 60.0)
    faults.inject(Fault(0.0, "rolling", 0.0, 0.0, hard=False))

    def over() -> bool:
        faults.go_on()
        fleet.check()
        assert len(fleet.there("draining")) <= 1 <= len(fleet.there("alive"))
        return faults.quiet

    wait_until(over)
    assert len(fleet.members) == 4 and len(faults.drains) == 2 and fleet.surprises == []


def test_fault_without_a_victim_is_reported_as_missed(fleet, monkeypatch):
    monkeypatch.setattr("outlast.tools.chaos.faults.VICTIM_SECONDS", 0.05)
    fleet.followed = False
    for member in fleet.there():
        fleet.kill(member)
    faults = FaultInjector(fleet, 60.0)
    for kind in ("term", "server"):
        faults.inject(Fault(0.0, kind, 0.5, 0.0, hard=False))
    wait_until(lambda: faults.go_on() or faults.quiet)
    assert (
        sorted(fault.kind for fault in faults.missed) == ["server", "term"]
        and faults.injected == []
    )


class FakeLoad:
    seen, away, acknowledged = Seen(3, 2, 1), None, ["a"] * 6


def drawn(view: Screen, fleet: Fleet, faults: FaultInjector, columns: int) -> str:
    console = Console(width=columns, file=StringIO())
    console.print(Group(view._frame(fleet, FakeLoad, faults)))  # as it is drawn over itself
    return console.file.getvalue()


def test_narrow_screen_cuts_no_number(fleet):
    view = Screen()
    text = drawn(view, fleet, FaultInjector(fleet, 60.0), 60)
    view.close()
    assert "1 waiting, 0 parked, 0 dead; faults: none" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 60


def test_shown_clock_begins_with_the_storm(fleet, capsys):
    fleet.began = time.monotonic() - 40.0
    screen, lines = Screen(), Lines()
    assert "starting\n" in drawn(screen, fleet, FaultInjector(fleet, 60.0), 60).replace(" ", "")
    lines.show(fleet, FakeLoad, FaultInjector(fleet, 60.0))
    assert "40." not in capsys.readouterr().out
    screen.phase = "storm"
    assert "storm  40 s" in drawn(screen, fleet, FaultInjector(fleet, 60.0), 60)
    screen.close()


def test_screen_shows_workers_runs_and_faults(fleet):
    faults = FaultInjector(fleet, 60.0)
    faults.inject(Fault(0.0, "stop", 0.0, 60.0, hard=False))
    faults.go_on()
    view = Screen()
    view.show(fleet, FakeLoad, faults)
    text = drawn(view, fleet, faults, 100)
    view.close()
    for said in (
        "1 ‖ stopped",
        "2 ● alive",
        f"process {fleet.there()[1].pid}",
        "6 submitted, 3 queued",
        "SIGSTOP for 60.0 s",
    ):
        assert said in text, said


def test_lines_report_each_fault_once(fleet, capsys):
    faults = FaultInjector(fleet, 60.0)
    faults.inject(Fault(0.0, "kill", 0.0, 0.0, hard=False))
    faults.go_on()
    view = Lines()
    view.show(fleet, FakeLoad, faults)
    view.show(fleet, FakeLoad, faults)
    said = capsys.readouterr().out
    assert said.count("SIGKILL while alive") == 1
    assert "6 submitted, 3 queued, 2 running, 1 waiting" in said


# How soon a run went on, by logs


def claimed(run: str, fence: int, at: float) -> str:
    from datetime import UTC, datetime

    when = datetime.fromtimestamp(at, UTC).isoformat()
    return f'{{"time": "{when}", "message": "Run {run} is claimed.", "run": "{run}", "fence": {fence}}}\n'


class FaultedWorker:
    def __init__(self, folder: Path, number: int, text: str, *faults) -> None:
        self.number, self.log, self.faults = number, folder / f"{number}.log", list(faults)
        self.resumed: list[float] = []
        self.log.write_text(text)


def end(fence: int, at: float, kind: str = "death", seen: float | None = None) -> ExecutionEnd:
    return ExecutionEnd(kind, 3, at, seen, fence, "")


def test_recovery_lasts_from_the_fault_to_the_next_claim(tmp_path):
    now = time.time()
    noise = "what a program prints is claimed to be no JSON\n"
    one = FaultedWorker(tmp_path, 1, noise + claimed("r", 5, now), (now + 10, "kill"))
    two = FaultedWorker(
        tmp_path, 2, claimed("r", 9, now + 12.5) + claimed("s", 8, now), (now + 20, "term")
    )
    claims = Claims([one, two])
    assert claims.recovered("r", end(5, now + 11), None) == pytest.approx(2.5, abs=0.001), (
        "not from when it was noticed"
    )
    assert claims.recovered("r", end(9, now + 21, "interruption"), None) is None, (
        "nobody took it yet"
    )
    assert claims.recovered("r", end(5, now + 11), end(7, now + 12)) is None, (
        "an earlier claim was not logged"
    )
    assert list(claims.by_fault) == ["kill"]


def test_recovery_after_a_release_begins_at_the_release(tmp_path):
    now = time.time()
    one = FaultedWorker(tmp_path, 1, claimed("r", 5, now), (now + 10, "term"))
    two = FaultedWorker(tmp_path, 2, claimed("r", 9, now + 13))
    seconds = Claims([one, two]).recovered("r", end(5, now + 12, "interruption"), None)
    assert seconds == pytest.approx(1.0, abs=0.001)


def test_survived_stop_is_not_the_cause_of_a_later_death(tmp_path):
    now = time.time()
    one = FaultedWorker(tmp_path, 1, claimed("r", 5, now), (now + 1, "stop"))
    one.resumed = [now + 2]
    two = FaultedWorker(tmp_path, 2, claimed("r", 9, now + 62))
    claims = Claims([one, two], lease=2.0)
    seconds = claims.recovered("r", end(5, now + 61, seen=now + 60), None)
    assert seconds == pytest.approx(2.0, abs=0.001) and list(claims.by_fault) == ["none"]
    one.resumed = [now + 59]
    assert Claims([one, two]).recovered(
        "r", end(5, now + 61, seen=now + 60), None
    ) == pytest.approx(61.0, abs=0.001)


@pytest.mark.parametrize("ahead", [-300.0, 300.0])
def test_wrong_clock_of_the_store_does_not_change_recovery(tmp_path, ahead):
    now = time.time()
    one = FaultedWorker(
        tmp_path, 1, claimed("r", 5, now) + claimed("s", 6, now), (now + 10, "kill")
    )
    two = FaultedWorker(tmp_path, 2, claimed("r", 9, now + 12) + claimed("s", 10, now + 14))
    claims = Claims([one, two], ahead=ahead)
    death = end(5, now + ahead + 11, seen=now + ahead + 10.5)
    assert claims.recovered("r", death, None) == pytest.approx(2.0, abs=0.001)
    release = end(6, now + ahead + 11, "interruption")
    assert claims.recovered("s", release, None) == pytest.approx(3.0, abs=0.001)


def test_first_request_to_the_ledger_counts_where_no_claim_was_logged(tmp_path):
    now = time.time()
    one = FaultedWorker(tmp_path, 1, claimed("r", 5, now), (now + 10, "kill"))
    claims = Claims([one], {"r": {5: now + 1, 7: now + 11}})
    assert claims.recovered("r", end(5, now + 10.5), None) == pytest.approx(1.0, abs=0.001)


def test_simultaneous_outages_of_a_server_follow_each_other(fleet, tmp_path):
    """Two starts would be two servers with the same data: what they lose would look like the store's fault."""
    with redis_server(tmp_path) as server:
        pids, start = [server.pid], server.start

        def noted() -> None:
            start()
            pids.append(server.pid)

        server.start = noted
        faults = FaultInjector(fleet, 60.0, server=server)
        for seconds in (0.6, 0.2):
            faults.inject(Fault(0.0, "server", 0.0, seconds, hard=False))
            faults.go_on()
        wait_until(lambda: faults.go_on() or faults.quiet)
        assert faults.outages == 2
        assert [is_running(pid) for pid in pids] == [False, False, True]
