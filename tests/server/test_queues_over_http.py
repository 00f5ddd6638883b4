"""Submit several runs and put items into queues over HTTP."""

import asyncio
from urllib.parse import quote


def submission(*runs, **options):
    return {"runs": [{"workflow": "doubling", "args": [1], **run} for run in runs], **options}


def test_several_runs_are_submitted_at_once_in_order(served):
    async def scenario(api):
        answer = await api.sam.post("/v1/submissions", json=submission({"id": "b"}, {"args": [5]}))
        assert answer.status_code == 201, answer.text
        first, second = answer.json()["runs"]
        assert (first["run"]["id"], first["new"], first["run"]["by"]) == ("b", True, "sam")
        assert (await api.done(second["run"]["id"]))["result"] == 10
        again = await api.sam.post("/v1/submissions", json=submission({"id": "b"}))
        assert (again.status_code, again.json()["runs"][0]["new"]) == (200, False)

    served(scenario)


def test_none_of_several_runs_is_submitted_if_one_cannot_be(served):
    async def scenario(api):
        await api.olga.post("/v1/submissions", json=submission({"id": "taken", "args": [9]}))
        for bad, status in (
            ({"args": ["seven"]}, 422),
            ({"workflow": "nothing"}, 422),
            ({"id": "taken"}, 409),
        ):
            body = submission({"id": "good"}, bad)
            answer = await api.olga.post("/v1/submissions", json=body)
            assert answer.status_code == status, answer.text
            assert (await api.olga.get("/v1/runs/good")).status_code == 404
        wrong = await api.olga.post("/v1/submissions", json=submission({}, {"args": ["seven"]}))
        path = wrong.json()["errors"][0]["path"]
        assert path == ["body", "runs", 1, "kwargs", "number"]

    served(scenario)


def test_submitter_of_several_runs_cannot_join_those_of_others(served):
    async def scenario(api):
        await api.olga.post("/v1/submissions", json=submission({"id": "o"}))
        answer = await api.sam.post("/v1/submissions", json=submission({"id": "s"}, {"id": "o"}))
        assert (answer.status_code, answer.json()["error"]) == (409, "Conflict")
        assert (await api.olga.get("/v1/runs/s")).status_code == 404

    served(scenario)


def test_repeat_with_an_idempotency_key_submits_and_puts_nothing_again(served):
    async def scenario(api):
        headers = {"idempotency-key": "k"}
        for path, body in (
            ("/v1/submissions", submission({}, {"args": [2]})),
            ("/v1/queues/mail/items", {"items": [{"payload": 1}, {"payload": 2}]}),
        ):
            first = await api.sam.post(path, json=body, headers=headers)
            again = await api.sam.post(path, json=body, headers=headers)
            assert first.status_code == 201, first.text
            assert ids_in(first) == ids_in(again)
            assert len(ids_in(first)) == 2
        runs = (await api.sam.get("/v1/runs?items=all")).json()["runs"]
        assert len(runs) == 4

    served(scenario)


def ids_in(answer):
    found = answer.json()
    return found["ids"] if "ids" in found else [one["run"]["id"] for one in found["runs"]]


def test_items_are_put_listed_and_consumed(served):
    async def scenario(api):
        body = {"items": [{"payload": {"to": "ann"}, "id": "7"}, {"payload": [1]}], "priority": 2}
        answer = await api.sam.post("/v1/queues/mail/items", json=body)
        assert answer.status_code == 201, answer.text
        assert answer.json()["ids"][0] == "7"
        listed = (await api.sam.get("/v1/queues/mail/items?limit=1")).json()
        assert [item["payload"] for item in listed["items"]] == [[1]]
        rest = await api.sam.get(f"/v1/queues/mail/items?cursor={listed['next']}")
        (item,) = rest.json()["items"]
        assert (item["name"], item["id"], item["by"]) == ("7", "mail/7", "sam")
        assert (item["payload"], item["priority"]) == ({"to": "ann"}, 2)
        assert rest.json()["next"] is None
        assert (await api.vera.get("/v1/queues/mail")).json()["size"] == 2
        claimed = await api.app.queue("mail").claim()
        assert (claimed.id, claimed.payload) == ("7", {"to": "ann"})
        running = await api.sam.get("/v1/queues/mail/items?status=running")
        assert [item["name"] for item in running.json()["items"]] == ["7"]
        await claimed.ack()

    served(scenario)


def test_submitter_sees_its_own_items_alone_and_learns_nothing_of_others(served):
    async def scenario(api):
        path, item = "/v1/queues/mail/items", {"payload": "ink", "id": "7"}
        await api.olga.post(path, json={"items": [item]})
        assert (await api.sam.get(path)).json()["items"] == []
        for other in (item, {**item, "payload": "water"}):
            body = {"items": [{"payload": 1, "id": "new"}, other]}
            answer = await api.sam.post(path, json=body)
            assert (answer.status_code, answer.json()["error"]) == (409, "Conflict")
            assert "ink" not in answer.text
        assert (await api.olga.get("/v1/queues/mail")).json()["size"] == 1

    served(scenario)


def test_an_item_is_discarded_and_a_dead_one_is_queued_again_by_its_run_id(served):
    async def scenario(api):
        await api.olga.post("/v1/queues/mail/items", json={"items": [{"payload": 1, "id": "7"}]})
        item = f"/v1/runs/{quote('mail/7', safe='')}"
        assert (await api.olga.get(item)).json()["run"]["args"] == 1
        claimed = await api.app.queue("mail").claim()
        await claimed.nack(reason="no such address")
        assert (await api.olga.get(item)).json()["run"]["status"] == "dead"
        assert (await api.olga.post(f"{item}/retry")).json()["run"]["status"] == "queued"
        await api.olga.post(f"{item}/cancel")
        assert (await api.olga.get("/v1/queues/mail")).json()["size"] == 0

    served(scenario, settings={"max_attempts": 1})


def test_full_queue_takes_no_items_until_there_is_room(served):
    async def scenario(api):
        await api.olga.put("/v1/queues/mail/limits", json={"depth": 1})
        shown = (await api.vera.get("/v1/queues/mail")).json()
        assert (shown["depth"], shown["concurrency"], shown["size"]) == (1, None, 0)
        one = {"items": [{"payload": 1}]}
        assert (await api.olga.post("/v1/queues/mail/items", json=one)).status_code == 201
        refused = await api.olga.post("/v1/queues/mail/items", json=one)
        assert (refused.status_code, refused.json()["error"]) == (429, "Backpressure")
        waiting = asyncio.ensure_future(
            api.olga.post("/v1/queues/mail/items", json={**one, "wait": 60})
        )
        await (await api.app.queue("mail").claim()).ack()
        assert (await waiting).status_code == 201

    served(scenario)


def test_masked_role_sees_no_payload(served):
    async def scenario(api):
        await api.olga.post("/v1/queues/mail/items", json={"items": [{"payload": "ink"}]})
        answer = await api.vera.get("/v1/queues/mail/items")
        assert answer.json()["items"][0]["payload"] == {"masked": True}
        assert "ink" not in answer.text

    served(scenario, masked_roles="viewer")


def test_keys_and_their_limits_over_http(served):
    async def scenario(api):
        limits = {"per_key_concurrency": 3, "per_key_rate": "100/1m", "paused": True}
        answer = await api.olga.put("/v1/queues/mail/limits", json=limits)
        assert answer.json() == {"queue": "mail", "depth": None, "concurrency": None, **limits}
        answer = await api.olga.put("/v1/queues/mail/limits", json={"per_key_rate": None})
        assert (answer.json()["per_key_concurrency"], answer.json()["per_key_rate"]) == (3, None)
        answer = await api.olga.put("/v1/queues/mail/limits", json={"per_key_rate": "many"})
        assert answer.status_code == 422
        body = submission({"id": "k", "key": "ann"}, {"id": "n"})
        answer = await api.sam.post("/v1/submissions", json=body)
        assert [one["run"]["key"] for one in answer.json()["runs"]] == ["ann", None]
        run = {"workflow": "doubling", "args": [1], "key": "bob"}
        answer = await api.sam.post("/v1/runs", json=run)
        assert answer.json()["run"]["key"] == "bob"
        items = {"items": [{"payload": 1, "key": "ann"}]}
        await api.sam.post("/v1/queues/mail/items", json=items)
        (item,) = (await api.sam.get("/v1/queues/mail/items")).json()["items"]
        assert item["key"] == "ann"

    served(scenario)
