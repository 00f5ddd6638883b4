"""Metrics keep a limited number of label sets, and count a value in the right bucket."""

from outlast.telemetry import names
from outlast.telemetry.meters import Counter, Histogram, buckets


def test_label_sets_over_the_limit_are_combined():
    counter = Counter(names.STEPS, count_max=3)
    for _ in range(2):
        for number in range(1000):
            counter.add((f"flow-{number}", "step", "step", "done"))
            counter.add((f"flow-{number}", "step", "step", "failed"))
    assert set(counter.counts) == {
        ("flow-0", "step", "step", "done"), ("flow-0", "step", "step", "failed"), ("flow-1", "step", "step", "done"),
        ("other", "other", "step", "failed"), ("other", "other", "step", "done"),
    }  # fmt: skip
    assert counter.counts["flow-1", "step", "step", "done"] == 2
    assert sum(counter.counts.values()) == 4000


def test_histogram_has_a_lower_label_limit():
    histogram = Histogram(names.STEP_SECONDS, 500)
    for number in range(1000):
        histogram.add((f"flow-{number}", "step"), 0.1)
    assert len(histogram.counts) == 101
    assert histogram.counts["other", "other"][4] == 900


def test_fixed_labels_are_never_combined():
    counter = Counter(names.COMPENSATIONS, count_max=1)
    counter.add(("done",))
    assert counter.counts == {("registered",): 0, ("done",): 1, ("failed",): 0}


def test_value_on_a_bucket_bound_is_inside_it():
    histogram = Histogram(names.RECOVERY)
    histogram.add(("death",), 0.5)
    found, _ = buckets(names.RECOVERY, histogram.counts["death",])
    assert (dict(found)["0.25"], dict(found)["0.5"]) == (0, 1)
