"""Check runs: which runs a query finds."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.store.commands import Cancel, Release, SetWaiting
from outlast.store.rows import DELAYED, EndCount, RunQuery
from outlast.testing.conformance.harness import Contract, StoreDriver


class QueryContract(Contract):
    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ({}, ["parked", "done", "running", "child", "mail"]),
            ({"statuses": ("done",)}, ["done"]),
            ({"statuses": ("parked", "running")}, ["parked", "running"]),
            ({"statuses": ("dead",)}, []),
            ({"workflow": "send"}, ["mail"]),
            ({"queue": "post"}, ["child", "mail"]),
            ({"parent": "running"}, ["child"]),
            ({"queue": "post", "workflow": "flow"}, ["child"]),
            ({"key": "ann"}, ["done", "mail"]),
            ({"key": "ann", "queue": "post"}, ["mail"]),
            ({"key": "ann", "prefix": "d"}, ["done"]),
            ({"key": "ann", "limit": 1}, ["done"]),
            ({"key": "an"}, []),
            ({"key": ""}, []),
            ({"prefix": "r"}, ["running"]),
            ({"prefix": "running"}, ["running"]),
            ({"prefix": "running-2"}, []),
            ({"prefix": "un"}, []),
            ({"prefix": "D"}, []),
            ({"prefix": "%"}, []),
            ({"prefix": ""}, ["parked", "done", "running", "child", "mail"]),
            ({"prefix": "m", "queue": "post"}, ["mail"]),
            ({"prefix": "m", "queue": "default"}, []),
            ({"limit": 2}, ["parked", "done"]),
            ({"workflow": "' OR 1=1 --"}, []),
            ({"worker": "w1"}, ["running"]),
            ({"worker": "w2"}, []),
        ],
    )
    def test_runs_are_found_by_what_is_asked_newest_first(
        self, driver: StoreDriver, query: dict[str, Any], found: list[str]
    ) -> None:
        driver.submit("mail", queue="post", workflow="send", key="ann")
        driver.submit("child", queue="post", parent="running")
        driver.held("running")
        driver.submit("done", key="ann")
        driver.settle(driver.take("done"))
        driver.ended("parked", status="parked")
        assert [row.id for row in driver.store.runs(RunQuery(**query))] == found

    def test_delayed_runs_are_found_among_the_queued(self, driver: StoreDriver) -> None:
        driver.submit("ready")
        driver.submit("delayed", delay=10.0)
        driver.held("running")
        driver.wait(driver.held("asleep"), due=driver.clock.now + 10.0)

        def found(*statuses: str) -> list[str]:
            return [row.id for row in driver.store.runs(RunQuery(statuses=statuses))]

        assert found(DELAYED) == ["delayed"]
        assert found("queued") == ["delayed", "ready"]
        assert found("running", DELAYED) == ["running", "delayed"]
        assert found("queued", DELAYED) == ["delayed", "ready"]
        driver.clock.forward(10)
        assert found(DELAYED) == []

    def test_runs_are_found_by_when_they_were_created(self, driver: StoreDriver) -> None:
        start = driver.clock.now
        for number in range(4):
            driver.submit(f"r{number}")
            driver.clock.forward(10)
        query = RunQuery(created_after=start + 10, created_before=start + 30)
        assert [row.id for row in driver.store.runs(query)] == ["r2", "r1"]

    def test_runs_are_found_by_when_they_ended(self, driver: StoreDriver) -> None:
        """Creation time does not matter, and runs that have not ended are never found."""
        rows = [driver.held(f"r{number}") for number in range(4)]
        for row in reversed(rows[1:]):
            driver.clock.forward(10)
            driver.settle(row, "parked" if row.id == "r2" else "done")
        at = driver.row("r3").ended
        assert at is not None
        found = {
            start: [row.id for row in driver.store.runs(RunQuery(ended_after=start))]
            for start in (at, at + 1, at + 21)
        }
        assert found == {at: ["r3", "r1"], at + 1: ["r1"], at + 21: []}
        assert [
            row.id
            for row in driver.store.runs(RunQuery(ended_after=at, limit=1, before_pk=rows[3].pk))
        ] == ["r1"]

    def test_runs_that_wait_for_a_message_are_found(self, driver: StoreDriver) -> None:
        driver.submit("queued")
        driver.wait(driver.held("asleep"), due=driver.clock.now + 10.0)
        driver.wait(driver.held("asks"), waits=("answer", "stop"))
        asked = driver.held("asked")
        driver.wait(asked, waits=("answer",))
        driver.one(Cancel("asked", "x"))
        driver.settle(driver.take("asked"), "cancelled")
        row = driver.held("listens")
        driver.one(SetWaiting(row.pk, row.fence, ("answer",)))

        def found(**query: Any) -> list[str]:
            return [row.id for row in driver.store.runs(RunQuery(**query))]

        assert found(awaits_message=True) == ["listens", "asks"]
        assert found(awaits_message=True, statuses=("waiting",)) == ["asks"]
        assert found(awaits_message=True, limit=1) == ["listens"]
        assert found(awaits_message=False) == ["asked", "asleep", "queued"]
        assert found(waiting_for="stop") == ["asks"]

    def test_latest_ends_are_counted_by_status(self, driver: StoreDriver) -> None:
        assert driver.store.ends(0.0, 10) == []
        driver.ended("before")
        driver.clock.forward(5)
        start = driver.clock.now
        died = driver.held("died")
        driver.one(Release(died.pk, died.fence, "drain"))
        driver.settle(driver.take("died"), "done")
        driver.clock.forward(10)
        driver.ended("f1", status="failed")
        driver.ended("parked", status="parked")
        driver.clock.forward(10)
        driver.ended("d2")
        driver.submit("queued")
        done, failed = driver.store.ends(start, 10)
        assert done == EndCount("done", 2, 0, 1, start)
        assert failed == EndCount("failed", 1, 0, 0, start + 10)
        latest, failed = driver.store.ends(start, 2)
        assert (latest.runs, latest.first, failed.runs) == (1, start + 20, 1)
        assert driver.store.ends(start + 21, 10) == []

    def test_runs_are_read_in_pages(self, driver: StoreDriver) -> None:
        for number in range(7):
            driver.submit(f"r{number}")
        pages: list[list[str]] = []
        before: int | None = None
        while page := driver.store.runs(RunQuery(limit=3, before_pk=before)):
            pages.append([row.id for row in page])
            before = page[-1].pk
        assert pages == [["r6", "r5", "r4"], ["r3", "r2", "r1"], ["r0"]]

    def test_a_limit_counts_only_the_runs_that_a_filter_finds(self, driver: StoreDriver) -> None:
        for number in range(7):
            driver.submit(f"{'a' if number % 2 else 'b'}{number}", queue=f"q{number % 3}")

        def found(**query: Any) -> list[str]:
            return [row.id for row in driver.store.runs(RunQuery(**query))]

        assert found(prefix="a", limit=2) == ["a5", "a3"]
        assert found(queue="q0", limit=2) == ["b6", "a3"]
        assert found(prefix="a", before_pk=driver.row("a3").pk) == ["a1"]

    def test_what_is_listed_is_what_is_read_one_by_one(self, driver: StoreDriver) -> None:
        row = driver.held("a")
        driver.one(Release(row.pk, row.fence, "drain"))
        driver.ended("b", status="failed")
        for listed in driver.store.runs(RunQuery()):
            assert listed == driver.row(listed.id)
