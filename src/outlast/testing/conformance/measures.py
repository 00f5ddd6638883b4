"""Check RecordDurations: how long steps took."""

from __future__ import annotations

from outlast.store.commands import DURATIONS_MAX, RecordDurations
from outlast.testing.conformance.harness import Contract, StoreDriver


class MeasureContract(Contract):
    def test_what_was_measured_is_read_by_workflow_and_step_oldest_first(
        self, driver: StoreDriver
    ) -> None:
        samples = (("flow", "a", 1.5), ("flow", "b", 9.0), ("other", "a", 7.0), ("flow", "a", 0.5))
        assert driver.one(RecordDurations(samples)) is None
        assert driver.one(RecordDurations((("flow", "a", 4.0),))) is None
        assert driver.store.durations([("flow", "a"), ("other", "a"), ("flow", "unknown")]) == {
            ("flow", "a"): [1.5, 0.5, 4.0],
            ("other", "a"): [7.0],
            ("flow", "unknown"): [],
        }
        assert driver.store.measured() == [("flow", "a"), ("flow", "b"), ("other", "a")]

    def test_nothing_measured_and_nothing_asked_is_nothing(self, driver: StoreDriver) -> None:
        assert driver.one(RecordDurations(())) is None
        assert driver.store.durations([]) == {}
        assert driver.store.measured() == []
        assert driver.store.durations([("flow", "a"), ("flow", "a")]) == {("flow", "a"): []}

    def test_only_the_last_ones_of_each_are_kept(self, driver: StoreDriver) -> None:
        driver.one(RecordDurations((("flow", "rare", 1.0),)))
        for first in range(0, 3 * DURATIONS_MAX, 70):
            driver.one(
                RecordDurations(tuple(("flow", "often", float(first + n)) for n in range(70)))
            )
        driver.one(
            RecordDurations(tuple(("flow", "at once", float(n)) for n in range(2 * DURATIONS_MAX)))
        )
        found = driver.store.durations([("flow", "rare"), ("flow", "often"), ("flow", "at once")])
        last = first + 70
        assert found["flow", "rare"] == [1.0]
        assert found["flow", "often"] == [float(n) for n in range(last - DURATIONS_MAX, last)]
        assert found["flow", "at once"] == [
            float(n) for n in range(DURATIONS_MAX, 2 * DURATIONS_MAX)
        ]

    def test_a_repeat_counts_again(self, driver: StoreDriver) -> None:
        command = RecordDurations((("flow", "a", 1.0),))
        assert driver.commit(command, command) == [None, None]
        assert driver.store.durations([("flow", "a")]) == {("flow", "a"): [1.0, 1.0]}

    def test_names_are_what_they_are(self, driver: StoreDriver) -> None:
        pairs = [('"', "[0]"), ("", ""), ("ünï", "\U0001f600"), ("a\nb", "'")]
        driver.one(RecordDurations(tuple((*pair, float(n)) for n, pair in enumerate(pairs))))
        assert driver.store.durations(pairs) == {pair: [float(n)] for n, pair in enumerate(pairs)}
        assert driver.store.measured() == sorted(pairs)
