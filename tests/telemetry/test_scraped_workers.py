"""Workers export every metric of the page through a death, a recovery and a drain."""

import os
import re
from pathlib import Path

import pytest
from telemetry_tools import metric_of, outside

from outlast.telemetry.names import METRICS, STALL_SECONDS, STALLS

pytestmark = pytest.mark.timeout(240)

PAGE = Path(__file__).parents[2] / "docs" / "telemetry.md"
ROW = re.compile(r"^\| `(outlast_\w+)` \| (counter|gauge|histogram)(?:: ([^|]*))? \|", re.MULTILINE)


def documented() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Each metric of the page, with its kind and its labels; what a label may be is in brackets behind it."""
    return {
        name: (
            kind,
            tuple(
                re.findall(
                    r"`(\w+)`(?= \(|,|$)", re.sub(r"\([^)]*\)", "()", labels).replace(" ()", "")
                )
            ),
        )
        for name, kind, labels in ROW.findall(PAGE.read_text())
    }


def test_telemetry_page_lists_every_metric():
    assert documented() == {metric.name: (metric.kind, metric.labels) for metric in METRICS}


def test_workers_export_all_metrics_through_death_and_drain(start, tmp_path):
    os.environ["GATE"] = str(tmp_path)
    from tele_flows import journey

    first = start().wait_until_ready()
    before = first.scrape_until("outlast_queue_depth", "default")
    assert before["outlast_recovery_seconds_count", "death"] == 0, "there before it has happened"
    assert before["outlast_dead_letters_total", "default"] == 0
    assert before["outlast_queue_depth", "default"] == 0
    assert before["outlast_slots",] == 20
    assert before["outlast_recent_drains", "cut_short"] == 0
    outside(tmp_path, lambda app: app.submit(journey(), id="run"))
    first.wait_for_file("first-waits-*")
    seen = first.scrape()
    assert seen["outlast_runs_in_flight",] == seen["outlast_in_flight",] == 1
    assert seen["outlast_steps_total", "journey", "pay", "step", "done"] == 1
    assert seen["outlast_steps_total", "journey", "book", "effect", "done"] == 1
    assert seen["outlast_compensations_total", "registered"] == 1
    assert seen["outlast_workers", "alive"] == 1

    first.kill()
    second = start().wait_until_ready()
    found = second.scrape_until("outlast_cost_saved_total", "tokens", value=100)
    assert found["outlast_runs_in_flight",] == 1
    assert found["outlast_deaths_total",] == 1
    assert found["outlast_recovery_seconds_count", "death"] == 1
    assert 0 < found["outlast_recovery_seconds_sum", "death"] < 3600, (
        "by its lock, not by its lease"
    )
    assert found["outlast_replayed_steps_total", "journey"] == 2

    second.terminate()
    draining = second.scrape_until("outlast_draining", value=1)
    assert draining["outlast_ready",] == 0
    assert draining["outlast_drain_seconds",] > 0
    assert draining["outlast_drain_runs_total", "released"] == 0
    second.open_to("first")
    assert second.wait() == 0

    outside(tmp_path, lambda app: app.queue("mail").put("letter"))
    third = start().wait_until_ready()
    third.wait_for_file("second-waits-*")
    third.wait_for_file("item-letter")
    third.scrape_until("outlast_items_total", "mail", "acked")
    third.scrape_until("outlast_store_up", value=1)
    said = third.scrape_until("outlast_queue_runs", "default", "running", value=1)
    assert said["outlast_recovery_seconds_count", "interruption"] == 1
    assert said["outlast_recent_drains", "clean"] == 1
    assert said["outlast_recent_drain_runs", "released"] == 1
    assert 0 < said["outlast_recent_drain_seconds", "1"] < 600
    assert said["outlast_store_age_seconds", "quick"] >= 0
    third.open_to("second")
    third.scrape_until("outlast_runs_total", "journey", "done")

    exported = {metric_of(name) for name, *_ in third.scrape()}
    stalls = {
        STALLS.name,
        STALL_SECONDS.name,
    }  # shown once a step has blocked the loop: none does here
    assert exported | stalls == {metric.name for metric in METRICS}, (
        "all of the table, and nothing else"
    )
    third.terminate()
    assert third.wait() == 0


def test_worker_with_metrics_off_exports_nothing(start):
    worker = start(OUTLAST_METRICS="0").wait_until_ready()
    assert (worker.get("/metrics").status_code, worker.scrape()) == (200, {})
