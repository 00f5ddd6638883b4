"""Export everything that an engine has counted as samples.

This reads only memory, and may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from outlast.telemetry import names
from outlast.telemetry.meters import Histogram, Labels, buckets, merged
from outlast.telemetry.names import DRAIN_ENDS, Metric
from outlast.telemetry.samples import Sample, gauge

if TYPE_CHECKING:
    from outlast.engine.engine import Engine
    from outlast.http.store_stats import StoreStatsPoller
    from outlast.shutdown.report_builder import ReportBuilder
    from outlast.store.commit_metrics import Commits


def samples(
    engine: Engine, store_stats: StoreStatsPoller, drain: ReportBuilder, *, ready: bool
) -> Iterator[Sample]:
    """Yield every metric of an open Outlast."""
    totals = engine.services.totals
    yield gauge(names.STARTED, engine.services.metrics.started)
    yield gauge(names.READY, float(ready))
    yield gauge(names.DRAINING, float(engine.shutdown.begun))
    yield gauge(names.IN_FLIGHT, len(engine.in_flight.held()))
    yield gauge(names.RUNS_IN_FLIGHT, len(engine.in_flight.executions))
    yield gauge(names.SLOTS, 0 if engine.claimers.own is None else engine.worker.offer.concurrency)
    for counter in engine.services.metrics.counters:
        yield from _counts(counter.metric, list(counter.counts.items()))
    for histogram in engine.services.metrics.histograms:
        yield from _histogram(histogram.metric, [histogram])
    yield from _of_writer(engine.writer.commits)
    yield from _counts(
        names.UNITS,
        [(("committed",), totals.committed), (("rolled_back",), totals.rolled_back)],
    )
    yield from _counts(
        names.COST_SAVED, [((unit,), float(amount)) for unit, amount in totals.saved]
    )
    yield from _of_drain(drain)
    yield from store_stats.samples()


def _of_writer(commits: Sequence[Commits]) -> Iterator[Sample]:
    yield from _histogram(names.COMMIT_COMMANDS, [one.commands for one in commits])
    yield from _histogram(names.COMMIT_SECONDS_TAKEN, [one.seconds for one in commits])
    failures = {
        kind: sum(one.failures.counts[kind] for one in commits)
        for kind in names.COMMIT_FAILURES.values
    }
    yield from _counts(names.COMMIT_FAILURES, failures.items())
    yield from _counts(names.STALE_WRITES, [((), sum(one.stale for one in commits))])


def _of_drain(drain: ReportBuilder) -> Iterator[Sample]:
    report = drain.report
    yield gauge(names.DRAIN_SECONDS, drain.seconds)
    ends = {end: getattr(report, end) for end in DRAIN_ENDS[:-1]}
    ends |= {"left": len(report.left), "not_checkpointed": len(report.not_checkpointed)}
    yield from _counts(names.DRAIN_RUNS, [((end,), count) for end, count in ends.items()])


def _counts(metric: Metric, counts: Iterable[tuple[Labels, float]]) -> Iterator[Sample]:
    for labels, count in counts:
        named = dict(zip(metric.labels, labels, strict=True))
        yield Sample(metric.name, "counter", metric.help, count, named)


def _histogram(metric: Metric, histograms: Sequence[Histogram]) -> Iterator[Sample]:
    for labels, counts in merged(histograms).items():
        found, total = buckets(metric, counts)
        named = dict(zip(metric.labels, labels, strict=True))
        yield Sample(metric.name, "histogram", metric.help, total, named, found)
