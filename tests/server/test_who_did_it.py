"""What a caller does names the caller: in the run, the journal and the mailbox."""

from server_tools import bank

from support.waiting import wait_until_async


def by_of(shown, kind):
    return [entry["value"].get("by") for entry in shown["journal"] if entry["kind"] == kind]


def test_retry_is_recorded_once_with_the_caller_who_asked_first(served):
    async def scenario(api):
        body = {"workflow": "failing", "args": ["x"], "id": "f"}
        await api.sam.post("/v1/runs", json=body)
        await api.done("f")
        for _ in range(2):
            answer = await api.olga.post("/v1/runs/f/retry", headers={"idempotency-key": "k"})
            assert answer.status_code == 200, answer.text
            await api.done("f")
        shown = (await api.olga.get("/v1/runs/f")).json()
        assert shown["run"]["by"] == "sam"
        assert by_of(shown, "retry") == ["olga"]

    served(scenario)


def test_message_and_cancellation_name_their_callers(served):
    async def scenario(api):
        body = {"workflow": "waiting", "args": ["?"], "id": "w", "queue": "elsewhere"}
        await api.sam.post("/v1/runs", json=body)
        for _ in range(2):
            message = {"name": "note", "value": 1, "id": "m-1"}
            await api.sam.post("/v1/runs/w/messages", json=message)
        for why in ("enough.", "again"):
            answer = await api.olga.post("/v1/runs/w/cancel", json={"why": why})
            assert answer.json()["run"]["status"] == "cancelled"
        shown = (await api.olga.get("/v1/runs/w")).json()
        assert [message["by"] for message in shown["messages"]] == ["sam"]
        assert shown["run"]["reason"] == "enough (by olga)"

    served(scenario)


def test_drain_of_a_worker_names_the_caller(served):
    async def scenario(api):
        (worker,) = (await api.olga.get("/v1/workers")).json()["workers"]
        path = f"/v1/workers/{worker['id']}/drain"
        answer = await api.olga.post(path, json={"why": "deploy 7"})
        assert answer.json()["state"] in ("asked", "draining")
        assert await api.app.wait_drain() == "deploy 7 (by olga)"

    served(scenario)


def test_limits_are_set_and_a_limit_that_is_left_out_stays(served):
    async def scenario(api):
        for body, limits in (
            ({"depth": 5, "concurrency": 2}, (5, 2)),
            ({"concurrency": 0}, (5, 0)),
            ({"depth": None}, (None, 0)),
        ):
            answer = (await api.olga.put("/v1/queues/q/limits", json=body)).json()
            assert (answer["depth"], answer["concurrency"]) == limits

    served(scenario)


def test_full_queue_is_told_with_what_to_do(served):
    async def scenario(api):
        await api.olga.put("/v1/queues/q/limits", json={"depth": 1})
        body = {"workflow": "doubling", "args": [1], "queue": "q"}
        assert (await api.olga.post("/v1/runs", json=body)).status_code == 201
        answer = await api.olga.post("/v1/runs", json=body)
        assert (answer.status_code, answer.json()["error"]) == (429, "Backpressure")
        assert answer.json()["limit"] == 1
        assert answer.headers["retry-after"] == "1"

    served(scenario)


def test_decision_about_an_effect_names_the_caller_and_ends_the_run(served):
    async def scenario(api):
        await api.sam.post("/v1/runs", json={"workflow": "paying", "args": [250], "id": "p"})
        await until_parked(api, "p")
        (effect,) = (await api.olga.get("/v1/runs/p/effects")).json()["effects"]
        body = {"effect": effect["place"], "happened": "receipt 7"}
        answer = await api.olga.post("/v1/runs/p/decide", json=body)
        assert answer.status_code == 200, answer.text
        assert (await api.done("p"))["result"] == "receipt 7"
        shown = (await api.olga.get("/v1/runs/p")).json()
        assert by_of(shown, "decision") == ["olga"]

    served(scenario)


def test_parked_run_is_resumed_over_http_once_its_cause_is_fixed(served):
    bank.update(knows=False, asked=0)

    async def scenario(api):
        body = {"workflow": "paying_carefully", "args": [250], "id": "p"}
        await api.sam.post("/v1/runs", json=body)
        await until_parked(api, "p")
        assert (await api.sam.post("/v1/runs/p/resume")).status_code == 403
        waiting = await api.sam.get("/v1/runs/p/result?wait=5")
        assert (waiting.status_code, waiting.json()["status"]) == (202, "parked")
        bank["knows"] = True
        for _ in range(2):
            answer = await api.olga.post("/v1/runs/p/resume", headers={"idempotency-key": "k"})
            assert answer.status_code == 200, answer.text
            assert (await api.done("p"))["result"] == "receipt of bank"
        refused = await api.olga.post("/v1/runs/p/resume")
        assert (refused.status_code, refused.json()["error"]) == (409, "WrongStatus")
        shown = (await api.olga.get("/v1/runs/p")).json()
        assert by_of(shown, "resume") == ["olga"]
        assert bank["asked"] > 1

    served(scenario, settings={"verify_attempts": 1})


async def until_parked(api, id):
    async def is_parked():
        answer = await api.olga.get(f"/v1/runs/{id}?brief=true")
        return answer.json()["run"]["status"] == "parked"

    await wait_until_async(is_parked)
