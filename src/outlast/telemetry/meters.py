"""Count and time what this process does, in plain Python. `http/metrics.py` renders it on request.

Only one thread changes each meter, so there are no locks, and a step costs a few hundred
nanoseconds. Any thread may read: it copies first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from time import time
from typing import Any

from outlast.telemetry import names
from outlast.telemetry.names import OPEN, OTHER, Metric

HISTOGRAMS_MAX = 100
"""Label sets of one histogram, if `metrics_series_max` allows more: each exports a line per bucket.
"""

Labels = tuple[str, ...]


class Bounded:
    """Decide which label sets of a metric keep their own names: the first ones, up to a limit."""

    def __init__(self, metric: Metric, count_max: int) -> None:
        self._open = [label in OPEN for label in metric.labels]
        self._count_max = count_max

    def folded(self, labels: Labels, count: int) -> Labels:
        """Return the labels, or the folded ones (`other`) if too many are shown already."""
        if not any(self._open) or count < self._count_max:
            return labels
        return tuple(
            OTHER if is_open else one for one, is_open in zip(labels, self._open, strict=True)
        )


class Counter:
    """A counter: one number per set of label values."""

    def __init__(self, metric: Metric, count_max: int = 500) -> None:
        self.metric = metric
        self._bounded = Bounded(metric, count_max)
        self.counts: dict[Labels, float] = dict.fromkeys(metric.values, 0)

    def add(self, labels: Labels, amount: float = 1) -> None:
        try:
            self.counts[labels] += amount
        except KeyError:
            labels = self._bounded.folded(labels, len(self.counts))
            self.counts[labels] = self.counts.get(labels, 0) + amount

    def begin(self, labels: Labels) -> None:
        """Show the series from now on, at 0.

        Prometheus sees no increase in a series that first appears with its value.
        """
        self.add(labels, 0)


class Histogram:
    """A histogram: for each set of label values, the count of each bucket, followed by the sum.

    The last bucket counts values beyond all bounds.
    """

    def __init__(self, metric: Metric, count_max: int = HISTOGRAMS_MAX) -> None:
        self.metric = metric
        self._bounded = Bounded(metric, min(count_max, HISTOGRAMS_MAX))
        self._bounds = metric.buckets
        self.counts: dict[Labels, list[float]] = {labels: self._empty() for labels in metric.values}

    def _empty(self) -> list[float]:
        return [0] * (len(self._bounds) + 2)

    def add(self, labels: Labels, value: float) -> None:
        counts = self.counts.get(labels)
        if counts is None:
            labels = self._bounded.folded(labels, len(self.counts))
            counts = self.counts.setdefault(labels, self._empty())
        counts[bisect_left(self._bounds, value)] += 1
        counts[-1] += value


class Meters:
    """The meters of one engine. Every method is called on its event loop."""

    def __init__(self, count_max: int = 500) -> None:
        self.started = time()
        """When all counters were 0. A counter that restarts at its old value shows Prometheus no
        increase, but this changes.
        """
        self.steps = Counter(names.STEPS, count_max)
        self.step_seconds = Histogram(names.STEP_SECONDS, count_max)
        self.replays = Counter(names.REPLAYED, count_max)
        self.runs = Counter(names.RUNS, count_max)
        self.items = Counter(names.ITEMS, count_max)
        self.recoveries = Histogram(names.RECOVERY)
        self.compensations = Counter(names.COMPENSATIONS)
        self.became = {
            "dead": Counter(names.DEAD_LETTERS, count_max),
            "parked": Counter(names.PARKED, count_max),
        }
        self.stalls = Counter(names.STALLS, count_max)
        self.stall_seconds = Counter(names.STALL_SECONDS, count_max)
        self.leases = Counter(names.LEASES_LOST)
        self.deaths = Counter(names.DEATHS)

    @property
    def counters(self) -> tuple[Counter, ...]:
        return (
            self.steps,
            self.replays,
            self.runs,
            self.items,
            self.compensations,
            *self.became.values(),
            self.leases,
            self.stalls,
            self.stall_seconds,
            self.deaths,
        )

    @property
    def histograms(self) -> tuple[Histogram, ...]:
        return self.step_seconds, self.recoveries

    def begin(self, queues: Iterable[str]) -> None:
        """Show the counters of the queues that this process claims from."""
        for queue in queues:
            for counter in self.became.values():
                counter.begin((queue,))

    def step(
        self, workflow: str, step: str, kind: str, end: str, seconds: float | None = None
    ) -> None:
        """Count a step or an attempt that ended. `seconds` is its duration if it succeeded."""
        self.steps.add((workflow, step, kind, end))
        if seconds is not None:
            self.step_seconds.add((workflow, step), seconds)

    def replayed(self, workflow: str, count: int = 1) -> None:
        self.replays.add((workflow,), count)

    def execution(self, workflow: str, end: str) -> None:
        self.runs.add((workflow, end))

    def item(self, queue: str, end: str) -> None:
        self.items.add((queue, end))

    def recovered(self, cause: str, seconds: float) -> None:
        self.recoveries.add((cause,), max(0.0, seconds))

    def compensation(self, end: str) -> None:
        self.compensations.add((end,))

    def needs_a_person(self, what: str, queue: str) -> None:
        """Count a run or an item that was parked or became a dead letter."""
        self.became[what].add((queue,))

    def lease_lost(self) -> None:
        self.leases.add(())

    def stalled(self, workflow: str, step: str, seconds: float) -> None:
        """Count a stall of the event loop.

        `step` is empty for a workflow's own code. Both names are empty for other tasks.
        """
        self.stalls.add((workflow, step))
        self.stall_seconds.add((workflow, step), seconds)

    def died(self, workers: int) -> None:
        self.deaths.add((), workers)


class NoMeters(Meters):
    """Count nothing."""

    def _nothing(self, *_: Any, **__: Any) -> None:
        pass

    begin = step = replayed = execution = item = recovered = compensation = _nothing
    needs_a_person = lease_lost = stalled = died = _nothing


def meters_of(settings: Any) -> Meters:
    return Meters(settings.metrics_series_max) if settings.metrics else NoMeters()


def merged(histograms: Sequence[Histogram]) -> dict[Labels, list[float]]:
    """Return the sums of the histograms of several threads."""
    sums: dict[Labels, list[float]] = {}
    for histogram in histograms:
        for labels, counts in list(histogram.counts.items()):
            before = sums.get(labels)
            sums[labels] = (
                list(counts)
                if before is None
                else [a + b for a, b in zip(before, counts, strict=True)]
            )
    return sums


def buckets(metric: Metric, counts: Sequence[float]) -> tuple[tuple[tuple[str, float], ...], float]:
    """Return the cumulative count up to each bound, and the sum, as they are exported.

    `counts` must be a copy, because another thread may add to the original.
    """
    bounds = [
        *(f"{bound:g}" if bound != int(bound) else f"{bound:.1f}" for bound in metric.buckets),
        "+Inf",
    ]
    return tuple(zip(bounds, accumulate(counts[:-1]), strict=True)), counts[-1]
