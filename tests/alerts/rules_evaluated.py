"""`make alerts`: each alert rule, firing and not firing, evaluated by promtool on what real workers exported.

Not part of `make test`, because promtool is no Python package. A minute of a history is one scrape.
"""

import json
import signal
from pathlib import Path

import pytest
import yaml
from alert_tools import Fleet, History, Scrape, until

from outlast.testing.servers import redis_server
from outlast.tools.deploy.config import DeploymentConfig
from outlast.tools.deploy.documents import DOCUMENTS
from support.alert_rules import alerts_text, rules_of

ALL = list(rules_of("alert"))
CALM = dict.fromkeys(ALL, False)
SOON = DeploymentConfig(objective=1, concurrency=5, replicas_max=12)


def check(history: History, folder: Path, expected, numbers: DeploymentConfig = SOON) -> None:
    done = history.judged(folder, alerts_text(numbers), expected)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_judge_that_is_wrong_is_noticed(tmp_path):
    with Fleet(tmp_path) as fleet:
        history = History()
        last = history.add(5, fleet.scrape(fleet.worker()))
    assert (
        history.judged(tmp_path, alerts_text(SOON), {last: {"OutlastDeadLetters": True}}).returncode
        != 0
    )


def test_an_autoscaler_counts_what_executes_and_what_is_queued_once(tmp_path):
    with Fleet(tmp_path) as fleet:
        one, two = fleet.worker(concurrency=2), fleet.worker(concurrency=2)
        fleet.submit("hold", "N", count=7)

        def seen(worker: int) -> tuple[float, float]:
            running = fleet.value(worker, "outlast_queue_runs", queue="default", status="running")
            return fleet.value(worker, "outlast_queue_depth", queue="default"), running

        until(lambda: (seen(one), seen(two)) == ((3, 4), (3, 4)), "the looks")
        scrapes = fleet.scrape(one), fleet.scrape(two)
    history = History()
    whole = history.add(2, *scrapes)
    quick = history.add(10, *({key: scrape[key] for key in scrape if key[0] != "outlast_queue_runs"} for scrape in scrapes))  # fmt: skip
    found = yaml.safe_load(alerts_text(SOON))
    asked = [{"alert": f"Load{count}", "expr": f'outlast_queue_load_max{{queue="default"}} == {count}'} for count in (3, 7)]  # fmt: skip
    found["groups"].append({"name": "asked", "rules": asked})
    expected = {whole: {"Load7": True, "Load3": False}, quick: {"Load7": False, "Load3": True}}
    done = history.judged(tmp_path, yaml.safe_dump(found), expected)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_fires_while_all_is_well(tmp_path):
    with Fleet(tmp_path) as fleet:
        one, two = fleet.worker(), fleet.worker()
        fleet.submit("hold", "N", count=2)
        until(
            lambda: (
                fleet.value(one, "outlast_in_flight") + fleet.value(two, "outlast_in_flight") == 2
            )
        )
        history = History()
        first = history.add(10, fleet.scrape(one), fleet.scrape(two))
        fleet.signal(two, signal.SIGTERM)
        fleet.workers[two][0].wait(60)
        until(lambda: fleet.value(one, "outlast_recent_drains", end="clean") == 1, "the report")
        last = history.add(20, fleet.scrape(one))
    check(history, tmp_path, {first: CALM, last: CALM}, DeploymentConfig())


def test_alert_fires_for_a_drain_that_was_cut_short(tmp_path):
    with Fleet(tmp_path) as fleet:
        one, two = fleet.worker("other"), fleet.worker()
        fleet.submit("hold", 1)
        until(lambda: fleet.value(two, "outlast_in_flight") == 1)
        history = History()
        before = history.add(5, fleet.scrape(one), fleet.scrape(two))
        fleet.signal(two, signal.SIGTERM)
        until(lambda: fleet.value(one, "outlast_workers", status="draining") == 1, "the drain")
        fleet.kill(two)
        until(lambda: fleet.value(one, "outlast_recent_drains", end="cut_short") == 1, "the sweep")
        after = history.add(5, fleet.scrape(one))
    check(history, tmp_path, {before: CALM, after: {"OutlastDrainCutShort": True}})


@pytest.mark.parametrize("scraped_before", [True, False], ids=["counted", "born with its value"])
def test_a_recovery_slower_than_its_objective(tmp_path, scraped_before):
    with Fleet(tmp_path) as fleet:
        one, watch = fleet.worker(), fleet.worker("other")
        fleet.submit("hold", 1)
        until(lambda: fleet.value(one, "outlast_in_flight") == 1)
        history = History()
        before = history.add(5, fleet.scrape(one))
        fleet.kill(one)
        until(
            lambda: fleet.value(watch, "outlast_queue_returned_seconds", queue="default") > 2,
            "the wait",
        )
        two = fleet.worker()
        if scraped_before:
            history.add(
                2,
                {
                    key: 0.0 if "recovery" in key[0] else value
                    for key, value in fleet.scrape(two).items()
                },
            )
        until(
            lambda: fleet.value(two, "outlast_recovery_seconds_count", cause="death") == 1,
            "the recovery",
        )
        until(lambda: fleet.value(two, "outlast_queue_returned_seconds", queue="default") == 0)
        after = history.add(3, fleet.scrape(two))
    check(history, tmp_path, {before: CALM, after: {"OutlastRecoverySlow": True}})
    check(
        history, tmp_path, {after: {"OutlastRecoverySlow": False}}, DeploymentConfig(objective=600)
    )


def test_a_slow_recovery_by_a_worker_that_was_started_again_at_its_address(tmp_path):
    """As systemd does it: the series goes on, and its new value may be the old one."""
    history = History()
    with Fleet(tmp_path) as fleet:
        last, watch = fleet.worker(), fleet.worker("other")
        fleet.submit("hold", 1)
        until(lambda: fleet.value(last, "outlast_in_flight") == 1)
        fired, calm = [], []
        for _ in range(2):
            fleet.kill(last)
            until(lambda: fleet.value(watch, "outlast_queue_returned_seconds", queue="default") > 2, "the wait")  # fmt: skip
            last = fleet.worker()
            until(lambda: fleet.value(last, "outlast_recovery_seconds_count", cause="death") == 1, "the recovery")  # fmt: skip
            for one in (last, watch):
                until(
                    lambda: fleet.value(one, "outlast_queue_returned_seconds", queue="default") == 0
                )
            scrape = at_one_address(fleet.scrape(last))
            history.add(2)
            fired.append(history.add(3, scrape))
            calm.append(history.add(20, scrape))
    expected = {minute: {"OutlastRecoverySlow": True} for minute in fired} | dict.fromkeys(
        calm, CALM
    )
    check(history, tmp_path, expected)
    before = {key: 0.0 if "recovery" in key[0] else value for key, value in scrape.items()}
    anew = {key: value + 1 if key[0] == "outlast_start_time_seconds" else value for key, value in before.items()}  # fmt: skip
    history = History()
    history.add(20, before)
    history.add(3, scrape)
    check(
        history, tmp_path, {history.add(3, anew): {"OutlastRecoverySlow": True}}
    )  # what the old one had counted


def at_one_address(scrape: Scrape) -> Scrape:
    return {(name, tuple(sorted({**dict(labels), "pod": "one"}.items()))): value for (name, labels), value in scrape.items()}  # fmt: skip


def test_alert_fires_for_an_interrupted_run_that_no_worker_resumes(tmp_path):
    with Fleet(tmp_path) as fleet:
        one, two = fleet.worker("other"), fleet.worker()
        fleet.submit("hold", 1)
        until(lambda: fleet.value(two, "outlast_in_flight") == 1)
        fleet.kill(two)
        until(
            lambda: fleet.value(one, "outlast_queue_returned_seconds", queue="default") > 3,
            "the wait",
        )
        history = History()
        after = history.add(3, fleet.scrape(one))
    check(history, tmp_path, {after: {"OutlastRecoverySlow": True}})
    check(
        history, tmp_path, {after: {"OutlastRecoverySlow": False}}, DeploymentConfig(objective=600)
    )


@pytest.mark.parametrize(
    ("workflow", "status", "alert"),
    [("park", "parked", "OutlastRunsParked"), ("stuck", "stuck", "OutlastCompensationsStuck"), ("poison", "dead", "OutlastDeadLetters")],
)  # fmt: skip
def test_alert_fires_for_runs_that_need_a_decision(tmp_path, workflow, status, alert):
    with Fleet(tmp_path) as fleet:
        one, two = fleet.worker("other"), fleet.worker()
        history = History()
        before = history.add(5, fleet.scrape(one))
        fleet.submit(workflow, attempts=1)
        until(
            lambda: fleet.value(one, "outlast_queue_runs", queue="default", status=status) == 1,
            status,
        )
        after = history.add(8, fleet.scrape(one))
        assert two == 1
    check(history, tmp_path, {before: CALM, after: {alert: True}})


def _bits(fleet: Fleet, worker: int) -> float:
    done = {"workflow": "grind", "step": "bit", "kind": "step", "end": "done"}
    return fleet.value(worker, "outlast_steps_total", **done)


def test_a_growing_queue_of_interrupted_runs(tmp_path):
    with Fleet(tmp_path) as fleet:
        one = fleet.worker("other")
        fleet.submit("grind", "N", count=16)
        history, returned = History(), {"queue": "default", "status": "returned"}
        before = history.add(5, fleet.scrape(one))
        for concurrency in (2, 8, 16):
            victim = fleet.worker(concurrency=concurrency)
            until(
                lambda: fleet.value(victim, "outlast_in_flight") == concurrency,
                f"{concurrency} runs",
            )
            enough = _bits(fleet, victim) + 3 * concurrency  # so that each has got somewhere
            until(lambda: _bits(fleet, victim) >= enough, "their steps")
            fleet.kill(victim)
            until(
                lambda: fleet.value(one, "outlast_queue_runs", **returned) == concurrency,
                "their return",
            )
            history.add(3, fleet.scrape(one))
        during = history.add(1, fleet.scrape(one))
        after = history.add(40, fleet.scrape(one))
    expected = {
        before: CALM,
        during: {"OutlastRecoveryQueueGrowing": True},
        after: {"OutlastRecoveryQueueGrowing": False},
    }
    check(history, tmp_path, expected)


def test_alert_fires_while_the_store_is_unavailable(tmp_path):
    with redis_server(tmp_path) as server, Fleet(tmp_path, server.url) as fleet:
        one = fleet.worker()
        history = History()
        before = history.add(5, fleet.scrape(one))
        server.stop()
        until(lambda: fleet.value(one, "outlast_store_up") == 0, "the failed look")
        after = history.add(4, fleet.scrape(one))
    check(history, tmp_path, {before: CALM, after: {"OutlastStoreUnreachable": True}})


def test_workers_that_miss_their_store_in_turns_for_a_moment(tmp_path):
    with Fleet(tmp_path) as fleet:
        scrapes = [fleet.scrape(fleet.worker()) for _ in range(2)]
    history, last = History(), 0
    for minute in range(8):
        up = [{key: float(minute % 2 == pod) if key[0] == "outlast_store_up" else value for key, value in scrape.items()} for pod, scrape in enumerate(scrapes)]  # fmt: skip
        last = history.add(1, *up)
    check(history, tmp_path, {last: CALM})


def test_alert_fires_when_no_worker_is_left(tmp_path):
    with Fleet(tmp_path) as fleet:
        one = fleet.worker()
        history = History()
        before = history.add(10, fleet.scrape(one))
        fleet.kill(one)
        soon, after = history.add(7), history.add(5)
    check(history, tmp_path, {before: CALM, soon: CALM, after: {"OutlastNobodyWorks": True}})


def test_what_was_saved_is_seen_though_its_counter_is_born_with_its_value(tmp_path):
    with Fleet(tmp_path) as fleet:
        one = fleet.worker()
        fleet.submit("spend")
        until(lambda: fleet.value(one, "outlast_steps_total", workflow="spend", step="costly", kind="step", end="done"))  # fmt: skip
        history = History()
        history.add(5, fleet.scrape(one))
        fleet.kill(one)
        two = fleet.worker()
        until(
            lambda: fleet.value(two, "outlast_cost_saved_total", unit="tokens") == 100,
            "the recovery",
        )
        after = history.add(10, fleet.scrape(two))
    (panel,) = [
        one
        for one in json.loads(DOCUMENTS["dashboard"].write(SOON))["panels"]
        if one["title"] == "Saved"
    ]
    done = history.answers(tmp_path, alerts_text(SOON), panel["targets"][0]["expr"], after, 100)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_is_tested():
    text = Path(__file__).read_text()
    assert [
        name for name in ALL if f'"{name}": True' not in text and f'"{name}")' not in text
    ] == []
    assert yaml.safe_load(alerts_text(DeploymentConfig()))["groups"]
