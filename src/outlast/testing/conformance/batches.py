"""Check `each` runs: which items are done, who may claim the run, and continuing after its end."""

from __future__ import annotations

from outlast.store.commands import EACH, Claim, Refused, Resume, Retry
from outlast.store.rows import RunRow
from outlast.testing.conformance.harness import Contract, StoreDriver, entry


def done(driver: StoreDriver, row: RunRow, *keys: str) -> None:
    first = driver.store.last_seq(row.pk) + 1
    for seq, key in enumerate(keys, first):
        assert driver.record(row, seq, kind="done", key=key, value=f'"{key}!"') is None


class EachContract(Contract):
    # -- what is done

    def test_what_is_done_is_found_by_its_key(self, driver: StoreDriver) -> None:
        row, other = driver.held(workflow=EACH), driver.held("other", workflow=EACH)
        done(driver, row, "a", "b")
        done(driver, other, "c")
        driver.record(row, 3, kind="done", key="plain")
        driver.record(row, 4, kind="step", key="d", value="1")
        assert driver.store.done(row.pk, ["b", "a", "c", "d", "plain", "a"]) == {
            "a": '"a!"', "b": '"b!"', "plain": None
        }  # fmt: skip
        assert driver.store.done(row.pk, []) == {}
        assert driver.store.done(row.pk + 100, ["a"]) == {}

    def test_what_is_done_is_counted(self, driver: StoreDriver) -> None:
        row = driver.held(workflow=EACH)
        assert driver.store.done_count(row.pk) == 0
        done(driver, row, "a", "b")
        driver.record(row, 3)
        assert (driver.store.done_count(row.pk), driver.store.done_count(row.pk + 1)) == (2, 0)

    def test_its_history_is_what_else_happened(self, driver: StoreDriver) -> None:
        row = driver.held(workflow=EACH)
        driver.record(row, 1, kind="items", value="{}")
        done(driver, row, "a", "b")
        driver.release(row)
        assert [(one.seq, one.kind) for one in driver.store.history(row.pk)] == [
            (1, "items"),
            (4, "interruption"),
        ]

    def test_keys_are_what_they_are(self, driver: StoreDriver) -> None:
        row = driver.held(workflow=EACH)
        keys = ["", " ", '"', "'", "1", "ünï", "\U0001f600", "a\nb", "x" * 5000]
        done(driver, row, *keys)
        assert driver.store.done(row.pk, keys) == {key: f'"{key}!"' for key in keys}

    def test_the_last_number_of_a_journal_is_told(self, driver: StoreDriver) -> None:
        row = driver.held()
        assert driver.store.last_seq(row.pk) == 0
        driver.commit(*(entry(row, seq) for seq in (1, 2, 3)))
        assert driver.store.last_seq(row.pk) == 3
        driver.release(row)
        # The interruption's entry.
        assert driver.store.last_seq(row.pk) == 4

    def test_an_item_that_is_done_is_progress(self, driver: StoreDriver) -> None:
        row = driver.held(workflow=EACH, interruptions_max=2)
        done(driver, row, "a")
        driver.release(row)
        assert driver.row().interruptions_in_a_row == 1
        row = driver.take()
        done(driver, row, "b")
        assert driver.release(row) == "queued"
        row = driver.take()
        done(driver, row, "c")
        assert driver.die(row).deaths_in_a_row == 0

    # -- who may claim it

    def test_only_who_names_it_claims_it(self, driver: StoreDriver) -> None:
        driver.submit("each", workflow=EACH, priority=9)
        driver.submit("run")
        assert [row.id for row in driver.claim(limit=9)] == ["run"]
        assert driver.claim(limit=9, workflows=("flow",)) == []
        assert driver.claim(limit=9, queues=("default",)) == []
        assert [row.id for row in driver.claim(workflows=(EACH, "flow"))] == ["each"]

    def test_it_may_be_claimed_by_its_id(self, driver: StoreDriver) -> None:
        driver.submit("each", workflow=EACH)
        assert driver.take("each").workflow == EACH

    def test_a_suspect_is_no_exception(self, driver: StoreDriver) -> None:
        driver.suspect("each", workflow=EACH)
        assert driver.claim("w2", suspects=True) == []
        assert len(driver.claim("w2", suspects=True, workflows=(EACH,))) == 1

    def test_nobody_is_told_that_a_workflow_of_this_name_is_unknown(
        self, driver: StoreDriver
    ) -> None:
        driver.suspect("suspect", workflow=EACH)
        driver.submit("each", workflow=EACH)
        look = driver.store.peek(("default",), ("flow",))
        assert (look.ready, look.suspect, look.unknown) == (False, False, ())
        assert driver.store.peek(("default",), (EACH,)).ready

    # -- going on after its end

    def test_one_that_is_done_can_be_resumed(self, driver: StoreDriver) -> None:
        row = driver.held(workflow=EACH)
        done(driver, row, "a")
        driver.settle(row, value="1")
        driver.clock.forward(5)
        assert driver.commit(Resume("r", "t"), Resume("r", "t")) == [None, None]
        now = driver.row()
        assert (now.status, now.ended, now.value, now.due, now.ready) == (
            "queued",
            None,
            None,
            driver.clock.now,
            1,
        )
        assert driver.kinds(now) == ["done", "resume"]
        again = driver.take()
        assert driver.store.done(again.pk, ["a"]) == {"a": '"a!"'}
        driver.settle(again)
        assert driver.one(Resume("r", "t")) is None
        assert driver.row().status == "done"
        assert driver.one(Resume("r", "t2")) is None
        assert driver.row().status == "queued"

    def test_its_time_limit_stands_still_between_its_end_and_its_resumption(
        self, driver: StoreDriver
    ) -> None:
        row = driver.held(workflow=EACH, timeout=100.0)
        driver.clock.forward(40)
        driver.settle(row)
        driver.clock.forward(1000)
        driver.one(Resume("r", "t"))
        assert driver.row().deadline == driver.clock.now + 60

    def test_it_can_be_resumed_when_parked_and_retried_when_failed_like_any_other(
        self, driver: StoreDriver
    ) -> None:
        driver.ended("parked", "parked", workflow=EACH)
        driver.ended("failed", "failed", workflow=EACH)
        assert driver.commit(
            Resume("parked", "t"), Resume("failed", "t"), Retry("failed", "t")
        ) == [
            None,
            Refused("status", "failed"),
            None,
        ]

    def test_no_other_run_that_is_done_can_be(self, driver: StoreDriver) -> None:
        driver.ended()
        driver.ended("each", workflow=EACH)
        assert (
            driver.commit(Resume("r", "t"), Retry("each", "t")) == [Refused("status", "done")] * 2
        )

    def test_a_repeat_of_its_claim_is_answered(self, driver: StoreDriver) -> None:
        driver.register_worker()
        driver.submit("each", workflow=EACH)
        claim = Claim("w1", "t", ids=("each",))
        assert driver.one(claim) == driver.one(claim) != []
