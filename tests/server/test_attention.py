"""What needs a person, as the HTTP API answers it."""

from outlast.http.rest import attention
from outlast.store.commands import Release, Settle
from support.store_writes import Writes


def test_lists_say_since_when_and_whether_there_are_more(served):
    async def scenario(api):
        writes = Writes(api.app)
        rows = [await writes.held(f"r{number}") for number in range(4)]
        for row in rows[:3]:
            await writes.commit(Settle(row.pk, row.fence, "parked", reason="x"))
        await writes.commit(
            Release(rows[3].pk, rows[3].fence, "waits", waiting=True, waits=("go",))
        )
        found = (await api.olga.get("/v1/attention?limit=2")).json()
        assert [one["id"] for one in found["parked"]["runs"]] == ["r2", "r1"]
        assert found["parked"]["more"] is True
        assert [one["undecided"] for one in found["parked"]["runs"]] == [0, 0]
        (asking,) = found["answers"]["runs"]
        assert (asking["id"], asking["waiting_for"]) == ("r3", ["go"])
        assert asking["since"] > asking["created"]
        assert found["stuck"] == found["dead"] == {"runs": [], "more": False}

    served(scenario, worker=False)


def test_ends_of_the_last_hour_are_counted_and_cut(served, monkeypatch):
    async def scenario(api):
        writes = Writes(api.app)
        for number, status in enumerate(("done", "done", "failed", "dead")):
            row = await writes.held(f"r{number}")
            await writes.commit(Settle(row.pk, row.fence, status))
        hour = (await api.olga.get("/v1/attention")).json()["last_hour"]
        assert hour["ended"] == {"dead": 1, "done": 2, "failed": 1}
        assert (hour["is_cut"], hour["per_minute"]) == (False, round(4 / 60, 3))
        monkeypatch.setattr(attention, "ENDS_MAX", 2)
        hour = (await api.olga.get("/v1/attention")).json()["last_hour"]
        assert (hour["ended"], hour["is_cut"]) == ({"dead": 1, "failed": 1}, True)

    served(scenario, worker=False)
