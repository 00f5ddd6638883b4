"""Pausing and resuming workflows over HTTP."""

from outlast.codec.text import iso


def test_a_workflow_is_paused_by_the_caller_and_resumed(served):
    async def scenario(api):
        for _ in range(2):
            answer = await api.olga.post("/v1/workflows/doubling/pause")
            assert answer.json() == {"workflow": "doubling", "paused": True}
        (found,) = (await api.vera.get("/v1/paused-workflows")).json()["workflows"]
        (known,) = await api.app.paused_workflows()
        assert found == {"name": "doubling", "since": iso(known.since.timestamp()), "by": "olga"}
        for _ in range(2):
            answer = await api.olga.post("/v1/workflows/doubling/resume")
            assert answer.json() == {"workflow": "doubling", "paused": False}
        assert (await api.vera.get("/v1/paused-workflows")).json() == {"workflows": []}

    served(scenario)


def test_only_operators_pause(served):
    async def scenario(api):
        for caller in (api.sam, api.vera):
            assert (await caller.post("/v1/workflows/doubling/pause")).status_code == 403
        assert (await api.olga.post(f"/v1/workflows/{'x' * 300}/pause")).status_code == 422
        assert await api.app.paused_workflows() == []

    served(scenario)
