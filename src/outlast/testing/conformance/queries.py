"""runs: which runs there are."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.store.rows import DELAYED, RunQuery
from outlast.store.verbs import Release
from outlast.testing.conformance.harness import Desk, Promises


class QueryPromises(Promises):
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
            ({"limit": 2}, ["parked", "done"]),
            ({"workflow": "' OR 1=1 --"}, []),
        ],
    )
    def test_runs_are_found_by_what_is_asked_newest_first(
        self, desk: Desk, query: dict[str, Any], found: list[str]
    ) -> None:
        desk.submit("mail", queue="post", workflow="send")
        desk.submit("child", queue="post", parent="running")
        desk.held("running")
        desk.ended("done")
        desk.ended("parked", status="parked")
        assert [row.id for row in desk.store.runs(RunQuery(**query))] == found

    def test_delayed_runs_are_found_among_the_queued(self, desk: Desk) -> None:
        desk.submit("ready")
        desk.submit("delayed", delay=10.0)
        desk.held("running")
        desk.wait(desk.held("asleep"), due=desk.clock.now + 10.0)

        def found(*statuses: str) -> list[str]:
            return [row.id for row in desk.store.runs(RunQuery(statuses=statuses))]

        assert found(DELAYED) == ["delayed"]
        assert found("queued") == ["delayed", "ready"]
        assert found("running", DELAYED) == ["running", "delayed"]
        assert found("queued", DELAYED) == ["delayed", "ready"]
        desk.clock.forward(10)
        assert found(DELAYED) == []

    def test_runs_are_found_by_when_they_were_created(self, desk: Desk) -> None:
        start = desk.clock.now
        for number in range(4):
            desk.submit(f"r{number}")
            desk.clock.forward(10)
        query = RunQuery(created_after=start + 10, created_before=start + 30)
        assert [row.id for row in desk.store.runs(query)] == ["r2", "r1"]

    def test_runs_are_found_by_when_they_ended(self, desk: Desk) -> None:
        """Whenever they were created; and none that has not."""
        rows = [desk.held(f"r{number}") for number in range(4)]
        for row in reversed(rows[1:]):
            desk.clock.forward(10)
            desk.settle(row, "parked" if row.id == "r2" else "done")
        at = desk.row("r3").ended
        assert at is not None
        found = {
            start: [row.id for row in desk.store.runs(RunQuery(ended_after=start))]
            for start in (at, at + 1, at + 21)
        }
        assert found == {at: ["r3", "r1"], at + 1: ["r1"], at + 21: []}
        assert [
            row.id for row in desk.store.runs(RunQuery(ended_after=at, limit=1, before_pk=rows[3].pk))
        ] == ["r1"]

    def test_runs_are_read_in_pages(self, desk: Desk) -> None:
        for number in range(7):
            desk.submit(f"r{number}")
        pages: list[list[str]] = []
        before: int | None = None
        while page := desk.store.runs(RunQuery(limit=3, before_pk=before)):
            pages.append([row.id for row in page])
            before = page[-1].pk
        assert pages == [["r6", "r5", "r4"], ["r3", "r2", "r1"], ["r0"]]

    def test_what_is_listed_is_what_is_read_one_by_one(self, desk: Desk) -> None:
        row = desk.held("a")
        desk.one(Release(row.pk, row.fence, "drain"))
        desk.ended("b", status="failed")
        for listed in desk.store.runs(RunQuery()):
            assert listed == desk.row(listed.id)
