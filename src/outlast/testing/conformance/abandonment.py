"""Check that a claim compensates a run that no worker took for too long."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outlast.codec.exceptions import decode_error
from outlast.errors import Abandoned
from outlast.store.commands import Cancel, Claim, RegisterWorker, Submit, SubmitMany, Undo
from outlast.store.rows import RunRow
from outlast.testing.conformance.harness import LEASE, Contract, StoreDriver
from outlast.testing.conformance.undo_setups import VERDICT, queue_counts, run_with_effect


def register_worker(
    driver: StoreDriver, worker: str, queues: tuple[str, ...] = ("default",), *workflows: str
) -> None:
    driver.store.acquire_liveness(worker)
    assert driver.one(RegisterWorker(worker, "host", 1, LEASE, queues, workflows)) is None


def time_goes_by(driver: StoreDriver, seconds: float, *alive: str) -> None:
    """Let time pass in small steps while the workers in `alive` renew."""
    steps = int(seconds // (LEASE / 4))
    for step in range(steps + 1):
        driver.clock.forward(LEASE / 4 if step < steps else seconds % (LEASE / 4))
        for worker in alive:
            driver.renew(worker)


def left(driver: StoreDriver, id: str = "r", **fields: Any) -> RunRow:
    """Return a run that has started and is claimable now."""
    driver.release(
        run_with_effect(driver, id, worker="starter", **({"abandon_after": 100.0} | fields))
    )
    return driver.row(id)


class AbandonmentContract(Contract):
    def test_abandon_after_is_kept_with_a_run(self, driver: StoreDriver) -> None:
        assert driver.submit("a", abandon_after=2.5).abandon_after == 2.5
        assert driver.held("b", abandon_after=3.5).abandon_after == 3.5
        driver.one(SubmitMany((Submit("c", "flow", "[]", "t", "s", abandon_after=4.5),)))
        assert driver.row("c").abandon_after == 4.5
        assert driver.submit("d").abandon_after is None

    def test_a_run_that_nobody_took_for_too_long_is_claimed_to_be_undone(
        self, driver: StoreDriver
    ) -> None:
        register_worker(driver, "busy")
        row = left(driver, timeout=5.0)
        time_goes_by(driver, 101, "busy")
        (claimed,) = driver.claim("w2")
        assert claimed == driver.row()
        assert (claimed.id, claimed.status, claimed.worker, claimed.deadline) == (
            "r",
            "running",
            "w2",
            None,
        )
        assert claimed.lives == 2
        assert queue_counts(driver) == (0, 1)
        assert driver.kinds(row) == ["intent", "interruption", "undoing"]
        assert driver.store.journal(row.pk)[-1].value == claimed.undoing
        # The `undoing` entry carries the void fence, not the claim's.
        assert [e.fence for e in driver.store.journal(row.pk)] == [
            -row.fence,
            row.fence,
            row.fence,
        ]
        verdict = json.loads(claimed.undoing or "")
        assert (verdict["status"], verdict["value"], verdict["reason"], verdict["failed_at"]) == (
            "failed", None, None, None
        )  # fmt: skip
        error = decode_error(verdict["error"])
        assert isinstance(error, Abandoned)
        assert (error.id, error.seconds) == ("r", 101.0)
        for word in ("'r'", "101", "compensated", "outlast retry r"):
            assert word in str(error)

    def test_the_life_that_undoes_it_goes_on_after_the_stores_entry(
        self, driver: StoreDriver
    ) -> None:
        register_worker(driver, "busy")
        left(driver)
        time_goes_by(driver, 101, "busy")
        (claimed,) = driver.claim("w2")
        # The claim's `undoing` entry took this number.
        assert driver.record(claimed, 3) is not None
        assert driver.record(claimed, 4) is None
        driver.settle(claimed, "failed")
        assert (driver.row().status, driver.row().undoing) == ("failed", None)

    def test_a_repeated_claim_abandons_once(self, driver: StoreDriver) -> None:
        register_worker(driver, "busy")
        row = left(driver)
        time_goes_by(driver, 101, "busy")
        command = Claim("busy", "again", queues=("default",))
        first, second = driver.commit(command, command)
        assert first == second == [driver.row()]
        assert driver.kinds(row).count("undoing") == 1

    def test_what_is_being_undone_already_is_not_abandoned(self, driver: StoreDriver) -> None:
        register_worker(driver, "busy")
        row = run_with_effect(driver, worker="starter", abandon_after=100.0)
        driver.one(Undo(row.pk, row.fence, VERDICT))
        time_goes_by(driver, 101, "busy")
        assert [each.undoing for each in driver.claim("w2")] == [VERDICT]
        assert driver.kinds(row) == ["intent", "undoing"]

    def test_a_waiting_run_is_abandoned_from_when_it_was_due(self, driver: StoreDriver) -> None:
        register_worker(driver, "busy")
        for id in ("a", "b"):
            row = run_with_effect(driver, id, worker="starter", abandon_after=100.0)
            driver.wait(row, due=driver.clock.now + (50.0 if id == "a" else 60.0))
        time_goes_by(driver, 155, "busy")
        assert {each.id: each.undoing is not None for each in driver.claim("w2", limit=5)} == {
            "a": True,
            "b": False,
        }
        assert queue_counts(driver) == (0, 2)

    def test_a_child_is_abandoned_too(self, driver: StoreDriver) -> None:
        register_worker(driver, "busy")
        left(driver, "child", parent="parent")
        time_goes_by(driver, 101, "busy")
        assert [each.undoing is not None for each in driver.claim("w2")] == [True]
        assert queue_counts(driver) == (0, 0)

    def test_a_suspect_is_abandoned_and_is_one_no_longer(self, driver: StoreDriver) -> None:
        driver.suspect(abandon_after=100.0)
        register_worker(driver, "busy")
        time_goes_by(driver, 101, "busy")
        assert [each.undoing is not None for each in driver.claim("w2", suspects=True)] == [True]
        assert driver.row().deaths_in_a_row == 0

    # -- what is not abandoned

    def _claimed(self, driver: StoreDriver, **fields: Any) -> str | None:
        (row,) = driver.claim("w2", **fields)
        assert "undoing" not in driver.kinds(row) or row.undoing
        return row.undoing

    def test_a_run_without_a_time_is_never_abandoned(self, driver: StoreDriver) -> None:
        register_worker(driver, "busy")
        left(driver, abandon_after=None)
        time_goes_by(driver, 1000, "busy")
        assert self._claimed(driver) is None

    def test_a_run_is_not_abandoned_before_its_time_is_over(self, driver: StoreDriver) -> None:
        register_worker(driver, "busy")
        left(driver)
        time_goes_by(driver, 100, "busy")
        assert self._claimed(driver) is None

    def test_a_run_that_never_began_is_not_abandoned(self, driver: StoreDriver) -> None:
        register_worker(driver, "busy")
        driver.submit(abandon_after=100.0)
        time_goes_by(driver, 1000, "busy")
        assert self._claimed(driver) is None

    def test_a_run_that_is_named_is_not_abandoned(self, driver: StoreDriver) -> None:
        register_worker(driver, "busy")
        left(driver)
        time_goes_by(driver, 1000, "busy")
        assert self._claimed(driver, ids=("r",)) is None

    def test_a_run_that_is_to_be_cancelled_is_not_abandoned(self, driver: StoreDriver) -> None:
        """Cancellation wins: the run ends as the person asked."""
        register_worker(driver, "busy")
        left(driver)
        driver.one(Cancel("r", "stop"))
        time_goes_by(driver, 1000, "busy")
        assert self._claimed(driver) is None
        assert driver.row().cancel == "stop"

    @pytest.mark.parametrize(
        ("queues", "workflows"), [((), ()), (("other",), ()), (("default",), ("another",))]
    )
    def test_a_worker_that_could_not_have_taken_it_does_not_count(
        self, driver: StoreDriver, queues: tuple[str, ...], workflows: tuple[str, ...]
    ) -> None:
        register_worker(driver, "other", queues, *workflows)
        left(driver)
        time_goes_by(driver, 1000, "other")
        assert self._claimed(driver) is None

    def test_a_worker_that_knows_its_workflow_by_name_counts(self, driver: StoreDriver) -> None:
        register_worker(driver, "busy", ("other", "default"), "another", "flow")
        left(driver)
        time_goes_by(driver, 101, "busy")
        assert self._claimed(driver) is not None

    def test_a_worker_that_came_later_does_not_count(self, driver: StoreDriver) -> None:
        """Cover a fleet that was down over a weekend: the first worker back takes the run as is."""
        left(driver)
        driver.clock.forward(1)
        register_worker(driver, "late")
        time_goes_by(driver, 1000, "late")
        assert self._claimed(driver) is None

    def test_a_worker_that_drains_does_not_count(self, driver: StoreDriver) -> None:
        register_worker(driver, "busy")
        left(driver)
        time_goes_by(driver, 1000, "busy")
        driver.renew("busy", draining=True)
        assert self._claimed(driver) is None

    def test_a_worker_whose_lease_ran_out_does_not_count(self, driver: StoreDriver) -> None:
        register_worker(driver, "busy")
        register_worker(driver, "other", ())
        left(driver)
        time_goes_by(driver, 1000, "other")
        assert self._claimed(driver) is None

    def test_a_time_in_which_nobody_was_awake_does_not_count(self, driver: StoreDriver) -> None:
        """Cover a suspended machine and a clock jump: the same worker could not claim then."""
        register_worker(driver, "busy")
        left(driver)
        time_goes_by(driver, 90, "busy")
        driver.clock.forward(100_000)
        driver.renew("busy")
        time_goes_by(driver, 90, "busy")
        assert self._claimed(driver) is None

    def test_the_time_goes_on_after_everybody_woke_up(self, driver: StoreDriver) -> None:
        register_worker(driver, "busy")
        left(driver)
        driver.clock.forward(100_000)
        time_goes_by(driver, 120, "busy")
        assert self._claimed(driver) is not None

    def test_a_gap_that_nobody_has_noticed_yet_does_not_count(self, driver: StoreDriver) -> None:
        register_worker(driver, "busy")
        left(driver, abandon_after=10.0)
        # Within the lease.
        driver.clock.forward(LEASE - 1)
        (found,) = driver.one(Claim("busy", "t", queues=("default",)))
        assert found.undoing is None
