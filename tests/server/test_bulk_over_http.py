"""Acting on all runs that match a filter, over HTTP."""


def test_runs_that_match_are_counted_then_cancelled_by_the_caller(served):
    async def scenario(api):
        for number in range(5):
            body = {"workflow": "waiting", "args": ["?"], "id": f"w{number}", "queue": "elsewhere"}
            await api.sam.post("/v1/runs", json=body)
        asked = {"action": "cancel", "prefix": "w", "why": "enough"}
        counted = (await api.olga.post("/v1/bulk", json={**asked, "dry_run": True})).json()
        assert (counted["matched"], counted["done"], counted["next"]) == (5, 0, None)
        first = (await api.olga.post("/v1/bulk", json={**asked, "limit": 2})).json()
        assert (first["matched"], first["done"], first["examples"]) == (2, 2, ["w4", "w3"])
        rest = await api.olga.post("/v1/bulk", json={**asked, "cursor": first["next"]})
        assert (rest.json()["matched"], rest.json()["next"]) == (3, None)
        shown = (await api.olga.get("/v1/runs/w0?brief=true")).json()["run"]
        assert (shown["status"], shown["reason"]) == ("cancelled", "enough (by olga)")

    served(scenario)


def test_filter_without_a_condition_is_a_problem(served):
    async def scenario(api):
        answer = await api.olga.post("/v1/bulk", json={"action": "cancel"})
        assert answer.status_code == 422
        assert "needs a condition" in answer.json()["detail"]

    served(scenario)


def test_runs_of_one_key_are_found(served):
    async def scenario(api):
        for number in range(4):
            key = {"key": "ann"} if number % 2 else {}
            body = {"workflow": "waiting", "args": ["?"], "id": f"w{number}", **key}
            await api.sam.post("/v1/runs", json={**body, "queue": "elsewhere"})
        page = (await api.olga.get("/v1/runs?key=ann")).json()
        assert [run["id"] for run in page["runs"]] == ["w3", "w1"]
        asked = {"action": "cancel", "key": "ann"}
        answer = (await api.olga.post("/v1/bulk", json=asked)).json()
        assert (answer["matched"], answer["examples"]) == (2, ["w3", "w1"])

    served(scenario)
