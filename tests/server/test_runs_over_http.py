"""Submit, list and read runs over HTTP."""

import asyncio
from urllib.parse import quote

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from outlast import Outlast
from outlast.http import api, lifespan

ODD_IDS = ["a/b", "ü ñ/%2F", "?x=1#y", "%", "..a", "a+b&c", "emoji 🎉", "//", "a;b,c"]


def path_of(id, rest=""):
    return f"/v1/runs/{quote(id, safe='')}{rest}"


def test_submitted_run_is_executed_and_its_result_read(served):
    async def scenario(api):
        answer = await api.olga.post(
            "/v1/runs", json={"workflow": "doubling", "args": [21], "id": "r-1"}
        )
        assert answer.status_code == 201
        assert answer.headers["location"] == "/v1/runs/r-1"
        assert answer.json()["new"] is True
        assert answer.json()["run"]["by"] == "olga"
        assert (await api.done("r-1"))["result"] == 42

    served(scenario)


@pytest.mark.parametrize("id", ODD_IDS)
def test_ids_with_any_printable_character_round_trip(served, id):
    async def scenario(api):
        body = {"workflow": "doubling", "kwargs": {"number": 1}, "id": id}
        answer = await api.olga.post("/v1/runs", json=body)
        assert answer.status_code == 201, answer.text
        shown = await api.olga.get(answer.headers["location"])
        assert shown.json()["run"]["id"] == id
        assert (await api.olga.get(path_of(id, "/journal"))).status_code == 200
        assert (await api.olga.get(path_of(id, "/result?wait=60"))).json()["result"] == 2

    served(scenario)


def test_ids_round_trip_where_the_api_is_mounted(served):
    def mounted(web):
        return Starlette(routes=[Mount("/out last/ü", web)])

    async def scenario(api):
        root = quote("/out last/ü")
        body = {"workflow": "doubling", "args": [1], "id": "a/b"}
        answer = await api.olga.post(f"{root}/v1/runs", json=body)
        assert answer.headers["location"] == f"{root}/v1/runs/a%2Fb"
        assert (await api.olga.get(answer.headers["location"])).json()["run"]["id"] == "a/b"
        assert (await api.olga.get("/v1/runs")).status_code == 404

    served(scenario, mounted=mounted)


def test_a_repeated_submission_is_not_executed_again(served):
    async def scenario(api):
        body = {"workflow": "doubling", "args": [1], "id": "r-1"}
        assert (await api.olga.post("/v1/runs", json=body)).status_code == 201
        await api.done("r-1")
        again = await api.olga.post("/v1/runs", json=body)
        assert (again.status_code, again.json()["new"]) == (200, False)
        other = await api.olga.post("/v1/runs", json={**body, "args": [2]})
        assert (other.status_code, other.json()["error"]) == (409, "Conflict")
        joined = await api.olga.post("/v1/runs", json={**body, "args": [2], "on_conflict": "join"})
        assert joined.status_code == 200

    served(scenario)


def test_idempotency_key_is_the_id_of_a_run_without_one(served):
    async def scenario(api):
        for status in (201, 200):
            answer = await api.olga.post(
                "/v1/runs",
                json={"workflow": "doubling", "args": [1]},
                headers={"idempotency-key": "k-1"},
            )
            assert answer.status_code == status
            assert answer.json()["run"]["id"] == "k-1"

    served(scenario)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"workflow": "doubling", "args": ["x"]}, ["body", "kwargs", "number"]),
        ({"workflow": "doubling", "kwargs": {"number": 1, "note": 2}}, ["body", "kwargs", "note"]),
        ({"workflow": "doubling", "kwargs": {"other": 1}}, ["body", "kwargs"]),
        ({"workflow": "doubling"}, ["body", "kwargs"]),
        ({"workflow": "nobody", "args": [1]}, ["body", "workflow"]),
        ({"workflow": "doubling", "args": [1], "color": 1}, ["body", "color"]),
        ({"workflow": "doubling", "args": [1], "priority": "1"}, ["body", "priority"]),
        ({"workflow": "doubling", "args": [1], "id": "a\nb"}, ["body", "id"]),
        ({"workflow": "doubling", "args": [1], "delay": -1}, ["body", "delay"]),
        ({"args": [1]}, ["body", "workflow"]),
    ],
)
def test_wrong_submission_is_refused_with_the_path_of_the_value(served, body, path):
    async def scenario(api):
        answer = await api.olga.post("/v1/runs", json=body)
        assert answer.status_code == 422
        assert answer.headers["content-type"] == "application/problem+json"
        assert path in [one["path"] for one in answer.json()["errors"]]
        assert (await api.olga.get("/v1/runs")).json()["runs"] == []

    served(scenario)


@pytest.mark.parametrize(
    "content",
    [b"{", b"[1]", b'{"workflow": NaN}', b"[" * 100_000, b"\xff", b"1" * 5000, b'"x"', b""],
)
def test_body_that_is_no_submission_is_refused(served, content):
    async def scenario(api):
        answer = await api.olga.post(
            "/v1/runs", content=content, headers={"content-type": "application/json"}
        )
        assert answer.status_code in (400, 422), answer.text
        assert answer.json()["next"]

    served(scenario)


def test_unknown_query_parameter_is_refused_and_named(served):
    async def scenario(api):
        for path in ("/v1/runs", "/v1/queues", "/v1/me", "/v1/sessions"):
            answer = await api.olga.get(f"{path}?colour=red")
            assert answer.status_code == 422
            assert ["query", "colour"] in [one["path"] for one in answer.json()["errors"]]

    served(scenario)


def test_runs_are_listed_page_by_page(served):
    async def scenario(api):
        ids = [f"r-{number}" for number in range(5)]
        for id in ids:
            await api.olga.post("/v1/runs", json={"workflow": "doubling", "args": [1], "id": id})
        found, cursor = [], ""
        while True:
            page = (await api.olga.get(f"/v1/runs?limit=2{cursor}")).json()
            found += [run["id"] for run in page["runs"]]
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
        assert found == ids[::-1]
        older = (await api.olga.get("/v1/runs?before=r-2")).json()["runs"]
        assert [run["id"] for run in older] == ["r-1", "r-0"]

    served(scenario)


def test_page_continues_although_the_run_before_it_was_pruned(served):
    async def scenario(api):
        for number in range(3):
            body = {"workflow": "doubling", "args": [1], "id": f"r-{number}"}
            await api.olga.post("/v1/runs", json=body)
            await api.done(f"r-{number}")
        page = (await api.olga.get("/v1/runs?limit=1")).json()
        await api.olga.post("/v1/prune", json={"older_than": 0})
        await api.olga.post("/v1/runs", json={"workflow": "doubling", "args": [1], "id": "new"})
        rest = (await api.olga.get(f"/v1/runs?cursor={page['next']}")).json()
        assert (rest["runs"], rest["next"]) == ([], None)

    served(scenario)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("status=done", ["d"]),
        ("status=done&status=failed", ["f", "d"]),
        ("workflow=doubling", ["q", "d"]),
        ("queue=slow", ["q"]),
        ("prefix=f", ["f"]),
        ("status=queued", ["q"]),
        ("older_than=3600", []),
        ("newer_than=3600", ["q", "f", "d"]),
        ("items=only", []),
        ("undoing=true", []),
        ("waiting_for=answer", []),
        ("parent=d", []),
    ],
)
def test_runs_are_filtered(served, query, found):
    async def scenario(api):
        for body in (
            {"workflow": "doubling", "args": [1], "id": "d"},
            {"workflow": "failing", "args": ["x"], "id": "f"},
        ):
            await api.olga.post("/v1/runs", json=body)
            await api.done(body["id"])
        body = {"workflow": "doubling", "args": [1], "id": "q", "queue": "slow"}
        await api.olga.post("/v1/runs", json=body)
        page = (await api.olga.get(f"/v1/runs?{query}")).json()
        assert [run["id"] for run in page["runs"]] == found

    served(scenario)


def test_result_says_how_a_run_failed(served):
    async def scenario(api):
        body = {"workflow": "failing", "args": ["ink"], "id": "f"}
        await api.olga.post("/v1/runs", json=body)
        answer = await api.done("f")
        assert answer["status"] == "failed"
        assert answer["error"]["type"] == "ValueError"
        assert answer["error"]["message"] == "not with ink"
        assert answer["explain"] == "RunFailed"

    served(scenario)


def test_result_of_a_run_that_has_not_ended_is_not_there_yet(served):
    async def scenario(api):
        body = {"workflow": "waiting", "args": ["?"], "id": "w"}
        await api.olga.post("/v1/runs", json=body)
        for query in ("", "?wait=0.01"):
            answer = await api.olga.get(f"/v1/runs/w/result{query}")
            assert answer.status_code == 202
            assert answer.headers["retry-after"] == "1"

    served(scenario)


def test_waiting_for_a_result_ends_with_the_run(served):
    async def scenario(api):
        body = {"workflow": "waiting", "args": ["is it? "], "id": "w"}
        await api.olga.post("/v1/runs", json=body)
        asked = asyncio.ensure_future(api.olga.get("/v1/runs/w/result?wait=60"))
        message = {"name": "answer", "value": "yes", "id": "m-1"}
        sent = await api.olga.post("/v1/runs/w/messages", json=message)
        assert sent.json() == {"id": "w", "name": "answer", "message_id": "m-1"}
        assert (await asked).json()["result"] == "is it? yes"

    served(scenario)


def test_drain_ends_a_wait_for_a_result(served):
    async def scenario(api):
        body = {"workflow": "waiting", "args": ["?"], "id": "w", "queue": "elsewhere"}
        await api.olga.post("/v1/runs", json=body)
        asked = asyncio.ensure_future(api.olga.get("/v1/runs/w/result?wait=60"))
        await asyncio.sleep(0)
        await api.app.drain()
        assert (await asked).status_code == 202

    served(scenario)


def test_run_is_shown_as_the_command_line_shows_it(served):
    async def scenario(api):
        body = {"workflow": "doubling", "args": [21], "id": "r"}
        await api.olga.post("/v1/runs", json=body)
        await api.done("r")
        shown = (await api.olga.get("/v1/runs/r")).json()
        assert set(shown) == {
            "run",
            "cost",
            "effects",
            "questions",
            "undecided",
            "executions",
            "journal",
            "messages",
        }
        assert (shown["run"]["args"], shown["run"]["result"]) == ({"number": 21}, 42)
        assert [entry["key"] for entry in shown["journal"]] == ["double#1"]
        brief = (await api.olga.get("/v1/runs/r?brief=true")).json()
        assert brief == {"run": shown["run"]}

    served(scenario)


def test_journal_is_read_page_by_page(served):
    async def scenario(api):
        body = {"workflow": "waiting", "args": ["?"], "id": "w"}
        await api.olga.post("/v1/runs", json=body)
        await api.olga.post("/v1/runs/w/messages", json={"name": "answer", "value": "!"})
        await api.done("w")
        whole = (await api.olga.get("/v1/runs/w/journal")).json()
        assert whole["next"] is None
        first = (await api.olga.get("/v1/runs/w/journal?limit=1")).json()
        assert first["entries"] == whole["entries"][:1]
        after = first["entries"][-1]["seq"]
        rest = (await api.olga.get(f"/v1/runs/w/journal?after={after}")).json()
        assert first["entries"] + rest["entries"] == whole["entries"]

    served(scenario)


def test_unknown_run_is_a_problem_that_explain_knows(served):
    async def scenario(api):
        for method, path in (
            ("GET", "/v1/runs/no"),
            ("GET", "/v1/runs/no/journal"),
            ("GET", "/v1/runs/no/effects"),
            ("GET", "/v1/runs/no/result"),
            ("POST", "/v1/runs/no/cancel"),
            ("POST", "/v1/runs/no/retry"),
            ("POST", "/v1/runs/no/resume"),
        ):
            answer = await api.olga.request(method, path)
            assert (answer.status_code, answer.json()["error"]) == (404, "UnknownRun"), path

    served(scenario)


def test_unknown_route_and_wrong_method_are_problems(served):
    async def scenario(api):
        for method, path, status in (("GET", "/v1/x", 404), ("DELETE", "/v1/runs", 405)):
            answer = await api.olga.request(method, path)
            assert answer.status_code == status
            assert answer.headers["content-type"] == "application/problem+json"

    served(scenario)


def test_api_answers_while_the_app_opens_and_closes_with_the_web_server():
    async def scenario():
        app = Outlast("memory:")
        web = api(app, tokens=["olga:operator:0123456789abcdef"])
        outer = Starlette(routes=[Mount("/outlast", web)], lifespan=lifespan(app))
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(outer),
            base_url="http://server",
            headers={"authorization": "Bearer 0123456789abcdef"},
        )
        closed = await client.get("/outlast/v1/me")
        assert (closed.status_code, closed.json()["type"]) == (503, "urn:outlast:problem:NotOpen")
        async with outer.router.lifespan_context(outer):
            assert (await client.get("/outlast/v1/me")).status_code == 200
        assert (await client.get("/outlast/v1/me")).status_code == 503

    asyncio.run(scenario())
