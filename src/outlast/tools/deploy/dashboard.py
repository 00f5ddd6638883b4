"""Write a Grafana dashboard: is it safe to stop a worker now, and how did the last stops go?"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from outlast.tools.deploy.alerts import risen
from outlast.tools.deploy.config import DeploymentConfig

WIDTH, HEIGHT = 8, 8


class Panel(NamedTuple):
    title: str
    queries: tuple[tuple[str, str], ...]
    """Pairs of an expression and the legend of its lines."""
    unit: str = "short"
    says: str = ""
    limit: float | None = None
    """The panel is red from this value on."""


def rows(n: DeploymentConfig) -> list[tuple[str, list[Panel]]]:
    return [
        ("Shutdown", [
            Panel("Drains of the last 15 minutes", (("max by (end) (outlast_recent_drains)", "{{end}}"),), says="clean, with something left, cut short"),
            Panel("How long they took", (("max by (quantile) (outlast_recent_drain_seconds)", "{{quantile}}"),), "s", "From the first sign to the report", n.grace * 0.9),
            Panel("What became of what was in hand", (("max by (end) (outlast_recent_drain_runs)", "{{end}}"), ("max(outlast_recent_not_checkpointed)", "steps that did not stop")), says="Of the drains of the last 15 minutes"),
        ]),
        ("Recovery", [
            Panel(
                "Time to recovery",
                (
                    ("histogram_quantile(0.5, sum by (le, cause) (outlast_recovery_seconds_recent))", "p50 {{cause}}"),
                    ("histogram_quantile(0.95, sum by (le, cause) (outlast_recovery_seconds_recent))", "p95 {{cause}}"),
                ),
                "s", "From the old worker's last sign of life to the new claim", n.objective,
            ),
            Panel("Interrupted runs that wait", (('max by (queue) (outlast_queue_runs{status="returned"})', "{{queue}}"), ("max by (queue) (outlast_queue_returned_seconds)", "{{queue}}, seconds")), limit=n.objective),
            Panel("Saved", ((f"sum by (unit) {risen('outlast_cost_saved_total', '1h', 'unit')}", "{{unit}}"),), says="What was on record when runs were taken up, and not spent again, in an hour"),
        ]),
        ("For a person", [
            Panel("Parked, dead, stuck", (('max by (queue, status) (outlast_queue_runs{status=~"parked|dead|stuck"})', "{{queue}} {{status}}"),), limit=1),
            Panel("Compensations", ((f"sum by (end) {risen('outlast_compensations_total', '15m', 'end')}", "{{end}}"),)),
            Panel("Leases lost, stale writes refused", ((f"sum{risen('outlast_leases_lost_total', '15m')}", "leases lost"), (f"sum{risen('outlast_stale_writes_total', '15m')}", "stale writes"))),
        ]),
        ("Work", [
            Panel("Queue depth", (("max by (queue) (outlast_queue_depth)", "{{queue}}"), ('max by (queue) (outlast_queue_runs{status="delayed"})', "{{queue}} delayed")), says="Queued and due; delayed: due later"),
            Panel("Oldest queued", (("max by (queue) (outlast_queue_oldest_seconds)", "{{queue}}"),), "s"),
            Panel("Workers", (("max by (status) (outlast_workers)", "{{status}}"), ("sum(outlast_in_hand)", "in hand"))),
            Panel("Steps", (("sum by (end) (rate(outlast_steps_total[5m]))", "{{end}}"), ("sum(rate(outlast_replayed_steps_total[5m]))", "replayed")), "ops"),
            Panel("Step duration, p95", (("histogram_quantile(0.95, sum by (le, step) (rate(outlast_step_seconds_bucket[5m])))", "{{step}}"),), "s"),
            Panel(
                "Group commit",
                (
                    ("histogram_quantile(0.95, sum by (le) (rate(outlast_commit_seconds_bucket[5m])))", "p95 seconds"),
                    ("sum(rate(outlast_commit_verbs_sum[5m])) / sum(rate(outlast_commit_verbs_count[5m]))", "verbs in one"),
                ),
            ),
        ]),
    ]  # fmt: skip


def dashboard(n: DeploymentConfig) -> str:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, group in rows(n):
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": _place(0, top, 24, 1),
            }
        )
        top += 1
        for number, panel in enumerate(group):
            place = _place(number % 3 * WIDTH, top + number // 3 * HEIGHT, WIDTH, HEIGHT)
            panels.append(_panel(len(panels) + 1, panel, place))
        top += (len(group) + 2) // 3 * HEIGHT
    document = {
        "uid": "outlast", "title": "Outlast", "tags": ["outlast"], "timezone": "", "schemaVersion": 39, "version": 1, "editable": True,
        "refresh": "30s", "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}}]},
        "annotations": {"list": [{
            "name": "Drains", "enable": True, "iconColor": "orange", "datasource": _SOURCE,
            "expr": "sum(outlast_draining) > 0", "titleFormat": "a worker drains",
        }]},
        "panels": panels,
    }  # fmt: skip
    return json.dumps(document, indent=2) + "\n"


_SOURCE = {"type": "prometheus", "uid": "${source}"}


def _place(x: int, y: int, w: int, h: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": w, "h": h}


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.limit is not None:
        steps.append({"color": "red", "value": panel.limit})
    style = {
        "drawStyle": "line",
        "fillOpacity": 10,
        "showPoints": "never",
        "thresholdsStyle": {"mode": "off" if panel.limit is None else "line"},
    }
    return {
        "id": number, "type": "timeseries", "title": panel.title, "description": panel.says, "datasource": _SOURCE, "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": style, "thresholds": {"mode": "absolute", "steps": steps}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expr, "legendFormat": name, "datasource": _SOURCE}
            for place, (expr, name) in enumerate(panel.queries)
        ],
    }  # fmt: skip
