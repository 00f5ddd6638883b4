"""Debounced submissions and windows over HTTP."""

import pytest

LATER = {"workflow": "doubling", "queue": "elsewhere", "key": "ann"}


def args_of(api, id):
    return api.app._open.store.run(id).args


def test_the_last_of_a_burst_is_kept_and_the_answer_has_its_id(served):
    async def scenario(api):
        first = await api.olga.post("/v1/runs", json={**LATER, "args": [1], "debounce": 60})
        second = await api.olga.post("/v1/runs", json={**LATER, "args": [2], "debounce": 60})
        assert (first.status_code, second.status_code) == (201, 201)
        id = first.json()["run"]["id"]
        assert id.startswith("doubling:ann~")
        assert second.json()["run"]["id"] == id
        assert args_of(api, id) == '{"number":2}'
        assert second.headers["location"].startswith("/v1/runs/doubling%3Aann~")

    served(scenario)


def test_a_repeat_with_the_same_idempotency_key_is_harmless(served):
    async def scenario(api):
        body = {**LATER, "args": [1], "window": 60}
        headers = {"idempotency-key": "k"}
        for _ in range(2):
            answer = await api.olga.post("/v1/runs", json=body, headers=headers)
            assert answer.status_code == 201, answer.text
        refused = await api.olga.post("/v1/runs", json=body, headers={"idempotency-key": "other"})
        assert refused.status_code == 409

    served(scenario)


def test_a_repeat_in_the_window_is_a_problem_that_names_its_end(served):
    async def scenario(api):
        body = {**LATER, "args": [1], "window": 60}
        first = (await api.sam.post("/v1/runs", json=body)).json()
        problem = (await api.sam.post("/v1/runs", json=body)).json()
        assert (problem["error"], problem["status"]) == ("AlreadySubmitted", 409)
        assert problem["run"] == first["run"]["id"]
        assert problem["until"].endswith("Z")
        joined = await api.sam.post("/v1/runs", json={**body, "on_repeat": "join"})
        assert (joined.status_code, joined.json()["run"]["id"]) == (200, first["run"]["id"])

    served(scenario)


@pytest.mark.parametrize(
    "policy",
    [{"debounce": 60}, {"window": 60, "on_repeat": "replace"}, {"window": 60}],
    ids=str,
)
def test_submitters_have_windows_of_their_own(served, policy):
    """Neither sees the other's runs, so neither joins or replaces them."""

    async def scenario(api):
        ids = []
        for caller, number in ((api.sam, 1), (api.sue, 2), (api.olga, 3)):
            answer = await caller.post("/v1/runs", json={**LATER, "args": [number], **policy})
            assert answer.status_code == 201, answer.text
            ids.append(answer.json()["run"]["id"])
        assert [id.partition("~")[0] for id in ids] == [
            "sam/doubling:ann",
            "sue/doubling:ann",
            "doubling:ann",
        ]
        assert [args_of(api, id) for id in ids] == [f'{{"number":{n}}}' for n in (1, 2, 3)]

    served(scenario)


@pytest.mark.parametrize(
    "wrong",
    [{"window": 5, "debounce": 5}, {"debounce": 0}, {"on_repeat": "join"}, {"debounce": -1}],
    ids=str,
)
def test_options_that_make_no_sense_are_a_problem(served, wrong):
    async def scenario(api):
        answer = await api.olga.post("/v1/runs", json={**LATER, "args": [1], **wrong})
        assert answer.status_code == 422
        assert (await api.olga.get("/v1/runs")).json()["runs"] == []

    served(scenario)
