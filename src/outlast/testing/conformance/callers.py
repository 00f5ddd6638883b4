"""Check `by`: who submitted a run, sent a message or asked something of a run."""

from __future__ import annotations

import json

from outlast.store.commands import Decide, Resume, Retry, Send, Submit, SubmitMany
from outlast.store.rows import RunQuery, RunRow
from outlast.testing.conformance.harness import Contract, StoreDriver

WHO = "ann ü\n'"


class CallerContract(Contract):
    def test_who_submitted_a_run_is_kept_with_it(self, driver: StoreDriver) -> None:
        assert driver.submit("queued", by=WHO).by == WHO
        assert driver.held("held", by="bob").by == "bob"
        driver.one(SubmitMany((Submit("many", "flow", "[]", "t", "s", by="cy"),)))
        assert driver.row("many").by == "cy"
        assert driver.submit("nobody").by is None

    def test_a_claimed_run_says_who_submitted_it(self, driver: StoreDriver) -> None:
        driver.submit("one", by=WHO)
        driver.submit("two")
        assert {row.id: row.by for row in driver.claim(limit=2)} == {"one": WHO, "two": None}

    def test_a_repeated_submission_does_not_change_who_submitted(self, driver: StoreDriver) -> None:
        driver.submit("r", by="ann")
        again = driver.one(Submit("r", "flow", "[]", "other", "s", by="bob"))
        assert (again.row.by, driver.row().by) == ("ann", "ann")

    def test_who_submitted_it_stays_when_a_run_ends_and_is_retried(
        self, driver: StoreDriver
    ) -> None:
        row = driver.ended("r", "failed", by="ann")
        driver.one(Retry(row.id, "t", by="bob"))
        assert driver.row().by == "ann"

    def test_runs_are_found_by_who_submitted_them(self, driver: StoreDriver) -> None:
        for id, by in (("a", "ann"), ("b", "bob"), ("c", None), ("d", "ann")):
            driver.submit(id, by=by)

        def found(query: RunQuery) -> list[str]:
            return [row.id for row in driver.store.runs(query)]

        assert found(RunQuery(by="ann")) == ["d", "a"]
        assert found(RunQuery(by="ann", prefix="a")) == ["a"]
        assert found(RunQuery(by="ann", limit=1, before_pk=driver.row("d").pk)) == ["a"]
        assert found(RunQuery(by="cy")) == []

    def test_who_sent_a_message_is_kept_with_it_and_a_repeat_does_not_change_it(
        self, driver: StoreDriver
    ) -> None:
        row = driver.submit()
        driver.commit(
            Send("r", "a", "1", "1", by=WHO),
            Send("r", "a", "1", "1", by="bob"),
            Send("r", "a", "2", "2", 10, "cy"),
            Send("r", "a", "3", "3"),
        )
        assert [message.by for message in driver.store.messages(row.pk)] == [WHO, "cy", None]

    def test_who_retried_and_resumed_a_run_is_in_its_journal(self, driver: StoreDriver) -> None:
        failed, parked = driver.ended("f", "failed"), driver.ended("p", "parked")
        driver.commit(Retry("f", "t", by=WHO), Resume("p", "t", by=WHO))
        assert self._values(driver, failed) == [WHO]
        assert self._values(driver, parked) == [WHO]

    def test_a_request_without_a_caller_says_nothing_about_one(self, driver: StoreDriver) -> None:
        failed, parked = driver.ended("f", "failed"), driver.ended("p", "parked")
        driver.commit(Retry("f", "t"), Resume("p", "t"))
        assert self._values(driver, failed) == self._values(driver, parked) == [None]

    def test_a_repeated_request_of_another_caller_is_not_recorded(
        self, driver: StoreDriver
    ) -> None:
        row = driver.ended("f", "failed")
        driver.commit(Retry("f", "t", by="ann"), Retry("f", "t", by="bob"))
        assert self._values(driver, row) == ["ann"]

    def test_who_decided_is_in_the_decision(self, driver: StoreDriver) -> None:
        row = driver.ended("p", "parked")
        seen = driver.store.last_seq(row.pk)
        driver.one(Decide("p", "pay#1", json.dumps({"what": "did_not", "by": WHO}), seen, "t"))
        assert self._values(driver, row) == [WHO]

    def _values(self, driver: StoreDriver, row: RunRow) -> list[str | None]:
        """Return `by` of each entry that a request has left."""
        entries = driver.store.journal(row.pk)
        return [
            json.loads(entry.value or "{}").get("by")
            for entry in entries
            if entry.kind in ("retry", "resume", "decision")
        ]
