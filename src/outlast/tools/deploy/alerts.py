"""Write Prometheus alert rules for what needs a person or endangers the objective.

Every worker exports the same store-wide numbers, so the rules use `max` and never a sum.
"""

from __future__ import annotations

from typing import NamedTuple

from outlast.explain.named import EXPLAIN
from outlast.telemetry.names import RECENT_SECONDS, STARTED
from outlast.tools.deploy.config import DeploymentConfig

RECENT = f"{RECENT_SECONDS / 60:g}m"
"""The window of the gauges about drains."""


class Recording(NamedTuple):
    """A recording rule, for frequent queries and for clients that cannot send the full query.

    An autoscaler is such a client.
    """

    name: str
    expr: str


class Rule(NamedTuple):
    name: str
    expr: str
    wait: str
    """How long the condition must hold."""
    severity: str
    summary: str
    action: str


def risen(counter: str, window: str, *labels: str) -> str:
    """Return a query for the growth of a counter with these labels.

    A counter often starts with a value: a new worker takes over interrupted runs before the first
    scrape. So a counter younger than the window counts in full, even if its worker is gone again.
    The same holds for a worker that started at the address of an old one, where the value may
    include the old worker's. What the old worker counted before it ended is in the increase. The
    greater of the two counts.
    """
    then, ignoring = f"[5m] offset {window}", f"ignoring ({', '.join(labels)}) " if labels else ""
    anew = f"last_over_time({STARTED.name}[{window}]) != last_over_time({STARTED.name}{then})"
    same = f"last_over_time({counter}{then}) unless {ignoring}({anew})"
    young = f"last_over_time({counter}[{window}]) unless ({same})"
    return f'(max without (young) (label_replace({young}, "young", "yes", "", "") or increase({counter}[{window}])))'


RECORDINGS = [
    Recording("outlast_queue_depth_max", "max by (queue) (outlast_queue_depth)"),
    Recording(
        "outlast_recovery_seconds_recent",
        f"sum by (le, cause) {risen('outlast_recovery_seconds_bucket', RECENT, 'le', 'cause')}",
    ),
    # The metric for an autoscaler. It excludes runs that are due later, because no pod can take
    # them yet. The depth alone would remove full workers as soon as fewer could hold what is
    # queued. The number of running runs is polled less often than the depth and may not be known
    # yet.
    Recording(
        "outlast_queue_load_max",
        'max by (queue) (outlast_queue_depth) + (max by (queue) (outlast_queue_runs{status="running"}) or 0 * max by (queue) (outlast_queue_depth))',
    ),
]


def rules(n: DeploymentConfig) -> list[Rule]:
    seconds = n.objective
    return [
        Rule(
            "OutlastDrainCutShort",
            'max(outlast_recent_drains{end="cut_short"}) > 0',
            "0m",
            "warning",
            "{{ $value }} workers were killed in the middle of their drain in the last 15 minutes.",
            "`outlast drains` names them. Give them longer: `outlast doctor --manifest FILE` compares OUTLAST_GRACE with what the surroundings give.",
        ),
        Rule(
            "OutlastRecoverySlow",
            f"histogram_quantile(0.95, sum by (le) (outlast_recovery_seconds_recent)) > {seconds} "
            f"or max by (queue) (outlast_queue_returned_seconds) > {seconds}",
            "0m",
            "warning",
            f"Interrupted runs are taken up again later than the objective of {seconds} s: {{{{ $value | humanizeDuration }}}}.",
            "`outlast workers`: are there any, with free slots? `outlast queues`: do they know the workflows, is the queue limited? `outlast drains`: what was cut off?",
        ),
        Rule(
            "OutlastRunsParked",
            'max by (queue) (outlast_queue_runs{status="parked"}) > 0',
            "5m",
            "warning",
            "{{ $value }} runs of queue {{ $labels.queue }} wait for a person.",
            "`outlast runs --status parked`, then `outlast show ID` says why, and how to decide or resume.",
        ),
        Rule(
            "OutlastDeadLetters",
            'max by (queue) (outlast_queue_runs{status="dead"}) > 0',
            "0m",
            "critical",
            "{{ $value }} dead letters in queue {{ $labels.queue }}: they have killed their workers, or failed too often.",
            "`outlast runs --status dead` and `outlast show ID`; then `outlast retry ID`, or `outlast cancel ID`, which undoes what they did.",
        ),
        Rule(
            "OutlastCompensationsStuck",
            'max by (queue) (outlast_queue_runs{status="stuck"}) > 0',
            "0m",
            "critical",
            "{{ $value }} runs of queue {{ $labels.queue }} cannot be undone: what they did outside is still done.",
            "`outlast runs --undoing --status parked`, `outlast show ID`; mend what fails, then `outlast retry ID`, or decide it by hand.",
        ),
        Rule(
            "OutlastRecoveryQueueGrowing",
            'deriv(max by (queue) (outlast_queue_runs{status="returned"})[10m:1m]) > 0 '
            f'and max by (queue) (outlast_queue_runs{{status="returned"}}) > {n.concurrency}',
            "5m",
            "warning",
            "More runs are interrupted than are taken up again in queue {{ $labels.queue }}.",
            "Workers end quicker than others take over: a crash loop, a roll-out without room, or a limit on the queue. `outlast workers`, `outlast drains`.",
        ),
        Rule(
            "OutlastStoreUnreachable",
            "outlast_store_up == 0",
            "2m",
            "critical",
            "The worker at {{ $labels.instance }} has not reached its store for two minutes.",
            "`outlast doctor` on that host says what it gets for an answer.",
        ),
        # All other rules need a worker's metrics and fall silent with the last worker.
        Rule(
            "OutlastNobodyWorks",
            "absent(outlast_ready == 1)",
            "5m",
            "critical",
            "No worker has been ready for five minutes: nothing is taken up, and nobody tells.",
            "`outlast workers`, from anywhere: living ones are not scraped; none there: do they run, can they reach their store? Their logs, and `outlast doctor` on their host.",
        ),
    ]


def alerts(n: DeploymentConfig) -> str:
    head = f"""\
# Made by: {n.command("alerts")}
# Every worker exports the numbers of the whole store alike: they are asked for with max, never summed.
groups:
  - name: outlast
    rules:
"""
    recorded = [
        f"      - record: {one.name}\n        expr: >-\n          {one.expr}\n"
        for one in RECORDINGS
    ]
    return head + "\n".join([*recorded, *(_text(rule, n.runbook_base) for rule in rules(n))])


def _text(rule: Rule, base: str) -> str:
    url = f"          runbook_url: {_quoted(f'{base}#{rule.name.lower()}')}\n" if base else ""
    return f"""\
      - alert: {rule.name}
        expr: >-
          {rule.expr}
        for: {rule.wait}
        labels: {{severity: {rule.severity}}}
        annotations:
          summary: {_quoted(rule.summary)}
          action: {_quoted(rule.action)}
          runbook: {_quoted(f"{EXPLAIN} {rule.name}")}
{url}"""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
