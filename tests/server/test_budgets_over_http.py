"""List and raise budgets over HTTP."""

import asyncio

from outlast import budget, step, workflow

spend = budget("answer", usd=1)


@step
async def ask_paid(number: int) -> int:
    async with spend.use(usd=1):
        return number


@workflow
async def paid() -> list[int]:
    return [await ask_paid(1), await ask_paid(2)]


async def until(api, status: str) -> dict:
    while True:
        run = (await api.olga.get("/v1/runs/r?brief=true")).json()["run"]
        if run["status"] == status:
            return run
        await asyncio.sleep(0.01)


def test_budget_is_listed_and_raised_by_an_operator(served):
    async def scenario(api):
        await api.app.start(paid(), id="r")
        await until(api, "parked")
        answer = await api.olga.get("/v1/budgets")
        (found,) = answer.json()["budgets"]
        assert (found["id"], found["left"], found["waiting"]) == ("run:r/answer", {"usd": 0}, ["r"])
        path = "/v1/budgets/run:r%2Fanswer"
        for limits in ({}, {"usd": -1}, {"tokens": 5}):
            assert (await api.olga.post(path, json={"limits": limits})).status_code in (400, 422)
        answer = await api.olga.post(path, json={"limits": {"usd": 2}})
        assert answer.status_code == 200, answer.text
        assert answer.json()["budget"]["limits"] == {"usd": 2}
        await until(api, "done")

    served(scenario)


def test_budget_is_decided_with_its_run(served):
    async def scenario(api):
        await api.app.start(paid(), id="r")
        await until(api, "parked")
        effects = (await api.olga.get("/v1/runs/r/effects")).json()
        text = "1 of 1 usd are spent, and the next use reserves 1"
        assert (effects["undecided"], effects["questions"]) == ([], {"run:r/answer": text})
        body = {"effect": "budget:answer", "limit": {"usd": 2}}
        both = {**body, "did_not": True}
        assert (await api.olga.post("/v1/runs/r/decide", json=both)).status_code == 422
        answer = await api.olga.post("/v1/runs/r/decide", json=body)
        assert answer.status_code == 200, answer.text
        await until(api, "done")
        journal = (await api.olga.get("/v1/runs/r/journal")).json()["entries"]
        (resumed,) = [entry for entry in journal if entry["kind"] == "resume"]
        assert resumed["value"]["by"] == "olga"

    served(scenario)
