"""Check Send and messages: the mailbox."""

from __future__ import annotations

import pytest

from outlast.store.commands import DEPTH, STATUS, UNKNOWN, Refused, Release, Send
from outlast.store.rows import Message
from outlast.testing.conformance.harness import Contract, StoreDriver


class MailContract(Contract):
    def test_messages_are_numbered_from_one_in_the_order_they_were_sent(
        self, driver: StoreDriver
    ) -> None:
        row = driver.submit()
        driver.one(Send("r", "a", "1", '"x"'))
        driver.clock.forward(1)
        assert driver.commit(Send("r", "b", "1", '"y"'), Send("r", "a", "2", '"z"')) == [None, None]
        now = driver.clock.now
        assert driver.store.messages(row.pk) == [
            Message(1, "a", "1", '"x"', now - 1),
            Message(2, "b", "1", '"y"', now),
            Message(3, "a", "2", '"z"', now),
        ]
        assert [m.number for m in driver.store.messages(row.pk, after=1)] == [2, 3]
        assert driver.store.messages(row.pk, after=3) == []

    def test_the_same_name_and_id_again_is_not_written(self, driver: StoreDriver) -> None:
        row = driver.submit()
        assert driver.commit(Send("r", "a", "1", "1"), Send("r", "a", "1", "2")) == [None, None]
        assert driver.one(Send("r", "a", "1", "3")) is None
        driver.one(Send("r", "a", "2", "4"))
        assert [(m.number, m.id, m.value) for m in driver.store.messages(row.pk)] == [
            (1, "1", "1"),
            (2, "2", "4"),
        ]

    def test_a_mailbox_has_a_limit_and_a_repeat_is_no_other_message(
        self, driver: StoreDriver
    ) -> None:
        row = driver.submit()
        sent = driver.commit(*(Send("r", "a", str(n), str(n), 2) for n in (1, 2, 3, 2)))
        assert sent == [None, None, Refused(DEPTH, "2"), None]
        assert driver.one(Send("r", "b", "1", "4", 2)) == Refused(DEPTH, "2")
        assert driver.one(Send("r", "b", "1", "4", 3)) is None
        assert driver.one(Send("r", "b", "1", "4", 0)) is None
        assert [m.value for m in driver.store.messages(row.pk)] == ["1", "2", "4"]

    def test_a_message_beyond_the_limit_wakes_nobody(self, driver: StoreDriver) -> None:
        row = driver.held()
        assert (
            driver.one(Release(row.pk, row.fence, "waits", waiting=True, waits=("a",))) == "waiting"
        )
        assert driver.one(Send("r", "a", "1", "1", 0)) == Refused(DEPTH, "0")
        assert driver.claim() == []

    def test_each_run_has_a_mailbox_of_its_own(self, driver: StoreDriver) -> None:
        one, two = driver.submit("one"), driver.submit("two")
        driver.commit(Send("one", "a", "1", "1"), Send("two", "a", "1", "2"))
        assert [m.value for m in driver.store.messages(one.pk)] == ["1"]
        assert [(m.number, m.value) for m in driver.store.messages(two.pk)] == [(1, "2")]

    def test_a_message_does_not_hurry_a_run_that_is_queued_for_later(
        self, driver: StoreDriver
    ) -> None:
        driver.submit(delay=100.0)
        driver.one(Send("r", "a", "1", "1"))
        assert driver.claim() == []

    @pytest.mark.parametrize("status", ["running", "parked"])
    def test_a_run_that_is_under_way_or_parked_can_be_sent_to(
        self, driver: StoreDriver, status: str
    ) -> None:
        row = driver.held()
        if status == "parked":
            driver.settle(row, "parked")
        assert driver.one(Send("r", "a", "1", "1")) is None
        assert driver.row().status == status
        assert len(driver.store.messages(row.pk)) == 1

    @pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
    def test_a_run_that_has_ended_cannot_be_sent_to(self, driver: StoreDriver, status: str) -> None:
        row = driver.ended(status=status)
        assert driver.one(Send("r", "a", "1", "1")) == Refused(STATUS, status)
        assert driver.store.messages(row.pk) == []

    def test_an_unknown_run_cannot_be_sent_to(self, driver: StoreDriver) -> None:
        assert driver.one(Send("r", "a", "1", "1")) == Refused(UNKNOWN)

    def test_the_mailbox_outlives_the_lives_of_its_run(self, driver: StoreDriver) -> None:
        row = driver.held()
        driver.one(Send("r", "a", "1", "1"))
        driver.one(Release(row.pk, row.fence, "drain"))
        driver.one(Send("r", "a", "2", "2"))
        assert [m.value for m in driver.store.messages(driver.take().pk)] == ["1", "2"]
