"""Who may use which route, and what each caller sees."""

import asyncio
from urllib.parse import quote

import pytest
from fastapi.routing import APIRoute
from server_tools import ITEMS, TOKENS, Client, serving

from outlast import Outlast, SettingsError
from outlast.http import Caller, Role, api
from outlast.http.rest.roles import Access
from outlast.http.rest.routing import ROLE
from outlast.http.rest.throttle import REFILL_SECONDS, WRONG_MAX, Throttle
from outlast.http.rest.tokens import Tokens
from support.waiting import wait_until_async

ROUTES = [
    route for route in api(Outlast("memory:"), tokens=ITEMS).routes if isinstance(route, APIRoute)
]


def path_of(route):
    return route.path.replace("{id}", "no").replace("{name}", "q")


def access_of(route):
    return Access[route.openapi_extra[ROLE].upper()]


def test_every_route_declares_who_may_use_it():
    web = api(Outlast("memory:"), tokens=ITEMS)
    assert [route.path for route in web.routes if not isinstance(route, APIRoute)] == []
    assert len(ROUTES) > 20
    for route in ROUTES:
        assert access_of(route) in Access
        assert type(route).__name__ == "GuardedRoute", route.path


def test_each_route_admits_only_the_roles_it_names(served):
    async def scenario(api):
        for route in ROUTES:
            (method,) = route.methods
            for name, (role, _) in TOKENS.items():
                answer = await getattr(api, name).request(method, path_of(route))
                admitted = access_of(route).admits(Role(role))
                what = f"{name} {method} {route.path}: {answer.status_code} {answer.text}"
                assert (answer.status_code != 403) == admitted, what
                assert answer.status_code < 500, what

    served(scenario)


def test_nothing_is_answered_without_a_valid_token(served):
    async def scenario(api):
        for number, route in enumerate(ROUTES):
            (method,) = route.methods
            peer = f"203.0.113.{number}"
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic eDp5"}):
                client = Client(api.web, peer=peer)
                answer = await client.request(method, path_of(route), headers=headers)
                assert answer.status_code == 401, (method, route.path)
                assert answer.headers["www-authenticate"] == "Bearer"

    served(scenario)


def test_submitter_sees_and_acts_on_its_own_runs_alone(served):
    async def scenario(api):
        body = {"workflow": "waiting", "args": ["?"], "id": "s-1"}
        await api.sam.post("/v1/runs", json=body)
        await api.olga.post("/v1/runs", json={**body, "id": "o-1"})
        for rest in (
            "",
            "/timeline",
            "/journal",
            "/effects",
            "/result",
            "/streams",
            "/watch",
            "/streams/x",
        ):
            for id in ("s-1", "o-1", "no"):
                foreign = await api.sue.get(f"/v1/runs/{id}{rest}")
                assert (foreign.status_code, foreign.json()["error"]) == (404, "UnknownRun")
        for rest, said in (("/cancel", {}), ("/messages", {"name": "answer"})):
            assert (await api.sue.post(f"/v1/runs/s-1{rest}", json=said)).status_code == 404
        listed = (await api.sam.get("/v1/runs")).json()["runs"]
        assert [run["id"] for run in listed] == ["s-1"]
        assert (await api.sue.get("/v1/runs")).json()["runs"] == []
        assert (await api.sam.get("/v1/runs/s-1")).status_code == 200
        message = {"name": "answer", "value": "!"}
        assert (await api.sam.post("/v1/runs/s-1/messages", json=message)).status_code == 201

    served(scenario)


def test_submitter_learns_nothing_of_a_run_that_has_its_id(served):
    async def scenario(api):
        body = {"workflow": "doubling", "kwargs": {"number": 1, "note": "ink"}, "id": "r"}
        await api.sam.post("/v1/runs", json=body)
        for other in (
            body,
            {**body, "on_conflict": "join"},
            {**body, "kwargs": {"number": 2}},
            {**body, "workflow": "waiting", "kwargs": {"question": "?"}},
        ):
            answer = await api.sue.post("/v1/runs", json=other)
            assert (answer.status_code, answer.json()["error"]) == (409, "Conflict")
            assert "ink" not in answer.text
            assert "doubling(" not in answer.text

    served(scenario)


def test_children_belong_to_who_submitted_their_parent(served):
    async def scenario(api):
        await api.sam.post("/v1/runs", json={"workflow": "parent", "args": [1], "id": "r"})
        await api.done("r")
        (child,) = (await api.sam.get("/v1/runs?parent=r")).json()["runs"]
        assert (child["workflow"], child["by"]) == ("doubling", "sam")
        path = f"/v1/runs/{quote(child['id'], safe='')}"
        assert (await api.sam.get(path)).json()["run"]["by"] == "sam"
        assert (await api.sue.get(path)).status_code == 404

    served(scenario)


def test_masked_role_sees_no_values(served):
    secrets = ("ink", "answer-value", "7777")

    async def scenario(api):
        runs = [
            {"workflow": "failing", "args": ["ink"], "id": "f"},
            {"workflow": "doubling", "kwargs": {"number": 7777, "note": "ink"}, "id": "d"},
            {"workflow": "waiting", "args": ["ink"], "id": "w"},
        ]
        for body in runs:
            await api.olga.post("/v1/runs", json=body)
        message = {"name": "answer", "value": "answer-value"}
        await api.olga.post("/v1/runs/w/messages", json=message)
        for body in runs:
            await api.done(body["id"])
        await api.app.session("s").set("note", "ink")
        await api.app.session("s").append("notes", "ink")
        paths = ["/v1/runs", "/v1/sessions", "/v1/sessions/s"]
        for rest in ("values", "fields", "fields/note", "lists/notes"):
            paths.append(f"/v1/sessions/s/{rest}")
        for id in ("f", "d", "w"):
            paths += [
                f"/v1/runs/{id}{rest}"
                for rest in ("", "/timeline", "/journal", "/effects", "/result")
            ]
            paths += [f"/v1/runs/{id}/watch"]
        for path in paths:
            answer = await api.vera.get(path)
            assert answer.status_code == 200, path
            assert not [secret for secret in secrets if secret in answer.text], answer.text
        shown = (await api.vera.get("/v1/runs/d")).json()["run"]
        assert (shown["args"], shown["result"]) == ({"masked": True}, {"masked": True})
        assert (await api.olga.get("/v1/runs/d")).json()["run"]["result"] == 15554

    served(scenario, masked_roles="viewer")


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        ("ann", "name:role:token"),
        ("ann:boss:0123456789abcdef", "is not a role"),
        ("ann:viewer:short-one", "shorter than 16"),
        ("ann:viewer:0123456789abcdef!", "character"),
        ("ann:viewer:0123456789abcdef,ann:operator:0123456789abcdeg", "two roles"),
        ("ann:viewer:0123456789abcdef,bob:viewer:0123456789abcdef", "another name"),
        (":viewer:0123456789abcdef", "non-empty"),
    ],
)
def test_malformed_tokens_are_refused_and_not_shown(tokens, says):
    with pytest.raises((SettingsError, ValueError), match=says) as raised:
        Tokens.parse(tokens)
    assert "0123456789abcdef" not in str(raised.value)


def test_tokens_are_separated_by_commas_and_lines():
    tokens = Tokens.parse("ann:viewer:0123456789abcdef,\nbob:operator:0123456789abcdeg\n")
    assert tokens.caller(b"0123456789abcdef") == Caller("ann", Role.VIEWER)
    assert tokens.caller(b"0123456789abcdeg") == Caller("bob", Role.OPERATOR)
    assert tokens.caller(b"0123456789abcde") is None


def test_token_of_a_rotation_belongs_to_the_same_caller():
    tokens = Tokens.parse("ann:viewer:0123456789abcdef ann:viewer:0123456789abcdeg")
    assert tokens.caller(b"0123456789abcdef") == tokens.caller(b"0123456789abcdeg")


def test_without_a_way_to_know_callers_there_is_no_api():
    app = Outlast("memory:")
    with pytest.raises(SettingsError, match="nothing says who may use it"):
        api(app)
    with pytest.raises(SettingsError, match="several ways"):
        api(app, tokens=ITEMS, insecure_loopback=True)


@pytest.mark.parametrize("name", ["os:ann", "a:b", " ann", "", "a\nb"])
def test_no_caller_has_the_name_of_a_user_of_the_command_line(name):
    with pytest.raises((SettingsError, ValueError)):
        Caller(name, Role.VIEWER)


def plain(request):
    return Caller("ann", Role.OPERATOR) if request.headers.get("x-user") == "ann" else None


async def awaited(request):
    return plain(request)


@pytest.mark.parametrize("authenticate", [plain, awaited])
def test_program_knows_its_callers_itself(authenticate):
    async def scenario():
        async with serving(authenticate=authenticate) as found:
            assert (await found.nobody.get("/v1/me")).status_code == 401
            answer = await found.nobody.get("/v1/me", headers={"x-user": "ann"})
            assert (answer.json()["name"], answer.json()["role"]) == ("ann", "operator")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("peer", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("127.0.0.1", {"host": "evil.example"}, 403),
        ("127.0.0.1", {"origin": "http://localhost"}, 403),
        ("127.0.0.1", {"sec-fetch-site": "same-origin"}, 403),
        ("127.0.0.1", {"x-forwarded-for": "127.0.0.1"}, 403),
        ("203.0.113.9", {}, 403),
    ],
)
def test_without_tokens_only_programs_on_this_machine_are_answered(peer, headers, status):
    async def scenario():
        async with serving(insecure_loopback=True) as found:
            client = Client(found.web, peer=peer, base="http://localhost")
            assert (await client.get("/v1/me", headers=headers)).status_code == status

    asyncio.run(scenario())


def test_wrong_tokens_are_throttled_and_known_ones_are_not():
    now = [0.0]
    throttle = Throttle(lambda: now[0])
    throttle.note_right("p", b"good")
    for _ in range(WRONG_MAX):
        assert throttle.seconds_to_wait("p", b"bad") == 0.0
        throttle.note_wrong("p")
    assert throttle.seconds_to_wait("p", b"bad") > 0
    assert throttle.seconds_to_wait("p", b"good") == 0.0
    assert throttle.seconds_to_wait("q", b"bad") == 0.0
    now[0] += REFILL_SECONDS
    assert throttle.seconds_to_wait("p", b"bad") == 0.0


def test_peer_with_too_many_wrong_tokens_is_told_to_wait(served):
    async def scenario(api):
        assert (await api.olga.get("/v1/me")).status_code == 200
        statuses = [(await api.nobody.get("/v1/me")).status_code for _ in range(WRONG_MAX + 1)]
        assert statuses == [401] * WRONG_MAX + [429]
        assert int((await api.nobody.get("/v1/me")).headers["retry-after"]) > 0
        assert (await api.olga.get("/v1/me")).status_code == 200, "it was right before"
        assert (await api.vera.get("/v1/me")).status_code == 429, "a guess could be right"

    served(scenario)


def test_pages_of_other_origins_need_cors_origins(served):
    async def scenario(api):
        headers = {"origin": "https://ui.example"}
        answer = await api.olga.get("/v1/me", headers=headers)
        assert "access-control-allow-origin" not in answer.headers

    served(scenario)

    async def allowed(api):
        for client in (api.olga, api.nobody):
            answer = await client.get("/v1/me", headers={"origin": "https://ui.example"})
            assert answer.headers["access-control-allow-origin"] == "https://ui.example"
        answer = await api.olga.get("/v1/me", headers={"origin": "https://other.example"})
        assert "access-control-allow-origin" not in answer.headers

    served(allowed, cors_origins="https://ui.example")


def test_body_over_the_limit_is_refused(served):
    async def scenario(api):
        body = {"workflow": "doubling", "kwargs": {"number": 1, "note": "x" * 2000}}
        answer = await api.olga.post("/v1/runs", json=body)
        assert answer.status_code == 413

        async def unsized():
            for _ in range(100):
                yield b" " * 100

        headers = {"content-type": "application/json"}
        answer = await api.olga.post("/v1/runs", content=unsized(), headers=headers)
        assert answer.status_code == 413
        assert (await api.olga.get("/v1/runs")).json()["runs"] == []

    served(scenario, settings={"api_body_max": 1000})


def test_waiting_requests_of_one_caller_are_bounded(served):
    async def scenario(api):
        body = {"workflow": "waiting", "args": ["?"], "id": "w"}
        await api.olga.post("/v1/runs", json=body)
        first = asyncio.ensure_future(api.olga.get("/v1/runs/w/result?wait=60"))
        await wait_until_async(lambda: api.web.state.outlast_api.waiting)
        assert (await api.olga.get("/v1/runs/w/result?wait=60")).status_code == 429
        assert (await api.olga.get("/v1/runs/w/watch")).status_code == 429
        assert (await api.olga.get("/v1/runs/w")).status_code == 200
        await api.olga.post("/v1/runs/w/cancel")
        assert (await first).status_code == 200
        assert not api.web.state.outlast_api.waiting

    served(scenario, settings={"api_streams_max": 1})
