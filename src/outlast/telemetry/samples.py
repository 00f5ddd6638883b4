"""The form in which metrics are exported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from outlast.telemetry.names import Metric


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of `/metrics`.

    Samples with the same name form one metric: the first defines its kind and help.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    value: float
    """For a histogram, the sum."""
    labels: Mapping[str, str] = field(default_factory=dict)
    buckets: Sequence[tuple[str, float]] = ()
    """For a histogram, the cumulative count up to each bound, ascending. The last bound is +Inf."""


def gauge(metric: Metric, value: float, *labels: str) -> Sample:
    """Return a sample of a gauge, with the values of the metric's labels."""
    named = dict(zip(metric.labels, labels, strict=True))
    return Sample(metric.name, "gauge", metric.help, value, named)
