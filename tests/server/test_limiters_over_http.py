"""List the limiters over HTTP."""

from outlast.codec.rates import Rate


def test_limiters_are_listed(served):
    async def scenario(api):
        engine = api.app._open
        queue = engine.limiters.get("openai", {"tokens": Rate(1000, 60.0)})
        await queue.reserve({"tokens": 300}, None, 0.0)
        answer = await api.olga.get("/v1/limiters")
        assert answer.status_code == 200, answer.text
        (limiter,) = answer.json()["limiters"]
        assert limiter["limits"]["tokens"]["used"] == 300
        assert limiter["waiting"] == 0

    served(scenario)
