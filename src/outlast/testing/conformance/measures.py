"""Measured: how long steps took."""

from __future__ import annotations

from outlast.store.verbs import DURATIONS_MAX, Measured
from outlast.testing.conformance.harness import Desk, Promises


class MeasurePromises(Promises):
    def test_what_was_measured_is_read_by_workflow_and_step_oldest_first(self, desk: Desk) -> None:
        samples = (("flow", "a", 1.5), ("flow", "b", 9.0), ("other", "a", 7.0), ("flow", "a", 0.5))
        assert desk.one(Measured(samples)) is None
        assert desk.one(Measured((("flow", "a", 4.0),))) is None
        assert desk.store.durations([("flow", "a"), ("other", "a"), ("flow", "unknown")]) == {
            ("flow", "a"): [1.5, 0.5, 4.0],
            ("other", "a"): [7.0],
            ("flow", "unknown"): [],
        }
        assert desk.store.measured() == [("flow", "a"), ("flow", "b"), ("other", "a")]

    def test_nothing_measured_and_nothing_asked_is_nothing(self, desk: Desk) -> None:
        assert desk.one(Measured(())) is None
        assert desk.store.durations([]) == {}
        assert desk.store.measured() == []
        assert desk.store.durations([("flow", "a"), ("flow", "a")]) == {("flow", "a"): []}

    def test_only_the_last_ones_of_each_are_kept(self, desk: Desk) -> None:
        desk.one(Measured((("flow", "rare", 1.0),)))
        for first in range(0, 3 * DURATIONS_MAX, 70):
            desk.one(Measured(tuple(("flow", "often", float(first + n)) for n in range(70))))
        desk.one(Measured(tuple(("flow", "at once", float(n)) for n in range(2 * DURATIONS_MAX))))
        found = desk.store.durations([("flow", "rare"), ("flow", "often"), ("flow", "at once")])
        last = first + 70
        assert found["flow", "rare"] == [1.0]
        assert found["flow", "often"] == [float(n) for n in range(last - DURATIONS_MAX, last)]
        assert found["flow", "at once"] == [float(n) for n in range(DURATIONS_MAX, 2 * DURATIONS_MAX)]

    def test_a_repeat_counts_again(self, desk: Desk) -> None:
        verb = Measured((("flow", "a", 1.0),))
        assert desk.commit(verb, verb) == [None, None]
        assert desk.store.durations([("flow", "a")]) == {("flow", "a"): [1.0, 1.0]}

    def test_names_are_what_they_are(self, desk: Desk) -> None:
        pairs = [('"', "[0]"), ("", ""), ("ünï", "\U0001f600"), ("a\nb", "'")]
        desk.one(Measured(tuple((*pair, float(n)) for n, pair in enumerate(pairs))))
        assert desk.store.durations(pairs) == {pair: [float(n)] for n, pair in enumerate(pairs)}
        assert desk.store.measured() == sorted(pairs)
