"""What real workers say at /metrics through a death, a recovery, and a drain; and that the page about it is true."""

import os
import re
import signal
from pathlib import Path

import pytest
from telemetry_tools import metric_of, outside

from outlast.telemetry.names import METRICS

pytestmark = pytest.mark.timeout(240)

PAGE = Path(__file__).parents[2] / "docs" / "telemetry.md"
ROW = re.compile(r"^\| `(outlast_\w+)` \| (counter|gauge|histogram)(?:: ([^|]*))? \|", re.MULTILINE)


def documented() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Each metric of the page, with its kind and its labels; what a label may be is in brackets behind it."""
    return {
        name: (
            kind,
            tuple(re.findall(r"`(\w+)`(?= \(|,|$)", re.sub(r"\([^)]*\)", "()", labels).replace(" ()", ""))),
        )
        for name, kind, labels in ROW.findall(PAGE.read_text())
    }


def test_the_page_lists_what_the_code_exports():
    assert documented() == {metric.name: (metric.kind, metric.labels) for metric in METRICS}


def test_workers_are_seen_through_death_recovery_and_drain(start, tmp_path):
    os.environ["GATE"] = str(tmp_path)
    from tele_flows import journey

    first = start().until_ready()
    before = first.scrape()
    assert before["outlast_recovery_seconds_count", "death"] == 0, "there before it has happened"
    assert before["outlast_dead_letters_total", "default"] == 0
    assert before["outlast_queue_depth", "default"] == 0
    assert before["outlast_slots",] == 20
    assert before["outlast_recent_drains", "cut_short"] == 0
    outside(tmp_path, lambda app: app.submit(journey(), id="run"))
    first.until_there("first-waits-*")
    seen = first.scrape()
    assert seen["outlast_runs_in_hand",] == seen["outlast_in_hand",] == 1
    assert seen["outlast_steps_total", "journey", "pay", "step", "done"] == 1
    assert seen["outlast_steps_total", "journey", "book", "effect", "done"] == 1
    assert seen["outlast_compensations_total", "registered"] == 1
    assert seen["outlast_workers", "alive"] == 1

    first.kill()
    second = start().until_ready()
    second.until(lambda: second.scrape()["outlast_runs_in_hand",] == 1)
    found = second.scrape()
    assert found["outlast_deaths_total",] == 1
    assert found["outlast_recovery_seconds_count", "death"] == 1
    assert 0 < found["outlast_recovery_seconds_sum", "death"] < 20, "by its lock, not by its lease"
    assert found["outlast_replayed_steps_total", "journey"] == 2
    assert found["outlast_cost_saved_total", "tokens"] == 100

    second.send(signal.SIGTERM)
    second.until(lambda: second.scrape()["outlast_draining",] == 1)
    draining = second.scrape()
    assert draining["outlast_ready",] == 0
    assert draining["outlast_drain_seconds",] > 0
    assert draining["outlast_drain_runs_total", "released"] == 0
    second.open_to("first")
    assert second.ended() == 0

    outside(tmp_path, lambda app: app.queue("mail").put("letter"))
    third = start().until_ready()
    third.until_there("second-waits-*")
    third.until_there("item-letter")
    third.until(lambda: ("outlast_items_total", "mail", "acked") in third.scrape())
    said = third.scrape()
    assert said["outlast_recovery_seconds_count", "interruption"] == 1
    assert said["outlast_recent_drains", "clean"] == 1
    assert said["outlast_recent_drain_runs", "released"] == 1
    assert 0 < said["outlast_recent_drain_seconds", "1"] < 30
    assert said["outlast_queue_runs", "default", "running"] == 1
    assert said["outlast_store_up",] == 1
    assert said["outlast_store_age_seconds", "quick"] < 10
    third.open_to("second")
    third.until(lambda: ("outlast_runs_total", "journey", "done") in third.scrape())

    exported = {metric_of(name) for name, *_ in third.scrape()}
    assert exported == {metric.name for metric in METRICS}, "all of the table, and nothing else"
    third.send(signal.SIGTERM)
    assert third.ended() == 0


def test_a_worker_that_is_told_not_to_count_says_nothing(start):
    worker = start(OUTLAST_METRICS="0").until_ready()
    assert (worker.get("/metrics").status_code, worker.scrape()) == (200, {})
