"""`GET /v1/runs/{id}/timeline` has what `outlast show` prints."""

import asyncio
import json

import pytest
from server_tools import gates

from outlast.cli.timeline import timeline_lines
from outlast.engine.journal_view import History
from outlast.http.rest import history_cache, journals
from outlast.store.commands import (
    Claim,
    RegisterWorker,
    Release,
    Retry,
    Send,
    Settle,
    SetWaiting,
    Sweep,
)
from outlast.store.fleet import Fleet
from support.store_writes import Writes
from support.waiting import wait_until_async

ERROR = json.dumps({"type": "builtins:ValueError", "message": "no ink", "args": []})


async def timeline(client, id, query=""):
    answer = await client.get(f"/v1/runs/{id}/timeline{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def lived_through_everything(writes):
    """A run that was retried by a person, died, and waits for four things."""
    row = await writes.held("r1", "first", by="sam")
    await writes.entry(row, 1, "step", "research#1", value='"notes"', seconds=0.25, attempt=1)
    await writes.commit(Settle(row.pk, row.fence, "failed", error=ERROR, failed_at=2))
    await writes.commit(Retry("r1", "t1", by="olga"))
    await writes.commit(RegisterWorker("second", "some-host", 4243, 0.0, ("default",), (), 4))
    claim = Claim("second", "c1", (), ("default",), ("report",))
    (row,) = (await writes.commit(claim))[0]
    await writes.commit(Sweep())
    worker = RegisterWorker("third", "some-host", 4244, 1e6, ("default",), ("report",), 4)
    await writes.commit(worker)
    writes.store.acquire_liveness("third")
    claim = Claim("third", "c2", (), ("default",), ("report",))
    (row,) = (await writes.commit(claim))[0]
    seq = writes.store.last_seq(row.pk)
    again = str(row.created + 60)
    await writes.entry(row, seq + 1, "attempt", "write#1", attempt=1, error=ERROR, value=again)
    await writes.commit(Send("r1", "note", "m1", '"ink"', by="sam"))
    await writes.entry(row, seq + 2, "message", "note", value="1")
    await writes.held("r1/write#2", "living", parent="r1")
    await writes.commit(SetWaiting(row.pk, row.fence, ("approval",)))
    return row


def test_timeline_says_what_show_prints(served):
    async def scenario(api):
        writes = Writes(api.app)
        row = await lived_through_everything(writes)
        found = await timeline(api.olga, "r1")
        whole = (await api.olga.get("/v1/runs/r1")).json()
        for name in ("cost", "effects", "undecided", "executions", "messages"):
            assert found[name] == whole[name]
        assert found["run"]["args"] == {"topic": "ink"}
        assert [
            {name: row[name] for name in whole["journal"][0]} for row in found["rows"]
        ] == whole["journal"]
        history, fleet = History.of(writes.store, writes.store.run("r1")), Fleet.of(writes.store)
        printed = [line.plain for line in timeline_lines(history, fleet, store=None, full=False)]
        for one in found["rows"]:
            assert any(one["words"] in line for line in printed), one
        assert [one["kind"] for one in found["rows"]] == [
            *("step", "retry", "death", "attempt", "message")
        ]
        assert [one["worker"] for one in found["rows"]] == ["first", None, None, "third", "third"]
        assert [one["by"] for one in found["rows"]] == [None, "olga", None, None, None]
        assert found["rows"][0]["started"] < found["rows"][0]["at"]
        assert found["next"] is None
        assert found["now"] > found["run"]["created"]
        assert (found["holder"]["id"], found["holder"]["state"]) == ("third", "alive")
        assert found["has_worker"] is True
        (died,) = found["incidents"]
        assert (died["kind"], died["lost"], died["next"]) == ("death", "second", "third")
        assert [(wait["kind"], wait["name"]) for wait in found["waits"]] == [
            *(("message", "approval"), ("retry", "write#1"), ("child", "r1/write#2"))
        ]
        assert found["waits"][1]["until"] is not None
        (child,) = found["children"]
        assert (child["id"], child["key"], child["ended"]) == ("r1/write#2", "write#2", None)
        assert row.id == "r1"

    served(scenario, worker=False)


def test_waiting_run_says_when_its_timer_fires(served):
    async def scenario(api):
        writes = Writes(api.app)
        row = await writes.held("r1")
        due = row.created + 3600
        release = Release(row.pk, row.fence, "it sleeps", waiting=True, interrupted=False, due=due)
        await writes.commit(release)
        (wait,) = (await timeline(api.olga, "r1"))["waits"]
        assert (wait["kind"], wait["until"]) == ("timer", (await _run(api))["due"])

    async def _run(api):
        return (await api.olga.get("/v1/runs/r1")).json()["run"]

    served(scenario, worker=False)


def test_timeline_is_read_page_by_page(served):
    async def scenario(api):
        await lived_through_everything(Writes(api.app))
        whole, rows, query = await timeline(api.olga, "r1"), [], "?limit=2"
        while True:
            page = await timeline(api.olga, "r1", query)
            assert {**page, "rows": [], "next": 0, "now": 0, "holder": 0} == {
                **whole, "rows": [], "next": 0, "now": 0, "holder": 0
            }  # fmt: skip
            rows += page["rows"]
            if page["next"] is None:
                break
            query = f"?limit=2&after={page['next']}"
        assert rows == whole["rows"]
        beyond = await timeline(api.olga, "r1", "?after=100")
        assert (beyond["rows"], beyond["next"]) == ([], None)

    served(scenario, worker=False)


@pytest.mark.parametrize("name", ["timeline", "journal"])
def test_page_of_large_values_ends_early(served, name, monkeypatch):
    monkeypatch.setattr(journals, "PAGE_SIZE_MAX", 1_000)
    monkeypatch.setattr(history_cache, "SMALL", 10)
    list_of = {"timeline": "rows", "journal": "entries"}[name]

    async def scenario(api):
        writes = Writes(api.app)
        row = await writes.held("r1")
        sizes = [300, 300, 300, 5_000, 300, 300]
        for seq, size in enumerate(sizes, 1):
            await writes.entry(row, seq, "step", f"s#{seq}", value=json.dumps("x" * size))
        found, after = [], 0
        while after is not None:
            page = (await api.olga.get(f"/v1/runs/r1/{name}?after={after}")).json()
            found.append([one["seq"] for one in page[list_of]])
            after = page["next"]
        assert found == [[1, 2, 3], [4], [5, 6]]

    served(scenario, worker=False)


def test_journal_beyond_what_one_request_may_read_is_refused_and_its_pages_are_not(
    served, monkeypatch
):
    monkeypatch.setattr(history_cache, "JOURNAL_SIZE_MAX", 10_000)

    async def scenario(api):
        writes = Writes(api.app)
        row = await writes.held("r1")
        for seq in (1, 2, 3):
            await writes.entry(row, seq, "step", f"s#{seq}", value=json.dumps("x" * 4_000))
        for path in ("/v1/runs/r1", "/v1/runs/r1/timeline"):
            answer = await api.olga.get(path)
            assert answer.status_code == 413, answer.text
            assert "/v1/runs/{id}/journal" in answer.json()["next"]
        page = (await api.olga.get("/v1/runs/r1/journal")).json()
        assert [one["seq"] for one in page["entries"]] == [1, 2, 3]
        assert (await api.olga.get("/v1/runs/r1?brief=true")).status_code == 200

    served(scenario, worker=False)


def test_words_of_any_recorded_value_are_short_and_printable(served):
    async def scenario(api):
        writes = Writes(api.app)
        row = await writes.held("r1")
        await writes.entry(row, 1, "step", "s#1", value=json.dumps("x" * 50_000))
        await writes.entry(row, 2, "step", "s#2", value="\x1b[31m not JSON")
        await writes.entry(row, 3, "death", "s#3", value='{"why": "\\u001b[31m"}')
        for one in (await timeline(api.olga, "r1"))["rows"]:
            assert one["words"].isprintable()
            assert len(one["words"]) < 250

    served(scenario, worker=False)


def test_masked_role_reads_no_values_in_words(served):
    async def scenario(api):
        await lived_through_everything(Writes(api.app))
        answer = await api.vera.get("/v1/runs/r1/timeline")
        assert "notes" not in answer.text
        assert '"ink"' not in answer.text
        assert "no ink" not in answer.text
        words = {one["kind"]: one["words"] for one in answer.json()["rows"]}
        hidden = {"masked": True}
        assert (words["step"], words["attempt"], words["message"]) == (hidden, hidden, hidden)
        assert "second" in words["death"]
        assert "olga" in words["retry"]

    served(scenario, worker=False, masked_roles="viewer")


def test_submitter_sees_nothing_of_what_else_its_worker_holds(served):
    async def scenario(api):
        await lived_through_everything(Writes(api.app))
        holder = (await timeline(api.sam, "r1"))["holder"]
        assert (holder["id"], holder["host"]) == ("third", "some-host")
        assert (holder["queues"], holder["workflows"]) == ([], [])
        assert (holder["held"], holder["concurrency"]) == (None, None)
        whole = (await timeline(api.olga, "r1"))["holder"]
        assert (whole["queues"], whole["held"]) == (["default"], 1)

    served(scenario, worker=False)


def test_steps_that_execute_are_shown_until_they_end(served):
    gates["g"] = asyncio.Event()

    async def scenario(api):
        await api.sam.post("/v1/runs", json={"workflow": "gated", "args": ["g"], "id": "r"})

        async def executing():
            return (await api.sam.get("/v1/runs/r/timeline")).json()["executing"]

        (step,) = await wait_until_async(executing)
        started = step.pop("started")
        assert step == {"key": "pass_gate#1", "name": "pass_gate", "kind": "step", "attempt": 1}
        gates["g"].set()
        await api.done("r")
        shown = (await api.sam.get("/v1/runs/r/timeline")).json()
        assert shown["executing"] == []
        assert started < shown["rows"][-1]["at"]

    served(scenario)
