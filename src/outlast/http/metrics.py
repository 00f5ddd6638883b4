"""Convert samples for prometheus-client."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from outlast.telemetry.samples import Sample


class _Samples(Collector):
    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self._samples = samples

    def collect(self) -> Iterable[Metric]:
        metrics: dict[str, Metric] = {}
        for sample in self._samples():
            name = sample.name
            if sample.kind == "counter":
                name = name.removesuffix("_total")
            metric = metrics.get(name)
            if metric is None:
                metric = metrics[name] = Metric(name, sample.help, sample.kind)
            if sample.kind == "histogram":
                for bound, count in sample.buckets:
                    metric.add_sample(f"{name}_bucket", {**sample.labels, "le": bound}, count)
                metric.add_sample(f"{name}_count", dict(sample.labels), sample.buckets[-1][1])
                metric.add_sample(f"{name}_sum", dict(sample.labels), sample.value)
                continue
            suffix = "_total" if metric.type == "counter" else ""
            metric.add_sample(name + suffix, dict(sample.labels), sample.value)
        return metrics.values()


def registry_of(samples: Callable[[], Iterable[Sample]]) -> CollectorRegistry:
    """Return a separate registry: the process-wide one belongs to the program."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(samples))
    return registry
