"""Long journals are not read again for each page of a timeline."""

import pytest

from outlast.engine.budget_store import QUESTIONS
from outlast.errors.reasons import EXHAUSTED
from outlast.http.rest.history_cache import KEPT_ENTRIES_MIN, KEPT_MAX
from outlast.store.commands import Record, Send, Settle, UpdateSession
from support.store_writes import Writes

LONG = KEPT_ENTRIES_MIN + 20


@pytest.fixture
def reads(monkeypatch):
    """Return a function that notes how many entries of journals a store reads from then on."""

    def start(store):
        found, journal = [], store.journal

        def noted(run, after=0, limit=10_000):
            entries = journal(run, after, limit)
            found.append(len(entries))
            return entries

        monkeypatch.setattr(store, "journal", noted)
        return found

    return start


async def long_run(writes, id="r1"):
    row = await writes.held(id)
    records = [
        Record(
            row.pk, seq, row.fence, "step", f"s#{seq}", row.created + seq, value="1", seconds=1.0
        )
        for seq in range(1, LONG + 1)
    ]
    await writes.commit(*records)
    return row


async def page(api, id="r1", after=LONG - 5):
    answer = await api.olga.get(f"/v1/runs/{id}/timeline?after={after}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_only_what_was_added_to_a_long_journal_is_read(served, reads):
    async def scenario(api):
        writes = Writes(api.app)
        row = await long_run(writes)
        found = reads(writes.store)
        first = await page(api)
        assert sum(found) == LONG
        found.clear()
        assert (await page(api))["rows"] == first["rows"]
        assert sum(found) == 0
        await writes.entry(row, LONG + 1, "step", "new#1", value="2", seconds=1.0)
        latest = await page(api)
        assert sum(found) == 1
        assert [one["seq"] for one in latest["rows"]][-1] == LONG + 1
        assert latest["next"] is None

    served(scenario, worker=False)


def test_what_changes_beside_the_journal_is_shown_at_once(served):
    async def scenario(api):
        writes = Writes(api.app)
        row = await long_run(writes)
        assert (await page(api))["messages"] == []
        await writes.commit(Send("r1", "go", "m1", "true"))
        assert [one["name"] for one in (await page(api))["messages"]] == ["go"]
        await writes.commit(Settle(row.pk, row.fence, "done", value='"x"'))
        shown = await page(api)
        assert (shown["run"]["status"], shown["run"]["result"]) == ("done", "x")
        assert shown["executions"][-1]["status"] == "done"

    served(scenario, worker=False)


def test_question_that_was_answered_is_not_asked_again(served):
    async def scenario(api):
        writes = Writes(api.app)
        row = await long_run(writes)
        asked = UpdateSession("r1", "t1", {"global/b": "10 of 10 usd are spent"}, space=QUESTIONS)
        await writes.commit(asked, Settle(row.pk, row.fence, "parked", reason=EXHAUSTED))
        assert list((await page(api))["questions"]) == ["global/b"]
        await writes.commit(UpdateSession("r1", "t2", {"global/b": None}, space=QUESTIONS))
        assert (await page(api))["questions"] == {}

    served(scenario, worker=False)


def test_retry_makes_entries_void_that_were_read_before(served):
    async def scenario(api):
        writes = Writes(api.app)
        row = await long_run(writes)
        await page(api)
        failed = LONG - 2
        await writes.commit(Settle(row.pk, row.fence, "failed", error="{}", failed_at=failed))
        await page(api)
        answer = await api.olga.post("/v1/runs/r1/retry")
        assert answer.status_code == 200, answer.text
        shown = await page(api)
        void = [one["seq"] for one in shown["rows"] if one["void"]]
        assert void == list(range(failed, LONG + 1))

    served(scenario, worker=False)


def test_only_few_histories_are_kept(served, reads):
    async def scenario(api):
        writes = Writes(api.app)
        ids = [f"r{number}" for number in range(KEPT_MAX + 1)]
        for id in ids:
            await long_run(writes, id)
            await page(api, id)
        found = reads(writes.store)
        await page(api, ids[-1])
        assert sum(found) == 0
        await page(api, ids[0])
        assert sum(found) == LONG

    served(scenario, worker=False)
