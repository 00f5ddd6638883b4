"""Set schedules and act on them over HTTP."""

from server_tools import doubling

from outlast.engine.schedule_actions import TRIGGERS
from outlast.engine.schedule_rows import SCHEDULES, firing_id
from outlast.store.commands import UpdateSession
from outlast.store.session_rows import SessionQuery

NIGHTLY = {"workflow": "doubling", "args": [4], "cron": "0 2 * * *", "tz": "Europe/Berlin"}


async def set_nightly(api, **changes):
    answer = await api.olga.put("/v1/schedules/nightly", json={**NIGHTLY, **changes})
    assert answer.status_code == 200, answer.text
    return answer.json()["schedule"]


def test_schedule_is_set_listed_paused_resumed_and_deleted(served):
    async def scenario(api):
        schedule = await set_nightly(api, overlap="queue", jitter=5)
        assert (schedule["workflow"], schedule["args"]["number"]) == ("doubling", 4)
        assert (schedule["overlap"], schedule["jitter"], schedule["by"]) == ("queue", 5, "olga")
        listed = (await api.vera.get("/v1/schedules?upcoming=3")).json()
        assert listed["damaged"] == []
        (found,) = listed["schedules"]
        times = found["upcoming"]
        assert len(times) == 3
        assert times == sorted(set(times))
        assert times[0] == found["next"]
        paused = await api.olga.post("/v1/schedules/nightly/pause")
        assert (paused.json()["schedule"]["paused"], paused.json()["schedule"]["next"]) == (
            True,
            None,
        )
        shown = (await api.vera.get("/v1/schedules/nightly?upcoming=3")).json()["schedule"]
        assert (shown["paused"], shown["upcoming"]) == (True, [])
        resumed = await api.olga.post("/v1/schedules/nightly/resume")
        assert resumed.json()["schedule"]["next"] is not None
        assert (await api.olga.delete("/v1/schedules/nightly")).json() == {"deleted": "nightly"}
        assert (await api.vera.get("/v1/schedules")).json()["schedules"] == []

    served(scenario, worker=False)


def test_schedule_names_who_set_paused_or_resumed_it_last(served):
    async def scenario(api):
        await api.app.schedule("nightly", doubling(1), cron="0 2 * * *", by="deploy")
        by = (await api.vera.get("/v1/schedules/nightly")).json()["schedule"]["by"]
        assert by == "deploy"
        paused = await api.olga.post("/v1/schedules/nightly/pause")
        assert paused.json()["schedule"]["by"] == "olga"
        (info,) = await api.app.schedules()
        assert info.by == "olga"

    served(scenario, worker=False)


def test_triggered_run_has_its_caller_and_a_repeat_submits_no_other(served):
    async def scenario(api):
        await set_nightly(api)
        headers = {"idempotency-key": "k"}
        path = "/v1/schedules/nightly/trigger"
        first = await api.olga.post(path, headers=headers)
        assert first.status_code == 201, first.text
        id = first.json()["run"]
        assert (await api.done(id))["result"] == 8
        assert (await api.olga.post(path, headers=headers)).json()["run"] == id
        other = (await api.olga.post(path, headers={"idempotency-key": "l"})).json()["run"]
        assert other != id
        runs = (await api.vera.get("/v1/runs?prefix=nightly@")).json()["runs"]
        assert [(run["id"], run["by"]) for run in runs] == [(other, "olga"), (id, "olga")]

    served(scenario)


def test_trigger_that_submitted_nothing_submits_its_run_when_it_is_repeated(served):
    async def scenario(api):
        await set_nightly(api, queue="narrow")
        await api.olga.put("/v1/queues/narrow/limits", json={"depth": 1})
        body = {"workflow": "doubling", "args": [1], "queue": "narrow", "id": "r"}
        await api.olga.post("/v1/runs", json=body)
        path, headers = "/v1/schedules/nightly/trigger", {"idempotency-key": "k"}
        refused = await api.olga.post(path, headers=headers)
        assert (refused.status_code, refused.json()["error"]) == (429, "Backpressure")
        (known,) = api.app._open.store.sessions(SessionQuery(TRIGGERS, values=True))
        await api.olga.post("/v1/runs/r/cancel")
        repeated = await api.olga.post(path, headers=headers)
        assert repeated.json() == {"run": firing_id("nightly", float(known.fields["time"]))}

    served(scenario, worker=False)


def test_backfill_submits_the_runs_of_a_range_once(served):
    async def scenario(api):
        await set_nightly(api, tz="UTC")
        body = {"start": "2026-11-01T00:00:00Z", "end": "2026-11-04T01:00:00+00:00"}
        ids = [f"nightly@2026-11-0{day}T02:00:00Z" for day in (1, 2, 3)]
        for _ in range(2):
            answer = await api.olga.post("/v1/schedules/nightly/backfill", json=body)
            assert answer.json() == {"runs": ids}
        runs = (await api.vera.get("/v1/runs")).json()["runs"]
        assert sorted(run["id"] for run in runs) == ids
        assert {run["by"] for run in runs} == {"olga"}

    served(scenario, worker=False)


def test_wrong_schedules_are_refused_before_anything_is_written(served):
    async def scenario(api):
        for change in (
            {"cron": "nonsense"},
            {"cron": "* * * * MON#2/2"},
            {"cron": None},
            {"every": 60},
            {"cron": None, "every": 0.5},
            {"cron": None, "every": 1e300},
            {"tz": "Atlantis"},
            {"overlap": "sometimes"},
            {"catch_up": 0},
            {"workflow": "nothing"},
            {"args": ["four"]},
            {"at": "noon"},
        ):
            answer = await api.olga.put("/v1/schedules/nightly", json={**NIGHTLY, **change})
            assert answer.status_code == 422, (change, answer.text)
        assert (await api.vera.get("/v1/schedules")).json()["schedules"] == []

    served(scenario, worker=False)


def test_actions_on_an_unknown_schedule_name_the_error(served):
    async def scenario(api):
        times = {"start": "2026-11-01T00:00:00Z", "end": "2026-11-02T00:00:00Z"}
        for method, rest, body in (
            ("GET", "", None),
            ("POST", "/pause", None),
            ("POST", "/resume", None),
            ("POST", "/trigger", None),
            ("POST", "/backfill", times),
            ("DELETE", "", None),
        ):
            answer = await api.olga.request(method, f"/v1/schedules/no{rest}", json=body)
            assert (answer.status_code, answer.json()["error"]) == (404, "UnknownSchedule")
        for start in ("2026-11-01", "soon", 7, "0001-01-01T00:00:00Z"):
            body = {**times, "start": start}
            answer = await api.olga.post("/v1/schedules/no/backfill", json=body)
            assert answer.status_code == 422, answer.text

    served(scenario, worker=False)


def test_damaged_schedule_hides_no_other(served):
    async def scenario(api):
        await set_nightly(api)
        damaged = UpdateSession("bad", "token", {"definition": "{"}, space=SCHEDULES)
        await api.app._open.writer.execute(damaged)
        answer = (await api.vera.get("/v1/schedules")).json()
        assert [one["name"] for one in answer["schedules"]] == ["nightly"]
        assert ["'bad'" in text for text in answer["damaged"]] == [True]
        assert (await api.olga.delete("/v1/schedules/bad")).status_code == 200

    served(scenario, worker=False)


def test_masked_role_sees_no_arguments_of_schedules(served):
    async def scenario(api):
        await set_nightly(api, kwargs={"note": "ink"})
        for path in ("/v1/schedules", "/v1/schedules/nightly"):
            answer = await api.vera.get(path)
            assert answer.status_code == 200
            assert "ink" not in answer.text

    served(scenario, masked_roles="viewer", worker=False)
