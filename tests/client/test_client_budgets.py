"""List and raise budgets over HTTP with the client."""

from decimal import Decimal

import pytest
from client_tools import run_remote, spending

from outlast import RunParked, SettingsError, UnknownEffect


async def until_parked(client) -> None:
    await client.submit(spending(), id="r")
    with pytest.raises(RunParked, match="1 of 1 usd are spent"):
        await client.result("r")


def test_client_decides_a_budget_with_its_run():
    async def scenario(remote, client):
        await until_parked(client)
        with pytest.raises(SettingsError):
            await client.decide("r", "budget:answer", limit={"usd": 1.5})
        with pytest.raises(UnknownEffect):
            await client.decide("r", "budget:other", limit={"usd": 2})
        with pytest.raises(SettingsError, match="pass one of"):
            await client.decide("r", "budget:answer", limit={"usd": 2}, did_not=True)
        for _ in range(2):
            await client.decide("r", "budget:answer", limit={"usd": Decimal(2)})
        return await client.result("r")

    assert run_remote(scenario) == 3


def test_client_lists_and_raises_budgets():
    async def scenario(remote, client):
        await until_parked(client)
        (info,) = await client.budgets(prefix="run:r/")
        assert info == (await remote.app.budgets())[0]
        assert (info.id, info.run, info.left) == ("run:r/answer", "r", {"usd": 0, "tokens": 100})
        raised = await client.raise_budget(info.id, {"usd": 2})
        assert (raised.limits, raised.raised_by) == ({"usd": 2, "tokens": 100}, "olga")
        assert await client.budgets(after=info.id) == []
        return await client.result("r")

    assert run_remote(scenario) == 3
