"""Send and messages: the mailbox."""

from __future__ import annotations

import pytest

from outlast.store.rows import Message
from outlast.store.verbs import DEPTH, STATUS, UNKNOWN, Refused, Release, Send
from outlast.testing.conformance.harness import Desk, Promises


class MailPromises(Promises):
    def test_messages_are_numbered_from_one_in_the_order_they_were_sent(self, desk: Desk) -> None:
        row = desk.submit()
        desk.one(Send("r", "a", "1", '"x"'))
        desk.clock.forward(1)
        assert desk.commit(Send("r", "b", "1", '"y"'), Send("r", "a", "2", '"z"')) == [None, None]
        now = desk.clock.now
        assert desk.store.messages(row.pk) == [
            Message(1, "a", "1", '"x"', now - 1),
            Message(2, "b", "1", '"y"', now),
            Message(3, "a", "2", '"z"', now),
        ]
        assert [m.number for m in desk.store.messages(row.pk, after=1)] == [2, 3]
        assert desk.store.messages(row.pk, after=3) == []

    def test_the_same_name_and_id_again_is_not_written(self, desk: Desk) -> None:
        row = desk.submit()
        assert desk.commit(Send("r", "a", "1", "1"), Send("r", "a", "1", "2")) == [None, None]
        assert desk.one(Send("r", "a", "1", "3")) is None
        desk.one(Send("r", "a", "2", "4"))
        assert [(m.number, m.id, m.value) for m in desk.store.messages(row.pk)] == [
            (1, "1", "1"),
            (2, "2", "4"),
        ]

    def test_a_mailbox_has_a_limit_and_a_repeat_is_no_other_message(self, desk: Desk) -> None:
        row = desk.submit()
        sent = desk.commit(*(Send("r", "a", str(n), str(n), 2) for n in (1, 2, 3, 2)))
        assert sent == [None, None, Refused(DEPTH, "2"), None]
        assert desk.one(Send("r", "b", "1", "4", 2)) == Refused(DEPTH, "2")
        assert desk.one(Send("r", "b", "1", "4", 3)) is None
        assert desk.one(Send("r", "b", "1", "4", 0)) is None
        assert [m.value for m in desk.store.messages(row.pk)] == ["1", "2", "4"]

    def test_a_message_beyond_the_limit_wakes_nobody(self, desk: Desk) -> None:
        row = desk.held()
        assert desk.one(Release(row.pk, row.fence, "waits", waiting=True, waits=("a",))) == "waiting"
        assert desk.one(Send("r", "a", "1", "1", 0)) == Refused(DEPTH, "0")
        assert desk.claim() == []

    def test_each_run_has_a_mailbox_of_its_own(self, desk: Desk) -> None:
        one, two = desk.submit("one"), desk.submit("two")
        desk.commit(Send("one", "a", "1", "1"), Send("two", "a", "1", "2"))
        assert [m.value for m in desk.store.messages(one.pk)] == ["1"]
        assert [(m.number, m.value) for m in desk.store.messages(two.pk)] == [(1, "2")]

    def test_a_message_does_not_hurry_a_run_that_is_queued_for_later(self, desk: Desk) -> None:
        desk.submit(delay=100.0)
        desk.one(Send("r", "a", "1", "1"))
        assert desk.claim() == []

    @pytest.mark.parametrize("status", ["running", "parked"])
    def test_a_run_that_is_under_way_or_parked_can_be_sent_to(self, desk: Desk, status: str) -> None:
        row = desk.held()
        if status == "parked":
            desk.settle(row, "parked")
        assert desk.one(Send("r", "a", "1", "1")) is None
        assert desk.row().status == status
        assert len(desk.store.messages(row.pk)) == 1

    @pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
    def test_a_run_that_has_ended_cannot_be_sent_to(self, desk: Desk, status: str) -> None:
        row = desk.ended(status=status)
        assert desk.one(Send("r", "a", "1", "1")) == Refused(STATUS, status)
        assert desk.store.messages(row.pk) == []

    def test_an_unknown_run_cannot_be_sent_to(self, desk: Desk) -> None:
        assert desk.one(Send("r", "a", "1", "1")) == Refused(UNKNOWN)

    def test_the_mailbox_outlives_the_lives_of_its_run(self, desk: Desk) -> None:
        row = desk.held()
        desk.one(Send("r", "a", "1", "1"))
        desk.one(Release(row.pk, row.fence, "drain"))
        desk.one(Send("r", "a", "2", "2"))
        assert [m.value for m in desk.store.messages(desk.take().pk)] == ["1", "2"]
