"""Check Submit with `replace`: the last submission before the first claim wins."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.store.commands import Cancel, Retry, Send, SetQueueLimits, Submit, Submitted
from outlast.testing.conformance.crowd import Crowd
from outlast.testing.conformance.harness import StoreDriver

FIRST = Submit("r", "flow", '["first"]', "t1", "seed1", replace=True)
LAST = FIRST._replace(args='["last"]', token="t2", seed="seed2")


class ReplacementContract(Crowd):
    def test_a_run_that_does_not_exist_is_inserted(self, driver: StoreDriver) -> None:
        assert driver.one(FIRST) == Submitted(None, new=True)
        assert driver.row().args == '["first"]'

    def test_the_last_submission_before_the_first_claim_replaces_the_others(
        self, driver: StoreDriver
    ) -> None:
        driver.one(FIRST._replace(delay=5.0, timeout=60.0, abandon_after=90.0, by="ann"))
        first = driver.row()
        driver.clock.forward(1)
        last = LAST._replace(delay=7.0, priority=3, timeout=30.0, by="bob")
        assert driver.one(last) == Submitted(None, new=True)
        assert driver.row() == first._replace(
            args='["last"]',
            token="t2",
            seed="seed2",
            priority=3,
            due=driver.clock.now + 7.0,
            timeout=30.0,
            abandon_after=None,
            by="bob",
        )
        driver.clock.forward(6.5)
        assert driver.claim() == []
        driver.clock.forward(1)
        assert [row.args for row in driver.claim()] == ['["last"]']

    def test_it_is_ready_or_delayed_as_the_last_submission_says(self, driver: StoreDriver) -> None:
        driver.one(FIRST)
        driver.one(LAST._replace(delay=5.0))
        assert driver.store.queues()[0].delayed == 1
        assert driver.claim() == []
        driver.one(LAST._replace(token="t3", priority=2))
        assert driver.store.queues()[0].delayed == 0
        driver.submit("other", priority=1)
        assert [row.id for row in driver.claim(limit=2)] == ["r", "other"]

    def test_a_repeat_of_the_last_submission_changes_nothing(self, driver: StoreDriver) -> None:
        last = LAST._replace(delay=5.0)
        driver.commit(FIRST, last)
        row = driver.row()
        driver.clock.forward(1)
        outcome = driver.one(last)
        assert outcome.new
        assert driver.row() == row

    def test_one_batch_may_have_a_whole_burst(self, driver: StoreDriver) -> None:
        outcomes = driver.commit(FIRST, Submit("x", "flow", "[]", "t", "s"), LAST, LAST)
        assert [outcome.new for outcome in outcomes] == [True] * 4
        assert driver.row().args == '["last"]'
        joined = driver.one(LAST._replace(token="t3", replace=False))
        assert not joined.new
        assert joined.row == driver.row()

    @pytest.mark.parametrize("since", ["claimed", "released", "cancelled", "retried", "ended"])
    def test_a_run_that_something_became_of_is_returned_and_not_touched(
        self, driver: StoreDriver, since: str
    ) -> None:
        driver.one(FIRST)
        if since in ("cancelled", "retried"):
            driver.one(Cancel("r", "no"))
            if since == "retried":
                driver.one(Retry("r", "again"))
        else:
            row = driver.take()
            if since == "released":
                driver.release(row)
            elif since == "ended":
                driver.settle(row)
        before = driver.row()
        assert driver.one(LAST) == Submitted(before, new=False)
        assert driver.row() == before

    @pytest.mark.parametrize(
        "other", [{"workflow": "other"}, {"queue": "slow"}, {"key": "ann"}], ids=str
    )
    def test_other_work_under_the_id_is_not_touched(
        self, driver: StoreDriver, other: dict[str, Any]
    ) -> None:
        driver.one(FIRST)
        before = driver.row()
        assert driver.one(LAST._replace(**other)) == Submitted(before, new=False)
        assert driver.row() == before

    def test_a_child_is_not_touched(self, driver: StoreDriver) -> None:
        before = driver.submit("r", parent="p")
        assert driver.one(LAST) == Submitted(before, new=False)

    def test_a_full_queue_takes_a_replacement(self, driver: StoreDriver) -> None:
        driver.one(SetQueueLimits("default", 1, None))
        driver.one(FIRST)
        assert driver.one(LAST) == Submitted(None, new=True)
        assert driver.one(LAST._replace(id="other")).detail == "1/1/1"

    def test_messages_stay(self, driver: StoreDriver) -> None:
        driver.one(FIRST)
        driver.one(Send("r", "n", "m", "1"))
        driver.one(LAST)
        assert [message.value for message in driver.store.messages(driver.row().pk)] == ["1"]

    def test_a_run_with_a_key_loses_its_turn_while_it_is_delayed(self, driver: StoreDriver) -> None:
        driver.one(FIRST._replace(key="a"))
        driver.submit("next", key="a")
        assert driver.claim(workflows=("other",)) == []
        assert driver.row("r").turn is not None
        driver.one(LAST._replace(key="a", delay=5.0))
        assert driver.row("r").turn is None
        assert [row.id for row in driver.claim(limit=2)] == ["next"]
        driver.clock.forward(5)
        assert [row.args for row in driver.claim(limit=2)] == ['["last"]']

    @pytest.mark.parametrize("had_turn", [False, True])
    def test_a_run_with_a_key_that_stays_due_takes_its_turn_again(
        self, driver: StoreDriver, had_turn: bool
    ) -> None:
        driver.one(FIRST._replace(key="a"))
        if had_turn:
            assert driver.claim(workflows=("other",)) == []
        driver.clock.forward(1)
        driver.one(LAST._replace(key="a"))
        # Nothing else happens to the key that could give it a turn.
        assert [row.args for row in driver.claim(limit=2)] == ['["last"]']

    def test_a_claim_and_a_replacement_exclude_each_other(
        self, driver: StoreDriver, crowd: list[StoreDriver]
    ) -> None:
        """Claim the last submission of a burst that arrived before the claim."""
        ids = [f"r{number}" for number in range(20)]
        driver.commit(*(FIRST._replace(id=id) for id in ids))
        workers = [mine.register_worker(f"w{number}") for number, mine in enumerate(crowd)]

        def work(number: int) -> tuple[dict[str, str], set[tuple[str, str]]]:
            mine, claimed, replaced = crowd[number], {}, set()
            for step, id in enumerate(ids if number % 2 else reversed(ids)):
                args = f'["{number}-{step}"]'
                burst = LAST._replace(id=id, args=args, token=f"{number}-{step}", seed=args)
                if mine.one(burst).new:
                    replaced.add((id, args))
                for row in mine.claim(workers[number], limit=1):
                    claimed[row.id] = row.args
            return claimed, replaced

        shares = self._together(work)
        claimed = {id: args for share, _ in shares for id, args in share.items()}
        replaced = {pair for _, share in shares for pair in share}
        assert all((id, args) in replaced or args == FIRST.args for id, args in claimed.items())
        assert all(driver.row(id).args == args for id, args in claimed.items())
